"""The tests' own supports hold: isolation, the network switch, PostgreSQL, Markdown; not kedge."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support import cluster, environment, markdown, network, postgres

# An address and a name that are set aside for documentation: nobody answers there.
FOREIGN_ADDRESS = ("192.0.2.1", 9)
FOREIGN_NAME = "foreign.invalid"


def test_the_home_is_the_runs_own() -> None:
    """No test sees the home or the XDG folders of the person who runs it."""
    folders = [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]
    run = environment.run_folder()
    inside = {name for name in folders if Path(os.environ[name]).is_relative_to(run)}
    assert inside >= {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
    assert inside >= {"XDG_STATE_HOME", "XDG_RUNTIME_DIR"}


def test_git_variables_are_removed() -> None:
    """A run started from a git hook does not point the tests' git at that repository."""
    variables = {"GIT_DIR": "/elsewhere", "GIT_INDEX_FILE": "/elsewhere/index", "OTHER": "kept"}
    environment.remove_git_variables(variables)
    assert variables == {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "OTHER": "kept",
    }


def test_git_stays_off_the_network(tmp_path: Path) -> None:
    """A git that a test starts refuses every transport but files."""
    command = ["git", "clone", f"https://{FOREIGN_NAME}/x", str(tmp_path / "x")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "transport 'https' not allowed" in refused.stderr


@pytest.mark.parametrize("method", ["connect", "connect_ex"])
def test_a_foreign_connection_is_refused(method: str) -> None:
    """Connecting to another host fails at once and is remembered."""
    with network.foreign_network_forbidden() as attempts, socket.socket() as connection:
        with pytest.raises(network.ForeignNetworkError, match=r"not connect.* '192\.0\.2\.1'"):
            getattr(connection, method)(FOREIGN_ADDRESS)
        assert attempts == [f"{method} '192.0.2.1'"]


def test_a_foreign_datagram_is_refused() -> None:
    """A datagram to another host is refused, with and without flags."""
    with (
        network.foreign_network_forbidden() as attempts,
        socket.socket(type=socket.SOCK_DGRAM) as sender,
    ):
        with pytest.raises(network.ForeignNetworkError):
            sender.sendto(b"x", FOREIGN_ADDRESS)
        with pytest.raises(network.ForeignNetworkError):
            sender.sendto(b"x", 0, FOREIGN_ADDRESS)
        assert len(attempts) == 2


def test_a_foreign_name_is_not_looked_up() -> None:
    """Asking for the address of another host fails before any name server is asked."""
    with network.foreign_network_forbidden() as attempts:
        with pytest.raises(network.ForeignNetworkError):
            socket.getaddrinfo(FOREIGN_NAME, 80)
        assert attempts == [f"getaddrinfo '{FOREIGN_NAME}'"]


def test_loopback_and_unix_sockets_work(tmp_path: Path) -> None:
    """What stays on this machine is not hindered."""
    with network.foreign_network_forbidden() as attempts:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            socket.create_connection(("localhost", port)).close()
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            caller.connect(str(tmp_path / "s"))
        assert attempts == []


def test_a_hidden_attempt_still_fails_the_test(pytester: pytest.Pytester) -> None:
    """Code that swallows the refusal does not make the test pass."""
    pytester.makeconftest("from tests.conftest import no_foreign_network")
    pytester.makepyfile(
        f"""
        import contextlib, socket
        def test_hides():
            with contextlib.suppress(OSError):
                socket.create_connection({FOREIGN_ADDRESS!r})
        """
    )
    outcome = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:asyncio")
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines("*this one tried: *'192.0.2.1'*")


def test_a_database_is_fresh_and_goes_away(postgres_server: str) -> None:
    """A test database is empty, UTF-8, and dropped although somebody is still connected to it."""
    with postgres.fresh_database(postgres_server) as url:
        left_open = psycopg.connect(url)
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert left_open.execute(tables).fetchone() == (0,)
        assert left_open.info.encoding == "utf-8"
        name = left_open.info.dbname
    left_open.close()
    with psycopg.connect(postgres_server) as connection:
        query = "SELECT count(*) FROM pg_database WHERE datname = %s"
        assert connection.execute(query, (name,)).fetchone() == (0,)


def test_two_databases_do_not_meet(postgres_server: str) -> None:
    """Tests that run at the same time get different databases."""
    with (
        postgres.fresh_database(postgres_server) as one,
        postgres.fresh_database(postgres_server) as other,
    ):
        assert one != other


def test_a_private_server_starts_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the programs are there, a server is started once, shared, and leaves nothing."""
    if cluster.find_binaries() is None:
        pytest.skip(f"no PostgreSQL programs to start a server with; {postgres.HOW_TO_MEND}")
    monkeypatch.setenv(postgres.SETTING, "private")
    url = postgres.server_url(tmp_path)
    try:
        assert postgres.server_url(tmp_path) == url
        with psycopg.connect(url) as connection:
            [folder] = connection.execute("SHOW data_directory").fetchone() or [""]
        assert Path(folder).exists()
    finally:
        postgres.stop_private_server(tmp_path)
    assert not Path(folder).parent.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_no_postgres_says_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither a server nor programs the reason tells what to do."""
    monkeypatch.setenv(postgres.SETTING, "private")
    monkeypatch.setattr(postgres, "find_binaries", lambda: None)
    with pytest.raises(postgres.NoPostgresError, match=r"make components.*KEDGE_TEST_POSTGRES"):
        postgres.locate()


def test_a_named_server_that_is_down_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was asked for by name is never silently replaced by another one."""
    monkeypatch.setenv(postgres.SETTING, "postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(psycopg.OperationalError):
        postgres.locate()


@pytest.mark.parametrize(("ci", "outcome"), [("true", "errors"), ("", "skipped")])
def test_without_postgres_tests_are_skipped_loudly_but_fail_in_ci(
    ci: str, outcome: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing PostgreSQL is told at the end, and is no success where nobody reads that."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv(postgres.SETTING, "private")
    monkeypatch.setattr(postgres, "find_binaries", lambda: None)
    names = "postgres_server, postgres_url, pytest_terminal_summary"
    pytester.makeconftest(f"from tests.conftest import {names}")
    pytester.makepyfile("def test_needs_it(postgres_url): pass")
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:asyncio")
    result.assert_outcomes(**{outcome: 1})
    told = "no PostgreSQL found; install*"
    result.stdout.fnmatch_lines(f"*{told}" if ci else f"1 skipped: {told}")


def test_blocks_share_a_namespace_and_a_loop(tmp_path: Path) -> None:
    """What one block defines the next one sees, and all that await do so in one event loop."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nevent = asyncio.Event()\nawait asyncio.sleep(0)\n"
        "loop = asyncio.get_running_loop()\n```\n\n- in a list\n\n"
        "  ```python\n  event.set()\n  await event.wait()\n"
        "  same = loop is asyncio.get_running_loop()\n  ```\n\n"
        "```text\nnot Python\n```\n"
    )
    namespace: dict[str, Any] = {}
    markdown.run(markdown.blocks(page, "python"), namespace)
    assert namespace["same"] is True


def test_a_failing_block_names_its_line(tmp_path: Path) -> None:
    """The error of a block says on which page and line it is."""
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nfine = 1\n```\n\n```python\nfine\nmissing\n```\n")
    with pytest.raises(NameError) as caught:
        markdown.run(markdown.blocks(page, "python"), {})
    assert caught.value.__notes__ == ["in the Python block at page.md:8"]
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == (page, 9)
