"""Reads Markdown files that begin with settings between two lines of `---`, in a part of YAML.

The part: mappings and lists by indentation, `[…]` and `{…}` on one line, plain and quoted strings,
`|` and `>` blocks, numbers, `true`, `false`, `null` and comments. Anchors, aliases and tags are
errors: nobody needs them here, and they make YAML dangerous to read. A plain value may contain
": ", which YAML refuses and people write.
"""

import json
import re
from typing import Any

_FENCE = "---"
_MOST_LINES = 2000
_MOST_QUOTED = 100
"""Lines that one quoted text may go on for."""
_DEEPEST = 20
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?")
_BLOCK = re.compile(r"([|>])(?:([1-9])?([-+])?|([-+])([1-9]))(?:\s+#.*)?")
_COMMENT = re.compile(r"(?:^|\s)#")
_REFUSED = {
    "&": "anchors are not read",
    "*": "aliases are not read",
    "!": "tags are not read",
    "%": "a value cannot begin with %",
    "@": "a value cannot begin with @",
    "`": "a value cannot begin with a backtick",
}


class FrontMatterError(Exception):
    """The settings of a file cannot be read; the message says why, with the line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


def parts(text: str) -> tuple[dict[str, Any], str]:
    """The settings of a file, and the text after them without blanks around it."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return {}, "\n".join(lines).strip()
    for end, line in enumerate(lines[1:], 1):
        if end > _MOST_LINES:
            raise FrontMatterError(end + 1, f"the settings have more than {_MOST_LINES} lines")
        if line.rstrip() == _FENCE:
            found = _Reader(lines[1:end]).document()
            return found, "\n".join(lines[end + 1 :]).strip()
    raise FrontMatterError(1, "the settings do not end: a line with --- is missing")


class _Reader:
    """Reads the lines between the fences; `at` is the next one."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def document(self) -> dict[str, Any]:
        if self._skip() is None:
            return {}
        found = self._node(self._indent(), 0)
        if self._skip() is not None:
            raise self._error("this line is indented less than the one it belongs to")
        if not isinstance(found, dict):
            self.at = 0
            raise self._error("expected lines of the form `key: value`")
        return found

    def _error(self, why: str) -> FrontMatterError:
        # The first line of the file is the fence.
        return FrontMatterError(min(self.at, len(self.lines)) + 2, why)

    def _skip(self) -> str | None:
        """The next line that says something."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and not line.lstrip().startswith("#"):
                if "\t" in line[: len(line) - len(line.lstrip())]:
                    raise self._error("lines are indented with blanks, not with tabs")
                return line
            self.at += 1
        return None

    def _indent(self) -> int:
        line = self.lines[self.at]
        return len(line) - len(line.lstrip(" "))

    def _node(self, indent: int, depth: int) -> Any:  # noqa: ANN401 - any YAML
        if depth > _DEEPEST:
            raise self._error(f"it is nested more than {_DEEPEST} deep")
        line = self.lines[self.at][indent:]
        return self._list(indent, depth) if _is_item(line) else self._mapping(indent, depth)

    def _is_next(self, indent: int) -> bool:
        """Whether the next line belongs to the collection at this indentation."""
        if self._skip() is None or self._indent() < indent:
            return False
        if self._indent() > indent:
            raise self._error("this line is indented more than the one before it")
        return True

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while self._is_next(indent):
            line = self.lines[self.at][indent:]
            if _is_item(line):
                raise self._error("a list item stands between keys")
            key, rest = self._key(line)
            if key in made:
                raise self._error(f"the key {key!r} is there twice")
            made[key] = self._value(rest, indent, depth, may_hang=True)
        return made

    def _list(self, indent: int, depth: int) -> list[Any]:
        made: list[Any] = []
        while self._is_next(indent):
            line = self.lines[self.at][indent:]
            if not _is_item(line):
                if made and depth:
                    break  # the key after a list that hangs below its key without indentation
                raise self._error("expected a list item, which begins with `- `")
            rest = line[1:].lstrip(" ")
            inner = indent + len(line) - len(rest)
            if rest and (_is_item(rest) or (not _is_flow(rest) and _key_end(rest) is not None)):
                self.lines[self.at] = " " * inner + rest
                made.append(self._node(inner, depth + 1))
            else:
                made.append(self._value(rest, indent, depth, may_hang=False))
        return made

    def _key(self, line: str) -> tuple[str, str]:
        end = _key_end(line)
        if end is None:
            raise self._error("expected `key: value`")
        key, rest = line[:end].rstrip(), line[end + 1 :].strip()
        if key[:1] in "\"'":
            return self._quoted(key), rest
        if not key or key[0] in _REFUSED or key[0] in "[]{},#|>?":
            raise self._error(f"put the key {key!r} in quotes")
        return key, rest

    def _value(self, rest: str, indent: int, depth: int, *, may_hang: bool) -> Any:  # noqa: ANN401
        """What stands behind a key or a dash at this indentation, on its line and below."""
        if block := _BLOCK.fullmatch(rest):
            self.at += 1
            return self._block(block, indent)
        if not rest or rest.startswith("#"):
            self.at += 1
            return self._below(indent, depth, may_hang=may_hang)
        if rest[0] in "[{":
            return self._flow(rest)
        if rest[0] in "\"'":
            return self._quoted_value(rest)
        if rest[0] in _REFUSED:
            raise self._error(f"{_REFUSED[rest[0]]}: put the value in quotes")
        return self._plain(rest, indent)

    def _below(self, indent: int, depth: int, *, may_hang: bool) -> Any:  # noqa: ANN401
        line = self._skip()
        if line is None:
            return None
        found = self._indent()
        hangs = may_hang and found == indent and _is_item(line[found:])
        return self._node(found, depth + 1) if found > indent or hangs else None

    def _plain(self, rest: str, indent: int) -> Any:  # noqa: ANN401 - any scalar
        words = [_uncommented(rest)]
        was_cut = words[0] != rest
        self.at += 1
        while not was_cut and self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            if line.lstrip().startswith("#"):
                break
            words.append(_uncommented(line.strip()))
            was_cut = words[-1] != line.strip()
            self.at += 1
        while words and not words[-1]:
            words.pop()
        if len(words) > 1:
            return _folded(words)
        return _scalar(words[0]) if words else None

    def _quoted_value(self, rest: str) -> str:
        """A quoted text, which may go on over several lines."""
        first, lines = self.at, [rest]
        while _quote_end("\n".join(lines)) is None:
            self.at += 1
            if self.at == len(self.lines) or len(lines) == _MOST_QUOTED:
                self.at = first
                raise self._error("the quotation mark is not closed")
            lines.append(self.lines[self.at].strip())
        text = "\n".join(lines)
        end = _quote_end(text)
        assert end is not None
        if _uncommented(" " + text[end:]).strip():
            raise self._error("there is text behind the closing quotation mark")
        found = self._quoted(_folded(text[:end].split("\n")))
        self.at += 1
        return found

    def _quoted(self, text: str) -> str:
        if len(text) < 2 or _quote_end(text) != len(text):
            raise self._error("the quotation mark is not closed")
        if text[0] == "'":
            return text[1:-1].replace("''", "'")
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            raise self._error("unknown escape in double quotes; use '…' instead") from None

    def _block(self, block: re.Match[str], indent: int) -> str:
        width, chomp = block[2] or block[5], block[3] or block[4]
        lines: list[str] = []
        inner = indent + int(width) if width else 0
        while self.at < len(self.lines):
            line = self.lines[self.at]
            found = len(line) - len(line.lstrip(" "))
            if line.strip():
                inner = inner or found
                if found < inner or inner <= indent:
                    break
            lines.append(line[inner:] if inner else "")
            self.at += 1
        kept = list(lines)
        while kept and not kept[-1].strip():
            kept.pop()
        text = "\n".join(kept) if block[1] == "|" else _folded_block(kept)
        if chomp == "-" or not kept:
            return text
        return text + "\n" * (len(lines) - len(kept) + 1 if chomp == "+" else 1)

    def _flow(self, rest: str) -> Any:  # noqa: ANN401 - any YAML
        found = _Flow(rest, self)
        value = found.value(0)
        if _uncommented(" " + found.text[found.at :]).strip():
            raise self._error("there is text behind the closing bracket")
        self.at += 1
        return value


class _Flow:
    """Reads a list or mapping in brackets on one line."""

    def __init__(self, text: str, reader: _Reader) -> None:
        self.text = text
        self.reader = reader
        self.at = 0

    def value(self, depth: int) -> Any:  # noqa: ANN401 - any YAML
        if depth > _DEEPEST:
            raise self.reader._error(f"it is nested more than {_DEEPEST} deep")
        opening = self._next()
        if opening == "[":
            return self._items("]", depth, lambda: self.value(depth + 1))
        if opening == "{":
            return self._object(depth)
        return _scalar(self._word(",]}")) if opening not in "\"'" else self._string()

    def _object(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}

        def pair() -> None:
            key = self._string() if self._next() in "\"'" else self._word(",]}:")
            if self._next() != ":":
                raise self.reader._error("expected `key: value` in { }")
            self.at += 1
            if key in made:
                raise self.reader._error(f"the key {key!r} is there twice")
            made[key] = None if self._next() in ",}" else self.value(depth + 1)

        self._items("}", depth, pair)
        return made

    def _items(self, closing: str, depth: int, each: Any) -> list[Any]:  # noqa: ANN401
        self.at += 1
        made: list[Any] = []
        while self._next() != closing:
            made.append(each())
            if self._next() == ",":
                self.at += 1
            elif self._next() != closing:
                raise self.reader._error(f"expected `,` or `{closing}`")
        self.at += 1
        return made

    def _next(self) -> str:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        if self.at == len(self.text):
            raise self.reader._error("the bracket is not closed on its line")
        return self.text[self.at]

    def _string(self) -> str:
        end = _quote_end(self.text[self.at :])
        if end is None:
            raise self.reader._error("the quotation mark is not closed")
        start, self.at = self.at, self.at + end
        return self.reader._quoted(self.text[start : self.at])

    def _word(self, stops: str) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self.at += 1
        word = self.text[start : self.at].strip()
        if not word or word[0] in _REFUSED or word[0] in "[{#":
            raise self.reader._error(f"put {word!r} in quotes" if word else "a value is missing")
        return word


def _is_item(line: str) -> bool:
    return line == "-" or line.startswith("- ")


def _is_flow(text: str) -> bool:
    return text[0] in "[{"


def _key_end(line: str) -> int | None:
    """The position of the colon behind a key."""
    if line[:1] in ("'", '"'):
        end = _quote_end(line)
        if end is None:
            return None
        colon = end + len(line[end:]) - len(line[end:].lstrip(" "))
        return colon if re.match(r":(\s|$)", line[colon:]) else None
    found = re.search(r":(?=\s|$)", line)
    comment = _COMMENT.search(line)
    if found is None or (comment is not None and comment.start() < found.start()):
        return None
    return found.start()


def _quote_end(text: str) -> int | None:
    """The position behind the quotation mark that closes the one at the beginning."""
    if text[0] == "'":
        found = re.match(r"'(?:[^']|'')*'(?!')", text)
    else:
        found = re.match(r'"(?:[^"\\]|\\.)*"', text, re.DOTALL)
    return None if found is None else found.end()


def _uncommented(text: str) -> str:
    found = _COMMENT.search(text)
    return (text if found is None else text[: found.start()]).strip()


def _scalar(text: str) -> Any:  # noqa: ANN401 - any scalar
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _folded(lines: list[str]) -> str:
    """Lines of one text: a line end is a blank, and each empty line is a line end."""
    made, breaks = lines[0], 0
    for line in lines[1:]:
        if line.strip():
            made += ("\n" * breaks or " ") + line.strip()
            breaks = 0
        else:
            breaks += 1
    return made


def _folded_block(lines: list[str]) -> str:
    """Lines of a `>` block: those that are indented further keep their line ends."""
    made = ""
    for n, line in enumerate(lines):
        before = lines[n - 1] if n else ""
        if n == 0:
            made = line
        elif not line or not before or line[0] == " " or before[0] == " ":
            # Empty lines between two lines of text: one line end less than there are.
            is_gap = bool(line) and not before and line[0] != " " and _text_before(lines, n)
            made += "" if is_gap else "\n"
            made += line
        else:
            made += " " + line
    return made


def _text_before(lines: list[str], n: int) -> bool:
    """Whether the last line that says something before this one is plain text."""
    said = [line for line in lines[:n] if line]
    return bool(said) and said[-1][0] != " "
