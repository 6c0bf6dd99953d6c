"""What it takes to look at a line: no more than its length allows, whatever is in it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.agent.shell.parser import parse
from kedge.agent.shell.permissions import asked_of, places

HERE = Path("/work/project")
STEPS_PER_BYTE = 12
"""A byte is a few nodes and words at most, at each of the eight levels that are looked into."""

WRAPPERS = st.sampled_from(
    [
        *(
            "! ",
            "builtin ",
            "busybox ",
            "command ",
            "doas ",
            "env ",
            "env A=1 ",
            "env -i ",
            "exec ",
        ),
        *("ionice -c 3 ", "nice ", "nice -n 5 ", "nohup ", "setsid ", "stdbuf -oL ", "sudo "),
        *("sudo -u x ", "time ", "timeout 5 ", "unbuffer ", "watch ", "watch -n1 ", "xargs "),
        *("xargs -n 1 ", "xargs -I{} ", "xargs env ", "find -exec ", "find . -execdir ", "eval "),
        *(
            "find a -ok ",
            "find . -name x -exec ",
            "bash -c ",
            "sh -ec ",
            "trap ",
            "flock x ",
            "{} ",
        ),
        *(
            "bash -c '",
            "eval '",
            "trap '",
            '"',
            "'",
            "; ",
            "\\; ",
            " + ",
            "$(",
            ")",
            "`",
            "(",
            "{ ",
        ),
        *("-exec ", "xargs -I X sh -c X ", "A=$x ", "env $x ", "{a,b} ", "<<E\n", "\nE\n", "| "),
    ]
)
NESTINGS = st.lists(WRAPPERS, min_size=1, max_size=300).map(lambda bits: "".join(bits) + "ls")


@settings(max_examples=1000, deadline=None)
@given(NESTINGS)
def test_the_steps_grow_with_the_length(line: str) -> None:
    """However the wrappers are nested: none is looked at twice."""
    assert parse(line).steps <= STEPS_PER_BYTE * len(line)


@pytest.mark.parametrize("wrapper", ["find -exec ", "xargs env ", "env ", "eval ", "bash -c '"])
def test_twice_the_line_takes_at_most_twice_the_steps(wrapper: str) -> None:
    """19 of them took ten seconds, and each one more twice as long."""
    once, twice = parse(wrapper * 100 + "ls"), parse(wrapper * 200 + "ls")
    assert twice.steps <= 2 * once.steps + 100
    assert not twice.is_certain


@pytest.mark.parametrize(
    "wrapper", ["find -exec ", "xargs ", "env ", "nice ", "xargs env ", "find . -exec env "]
)
def test_what_is_deep_is_not_understood(wrapper: str) -> None:
    """A few are looked into, and what they run is found; more are asked about."""
    shallow, deep = parse(wrapper * 3 + "rm x"), parse(wrapper * 30 + "rm x")
    assert shallow.is_certain
    assert shallow.commands[-1].text == "rm x"
    assert not deep.is_certain


@pytest.mark.parametrize("bit", ["$(a ", "a $(", "<(a ", '"$(a '])
def test_deep_substitutions_are_not_understood(bit: str) -> None:
    """Each command has the text of all in it, which would be shown, stored and matched."""
    closing = ')"' if '"' in bit else ")"
    for count, is_certain in ((8, True), (2000, False)):
        line = f"ls {bit * count}a{closing * count}"
        parsed = parse(line)
        assert parsed.is_certain is is_certain
        asked = asked_of(line, parsed)
        assert sum(map(len, asked.patterns)) <= 64 * len(line)
        assert len(places(parsed, HERE).paths) <= len(line)


@pytest.mark.parametrize("bit", [")", "((a", "(a)", "$[", "a=(", "<<<", "<>", "for((", "<<E\n"])
def test_what_the_parser_would_read_again_and_again(bit: str) -> None:
    """It is given up after it has read a line a few times, not once for each byte."""
    line = bit * (16_000 // len(bit))
    parsed = parse(f"rm x; {line}")
    assert not parsed.is_certain
    assert parsed.steps <= len(line)
    assert "rm x" in asked_of(f"rm x; {line}", parsed).patterns


def test_a_long_line_of_ordinary_commands_is_understood() -> None:
    """The limits are for lines that nobody writes."""
    line = "grep -n foo src/a.py && sed -n '1,5p' b.py | head -3 > out.txt\n" * 240
    assert len(line) > 15_000
    parsed = parse(line)
    assert parsed.is_certain
    assert len(parsed.commands) == 3 * 240
