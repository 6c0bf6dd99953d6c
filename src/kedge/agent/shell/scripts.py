"""The scripts of sed and awk: whether they do more than print what they read."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class SedCommand(NamedTuple):
    """One command of a sed script with an effect outside of the script."""

    letter: str
    argument: str


_ADDRESS = re.compile(r"[\s;{}!,+~$\d]*")
_EXPRESSION = r"(?:\\[\s\S]|[^\\\n{0}])*"
_ALONE = "=dDgGhHnNpPxzFqQlLv"
_TO_THE_END = re.compile(r"(?:\\\n|[^\n])*")
_LINE = re.compile(r"[^\n]*")
_LABEL = re.compile(r"[^\n;}]*")
_FLAGS = re.compile(r"[gpiImM\de]*")
_EXPRESSIONS = re.compile(
    r"/(?>\\.|\[\^?\]?(?>\\.|\[:\w+:\]|[^\]\\\n])*+\]|[^/\\\n\[])++/",
)
_TOKENS = re.compile(r'"(?:\\[\s\S]|[^"\\])*"|#[^\n]*|\\\r?\n|[A-Za-z_]\w*|[ \t]+|\+\+|--')
_AWK_KEYWORDS = frozenset(
    {"case", "delete", "do", "else", "exit", "getline", "in", "print", "printf", "return"}
)
_DEEPEST = 16
_BRACKETS = re.compile(r"\([^()]*\)")
_GOES_ON = re.compile(r"(,|&&|\|\|)\s*\n")
_DEVICES = ('"/dev/stderr"', '"/dev/stdout"', '"/dev/null"')
_TO_DEVICE = '"-"'
_AWK_RUNS = re.compile(r"system\s*\(|getline|@load|@include|\|&|(?<!\|)\|(?!\|)|ENVIRON|@\w+\s*\(")
_AWK_WRITES = re.compile(r'print[^;}\n]*>(?!\s*"-"\s*(?:[;}\n]|$))')


def sed_commands(script: str) -> list[SedCommand] | None:
    """What a sed script runs, reads and writes; None if it is not understood."""
    found: list[SedCommand] = []
    at = 0
    while True:
        end = _after_addresses(script, at)
        if end is None:
            return None
        if end >= len(script):
            return found
        letter, at = script[end], end + 1
        read = _read(letter, script, at)
        if read is None:
            return None
        at, more = read
        found += more


def _after_addresses(script: str, at: int) -> int | None:
    while at < len(script):
        match = _ADDRESS.match(script, at)
        at = match.end() if match else at
        begin = script[at : at + 1]
        if begin not in ("/", "\\"):
            return at
        delimiter = begin if begin == "/" else script[at + 1 : at + 2]
        after = _after_expression(script, at + len(begin) + (begin == "\\"), delimiter)
        if after is None:
            return None
        at = after
        while script[at : at + 1] in ("I", "M"):
            at += 1
    return at


def _after_expression(script: str, at: int, delimiter: str) -> int | None:
    if not delimiter or delimiter in "\\\n":
        return None
    expression = re.compile(_EXPRESSION.format(re.escape(delimiter)) + re.escape(delimiter))
    match = expression.match(script, at)
    return match.end() if match else None


def _read(letter: str, script: str, at: int) -> tuple[int, list[SedCommand]] | None:
    """Where a command ends, and its relevant part."""
    if letter in _ALONE:
        return at, []
    if letter == "#":
        return _end(_LINE, script, at), []
    if letter in ":btT":
        return _end(_LABEL, script, at), []
    if letter in "aic":
        return _end(_TO_THE_END, script, at), []
    if letter in "rRwWe":
        end = _end(_LINE, script, at)
        return end, [SedCommand(letter, script[at:end].strip())]
    return _read_exchange(letter, script, at) if letter in "sy" else None


def _read_exchange(letter: str, script: str, at: int) -> tuple[int, list[SedCommand]] | None:
    delimiter = script[at : at + 1]
    middle = _after_expression(script, at + 1, delimiter)
    end = None if middle is None else _after_expression(script, middle, delimiter)
    if end is None:
        return None
    if letter == "y":
        return end, []
    after = _end(_FLAGS, script, end)
    found = [SedCommand("e", "")] if "e" in script[end:after] else []
    if script[after : after + 1] == "w":
        line = _end(_LINE, script, after)
        return line, [*found, SedCommand("w", script[after + 1 : line].strip())]
    return after, found


def _end(pattern: re.Pattern[str], script: str, at: int) -> int:
    match = pattern.match(script, at)
    return match.end() if match else at


def awk_does_more(program: str) -> Iterator[str]:
    """The effects of an awk program besides printing: `runs`, `writes`."""
    bare, is_doubtful = _bare(program)
    if _AWK_RUNS.search(bare) or (is_doubtful and _AWK_RUNS.search(program)):
        yield "runs"
    for _ in range(_DEEPEST):
        # Inside parentheses it is a comparison.
        bare = _BRACKETS.sub(" ", bare)
    if _AWK_WRITES.search(_GOES_ON.sub(r"\1 ", bare)):
        yield "writes"


def _bare(program: str) -> tuple[str, bool]:
    """A program without the contents of its strings, regular expressions and comments, and whether
    it is uncertain where these are."""
    found: list[str] = []
    is_doubtful = False
    before = ""
    at = 0
    while at < len(program):
        is_operand = before[-1:].isalnum() or before[-1:] in ("_", ")", "]", '"', "+", "-")
        is_operand = is_operand and before not in _AWK_KEYWORDS
        expression = None if is_operand else _EXPRESSIONS.match(program, at)
        token = expression or _TOKENS.match(program, at)
        text = program[at : at + 1] if token is None else token[0]
        if text == '"' or (text == "/" and not is_operand):
            # It does not end.
            return "".join([*found, program[at:]]), True
        at += len(text)
        if expression is not None:
            # Some implementations end it at a slash in brackets.
            is_doubtful |= "/" in text[1:-1].replace("\\/", "")
            text = '""'
        elif text.startswith('"'):
            text = _TO_DEVICE if text in _DEVICES else '""'
        elif text.startswith("#"):
            text = ""
        elif text == "/":
            is_doubtful |= before in (")", "length") or before[-1:] in ("+", "-")
        elif text.startswith("\\"):
            text = " "
        found.append(text)
        if text.strip(" \t\r"):
            before = '"' if text == _TO_DEVICE else text
    return "".join(found), is_doubtful
