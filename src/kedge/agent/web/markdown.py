"""HTML as Markdown: headings with #, fenced code, lists with -, links and tables."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urljoin

from kedge.agent.web.html import BLOCKS, Start, Stopped, tidy, write

_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "s": "~~", "del": "~~", "code": "`"}
_MARKS |= {"kbd": "`", "samp": "`", "tt": "`"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLANKS = str.maketrans("\t\n\r\f", "    ")
_DEEPEST = 12
"""How deep lists and quotes are indented; what is deeper stands at that depth."""
_MOST_OPEN = 50
"""How many links and marks may be open in one block."""
_MOST_PIECES = 100
"""Texts and tags in a link that goes on over the borders of blocks."""
_LONGEST_LINK = 2_000
_LIKE_MARKDOWN = re.compile(r"^(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|>|```|~~~|---)", re.MULTILINE)
_LIKE_NUMBER = re.compile(r"^(\d{1,9})(?=[.)](?:\s|$))", re.MULTILINE)
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source|highlight)-([\w+#.-]{1,30})")
_NUMBER = re.compile(r"-1|[0-9]{1,6}")
_FENCES = re.compile(r"`{3,}")
_TICKS = re.compile(r"`+")


@dataclass(frozen=True, slots=True)
class _Opened:
    """A link or a mark whose end is to come."""

    name: str
    at: int
    """Where its text begins in the block."""
    link: str = ""


@dataclass(slots=True)
class _List:
    """A list that is open."""

    number: int
    """Of the next item; negative in a list without numbers."""
    width: int = 2
    """How far what belongs to its items is indented."""


class _Markdown:
    """Writes a page block by block."""

    dropped = frozenset(
        ("script", "style", "meta", "link", "iframe", "object", "embed", "template", "svg")
    )

    def __init__(self, base: str) -> None:
        self._join = lru_cache(maxsize=1024)(lambda link: _absolute(base, link))
        self._blocks: list[tuple[str, bool, int]] = []
        """What is written, whether it is an item of a list, which needs no empty line, and how deep
        in quotes it stands."""
        self._inline: list[str] = []
        self._opened: list[_Opened] = []
        self._lists: list[_List] = []
        self._item = ""
        """The mark of an item that has begun, until its first line is written."""
        self._quotes = 0
        self._heading = 0
        self._pre: list[str] | None = None
        self._language = ""
        self._rows: list[list[str]] | None = None
        """The cells of the table that is open."""
        self._in_cell = False

    def text(self, text: str) -> None:
        """Go on with the block."""
        if self._pre is not None:
            self._pre.append(text)
        else:
            self._inline.append(text.translate(_BLANKS))

    def start(self, tag: Start) -> None:
        """Begin a block, a mark or a link."""
        name = tag.name
        if self._pre is not None:
            self._start_in_pre(tag)
        elif name in _HEADINGS and not self._is_in_link:
            self._end_table()
            self._flush()
            self._heading = _HEADINGS[name]
        elif handler := _STARTS.get(name):
            handler(self, tag)
        elif name in _MARKS:
            self._open(_Opened(name, len(self._inline)))
        elif name in BLOCKS:
            self._break()

    def end(self, name: str) -> None:
        """End a block, a mark or a link."""
        if self._pre is not None:
            if name == "pre":
                self._end_pre()
        elif handler := _ENDS.get(name):
            handler(self)
        elif name in _MARKS or name == "a":
            self._close(name)
        elif name in BLOCKS:
            self._break()

    def written(self) -> str:
        """All of it."""
        if self._pre is not None:
            self._end_pre()
        self._end_table()
        self._flush()
        pieces: list[str] = []
        was_item, above = False, 0
        for block, is_item, quotes in self._blocks:
            between = "" if is_item and was_item else f"{'> ' * min(above, quotes)}".rstrip() + "\n"
            pieces += ["\n", between, block]
            was_item, above = is_item, quotes
        return "".join(pieces[2:])

    # Blocks.

    def _break(self) -> None:
        """The border of a block; inside of a cell or of a link all is one line."""
        if self._rows is None and not self._is_in_link:
            self._flush()
        else:
            self._inline.append(" ")

    @property
    def _is_in_link(self) -> bool:
        """Whether a link is open; one that holds much was left open by mistake."""
        return any(
            each.link and len(self._inline) - each.at < _MOST_PIECES for each in self._opened
        )

    def _flush(self) -> None:
        """Write the block that is open, if there is anything in it."""
        self._opened.clear()
        if not self._inline:
            return
        text = tidy("".join(self._inline))
        self._inline.clear()
        if not text:
            return
        if self._heading:
            text = f"{'#' * self._heading} {' '.join(text.split())}"
            self._heading = 0
        else:
            text = _LIKE_NUMBER.sub(r"\1\\", _LIKE_MARKDOWN.sub(r"\\", text))
        self._write(text)

    def _write(self, block: str) -> None:
        """Put a block where it stands: in quotes and items of lists."""
        mark, self._item = self._item, ""
        widths = [each.width for each in self._lists[:_DEEPEST]]
        rest = " " * sum(widths)
        first = " " * sum(widths[:-1]) + mark if mark else rest
        quotes = min(self._quotes, _DEEPEST)
        quote = "> " * quotes
        first_line, *lines = block.split("\n")
        shown = [f"{quote}{first}{first_line}", *(f"{quote}{rest}{line}" for line in lines)]
        self._blocks.append(("\n".join(line.rstrip() for line in shown), bool(mark), quotes))

    def _start_list(self, tag: Start) -> None:
        self._break()
        first = tag.attributes().get("start", "") if tag.name == "ol" else "-1"
        self._lists.append(_List(int(first) if _NUMBER.fullmatch(first) else 1))

    def _end_list(self) -> None:
        self._break()
        if self._lists:
            self._lists.pop()
        self._item = ""

    def _start_item(self, _: Start) -> None:
        self._break()
        if not self._lists:
            return
        own = self._lists[-1]
        self._item = "- " if own.number < 0 else f"{own.number}. "
        own.number += own.number >= 0
        own.width = len(self._item)

    def _start_quote(self, _: Start) -> None:
        self._break()
        self._quotes += 1

    def _end_quote(self) -> None:
        self._break()
        self._quotes = max(0, self._quotes - 1)

    def _rule(self, _: Start) -> None:
        self._break()
        if self._rows is None:
            self._write("---")

    # Code.

    def _start_pre(self, tag: Start) -> None:
        self._end_table()
        self._flush()
        self._pre, self._language = [], _language(tag)

    def _start_in_pre(self, tag: Start) -> None:
        assert self._pre is not None
        if tag.name == "br":
            self._pre.append("\n")
        elif tag.name == "code" and not self._language:
            self._language = _language(tag)

    def _end_pre(self) -> None:
        code = "".join(self._pre or ()).replace("\r", "").strip("\n")
        self._pre = None
        if code.strip():
            longest = max((len(each) for each in _FENCES.findall(code)), default=2)
            fence = "`" * (longest + 1)
            self._write(f"{fence}{self._language}\n{code}\n{fence}")

    # Inside of blocks.

    def _new_line(self, _: Start) -> None:
        self._inline.append("\n" if self._rows is None else " ")

    def _start_link(self, tag: Start) -> None:
        self._close("a")
        link = self._join(tag.attributes().get("href", "")[: _LONGEST_LINK + 1])
        self._open(_Opened("a", len(self._inline), link))

    def _image(self, tag: Start) -> None:
        given = tag.attributes()
        words = " ".join(given.get("alt", "").split())
        link = self._join(given.get("src", "")[: _LONGEST_LINK + 1])
        self._inline.append(f"![{words}]({link})" if link else words)

    def _open(self, opened: _Opened) -> None:
        if len(self._opened) < _MOST_OPEN:
            self._opened.append(opened)

    def _close(self, name: str) -> None:
        """Put the marks around the text since the start of an element, and close what is open
        inside of it."""
        places = [n for n, each in enumerate(self._opened) if each.name == name]
        if not places:
            return
        opened = self._opened[places[-1]]
        del self._opened[places[-1] :]
        text = "".join(self._inline[opened.at :])
        words = text.strip()
        if words:
            before = text[: len(text) - len(text.lstrip())]
            after = text[len(text.rstrip()) :]
            self._inline[opened.at :] = [before, _marked(words, opened), after]

    # Tables.

    def _start_table(self, _: Start) -> None:
        # A table in another is one that is there for the layout of the page.
        self._end_table()
        self._flush()
        self._rows = []

    def _start_row(self, _: Start) -> None:
        self._end_cell()
        if self._rows is not None:
            self._rows.append([])

    def _start_cell(self, _: Start) -> None:
        self._end_cell()
        self._in_cell = True

    def _end_cell(self) -> None:
        """Take what was written since the last cell, in pages that end none too."""
        if self._rows is None:
            self._flush()
            return
        text = " ".join("".join(self._inline).split()).replace("|", "\\|")
        self._inline.clear()
        self._opened.clear()
        if self._in_cell or text:
            self._rows = self._rows or [[]]
            self._rows[-1].append(text)
        self._in_cell = False

    def _end_caption(self) -> None:
        rows, self._rows = self._rows, None
        self._flush()
        self._rows = rows

    def _end_table(self) -> None:
        if self._rows is not None:
            self._end_cell()
        rows, self._rows = [row for row in self._rows or () if any(row)], None
        if len(rows) > 1 and max(map(len, rows)) > 1:
            first, *others = rows
            shown = [first, ["---"] * len(first), *others]
            self._write("\n".join(f"| {' | '.join(row)} |" for row in shown))
        else:
            for row in rows:
                for cell in filter(None, row):
                    self._write(cell.replace("\\|", "|"))


def _absolute(base: str, link: str) -> str:
    """Where a link leads; empty for one that leads nowhere else."""
    if not link or len(link) > _LONGEST_LINK or link.startswith("#"):
        return ""
    try:
        led = urljoin(base, link.strip())
    except ValueError:
        return ""
    if not led.startswith(("http://", "https://", "mailto:")):
        return ""
    return led.translate({32: "%20", 40: "%28", 41: "%29", 60: "%3C", 62: "%3E"})


def _marked(words: str, opened: _Opened) -> str:
    if opened.name == "a":
        return f"[{words}]({opened.link})" if opened.link else words
    mark = _MARKS[opened.name]
    if mark != "`":
        return f"{mark}{words}{mark}"
    ticks = max((len(each) for each in _TICKS.findall(words)), default=0)
    fence = "`" * (ticks + 1)
    room = " " if ticks else ""
    return f"{fence}{room}{words}{room}{fence}"


def _language(tag: Start) -> str:
    found = _LANGUAGE.search(tag.attributes().get("class", ""))
    return found[1] if found else ""


_STARTS: dict[str, Callable[[_Markdown, Start], None]] = {
    "ul": _Markdown._start_list,
    "ol": _Markdown._start_list,
    "menu": _Markdown._start_list,
    "li": _Markdown._start_item,
    "blockquote": _Markdown._start_quote,
    "hr": _Markdown._rule,
    "pre": _Markdown._start_pre,
    "br": _Markdown._new_line,
    "a": _Markdown._start_link,
    "img": _Markdown._image,
    "table": _Markdown._start_table,
    "tr": _Markdown._start_row,
    "td": _Markdown._start_cell,
    "th": _Markdown._start_cell,
}
_ENDS: dict[str, Callable[[_Markdown], None]] = {
    "ul": _Markdown._end_list,
    "ol": _Markdown._end_list,
    "menu": _Markdown._end_list,
    "blockquote": _Markdown._end_quote,
    "td": _Markdown._end_cell,
    "th": _Markdown._end_cell,
    "tr": _Markdown._end_cell,
    "caption": _Markdown._end_caption,
    "table": _Markdown._end_table,
}


def as_markdown(page: str, base: str, stopped: Stopped = lambda: False) -> str:
    """A page as Markdown; `base` is its URL."""
    writer = _Markdown(base)
    write(page, writer, stopped)
    return writer.written()
