"""HTML as plain text, in time that grows with its length, however it is nested or broken.

Nothing here recurses or looks back: markup is cut into tokens from front to back, and what is open
is counted. What comes after 400,000 tags and texts is left out.
"""

import html
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

MOST_TOKENS = 400_000
_CHECKED_EACH = 1_000
_LONGEST_ATTRIBUTES = 8_192

_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_STOP = re.compile(r"[>=]")
_BLANK = re.compile(r"\s*")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]*))?""")
_UNSEEN = dict.fromkeys([*range(9), 11, *range(14, 32), *range(127, 160)])
"""Control characters, which move the cursors of terminals."""
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{8,};?")
"""Python takes no numbers of thousands of digits, and no character has one of eight."""

RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
"""Elements in which there are no tags."""
_READ_RAW = ("title", "textarea", "xmp")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW}
VOID = frozenset(
    (
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
        *("source", "track", "wbr"),
    )
)
BLOCKS = frozenset(
    (
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "caption",
            "center",
            "dd",
            "details",
        ),
        *("dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1"),
        *("h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "legend", "li", "main"),
        *("menu", "nav", "ol", "optgroup", "option", "p", "pre", "search", "section", "select"),
        *("summary", "table", "tbody", "td", "textarea", "tfoot", "th", "thead", "title", "tr"),
        "ul",
    )
)

Stopped: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an element; its attributes are read when they are wanted."""

    name: str
    rest: str

    def attributes(self) -> dict[str, str]:
        """The attributes; of two with one name the first counts."""
        found: dict[str, str] = {}
        for name, value in _ATTRIBUTE.findall(self.rest):
            is_quoted = value[:1] in ('"', "'")
            found.setdefault(name.lower(), decoded(value[1:-1] if is_quoted else value))
        return found


@dataclass(frozen=True, slots=True)
class End:
    """The end of an element."""

    name: str


Token: TypeAlias = Start | End | str


class HtmlWriter(Protocol):
    """Writes a page as something else."""

    dropped: frozenset[str]
    """Elements that are left out with all that is in them."""

    def start(self, tag: Start) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends; it may never have begun."""

    def text(self, text: str) -> None:
        """A text, with its blanks as they are."""


def decoded(text: str) -> str:
    """Text of a page, with its entities as characters."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def write(page: str, writer: HtmlWriter, stopped: Stopped = lambda: False) -> None:
    """Write a page; ends early when `stopped` says so."""
    tokens = _kept(_tokens(page.translate(_UNSEEN)), writer.dropped)
    for count, token in enumerate(tokens):
        if count % _CHECKED_EACH == 0 and stopped():
            return
        if count == MOST_TOKENS:
            writer.text(" [cut: the rest of the page has too much markup]")
            return
        if isinstance(token, str):
            writer.text(decoded(token))
        elif isinstance(token, End):
            writer.end(token.name)
        else:
            writer.start(token)


def _kept(tokens: Iterator[Token], dropped: Collection[str]) -> Iterator[Token]:
    """The tokens that are outside of some elements, which may hold others of their kind."""
    inside, depth = "", 0
    for token in tokens:
        name = token if isinstance(token, str) else token.name
        if depth:
            if isinstance(token, Start) and name == inside:
                depth += not token.rest.endswith("/")
            depth -= isinstance(token, End) and name == inside
            # Counted all the same: a page of nothing else has an end too.
            yield ""
        elif not isinstance(token, Start) or name not in dropped:
            yield token
        elif name not in VOID and name not in RAW and not token.rest.endswith("/"):
            inside, depth = name, 1


def _tokens(page: str) -> Iterator[Token]:
    """The tags and texts of a page; what is cut off at its end is left out, as browsers do."""
    at = 0
    while (found := _MARKUP.search(page, at)) is not None:
        if found.start() > at:
            yield page[at : found.start()]
        at = found.end()
        is_end = page.startswith("/", at)
        name = None if page[at] in "!?" else _NAME.match(page, at + is_end)
        end = _end_of_comment(page, at) if name is None else _end_of_tag(page, name.end())
        if end < 0:
            return
        at = end
        if name is None:
            continue
        tag = name[0].lower()
        if is_end:
            yield End(tag)
            continue
        yield Start(tag, page[name.end() : end - 1][:_LONGEST_ATTRIBUTES])
        if tag in RAW:
            close = _RAW_ENDS[tag].search(page, at)
            if close is None:
                return
            if tag in _READ_RAW:
                yield page[at : close.start()]
            at = close.start()
    if at < len(page):
        yield page[at:]


def _end_of_comment(page: str, at: int) -> int:
    """The place behind a comment, or what browsers take for one; negative without an end."""
    if page.startswith("!--", at):
        found = page.find("-->", at + 1)
        return found + 3 if found >= 0 else -1
    return page.find(">", at) + 1 or -1


def _end_of_tag(page: str, at: int) -> int:
    """The place behind the `>` of a tag, which quoted values may contain; negative without one."""
    while (stop := _STOP.search(page, at)) is not None:
        at = stop.end()
        if stop[0] == ">":
            return at
        blank = _BLANK.match(page, at)
        at = blank.end() if blank else at
        quote = page[at : at + 1]
        if quote and quote in "\"'":
            # A quote that is never closed is only a character; then no later one is searched for.
            at = max(page.find(quote, at + 1), at) + 1
    return -1


def tidy(text: str) -> str:
    """A text with single blanks, in the lines that it has."""
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()


class _Text:
    """Writes the words of a page, a line for each block."""

    dropped = frozenset(
        ("script", "style", "noscript", "iframe", "object", "embed", "template", "svg")
    )

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._pres = 0

    def start(self, tag: Start) -> None:
        """Begin a line."""
        if tag.name in BLOCKS or tag.name == "br":
            self._break()
        self._pres += tag.name == "pre"

    def end(self, name: str) -> None:
        """End a line."""
        if name in BLOCKS:
            self._break()
        if name == "pre" and self._pres:
            self._pres -= 1

    def text(self, text: str) -> None:
        """Go on with the line; preformatted text has lines of its own."""
        if self._pres:
            *whole, last = text.split("\n")
            for line in whole:
                self._lines.append("".join((*self._line, line)).rstrip())
                self._line.clear()
            self._line.append(last)
        else:
            self._line.append(text)

    def _break(self) -> None:
        line = "".join(self._line)
        line = line.rstrip() if self._pres else " ".join(line.split())
        if line:
            self._lines.append(line)
        self._line.clear()

    def written(self) -> str:
        """All of it."""
        self._break()
        return "\n".join(self._lines).strip("\n")


def as_text(page: str, stopped: Stopped = lambda: False) -> str:
    """The words of a page."""
    writer = _Text()
    write(page, writer, stopped)
    return writer.written()
