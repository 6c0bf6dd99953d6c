"""A client that cannot be had here is told, with what to do; nothing is installed."""

import pytest

from tests.support import clients
from tests.support.clients_npm import Unavailable


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason tells which program it is and how to get it."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"need tmux, .* `make components`"):
        clients.require("tmux")


def test_what_is_missing_is_listed_for_debian(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make components` learns which packages to install."""
    monkeypatch.setenv("PATH", "")
    assert clients.main() == 1
    assert capsys.readouterr().out == "nodejs npm tmux\n"


@pytest.mark.parametrize(("ci", "outcome"), [("true", "errors"), ("", "skipped")])
def test_without_a_client_tests_are_skipped_loudly_but_fail_in_ci(
    ci: str, outcome: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing client is told at the end, and is no success where nobody reads that."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    pytester.makeconftest(
        "from tests.clients.conftest import window\n"
        "from tests.conftest import pytest_terminal_summary"
    )
    pytester.makepyfile("def test_needs_it(window): pass")
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:asyncio")
    result.assert_outcomes(**{outcome: 1})
    told = "OpenCode's clients need tmux, which is not here*"
    result.stdout.fnmatch_lines(f"*{told}" if ci else f"1 skipped: {told}")
