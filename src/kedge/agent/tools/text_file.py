"""The bytes of a file as text that can be edited, and back without any other changes."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

_BOM = "\ufeff"
_SAMPLE = 8000
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))
_MOST_CONTROLS = 0.1


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is not text: it contains a NUL, or many control
    characters."""
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        return True
    return len(sample) - len(sample.translate(None, _CONTROLS)) > _MOST_CONTROLS * len(sample)


@dataclass(frozen=True)
class FileText:
    """A file's text as a model sees it: without a byte order mark, lines end with `\\n`."""

    whole: str
    """As in the file; bytes that are not UTF-8 are surrogates."""

    @classmethod
    def decode(cls, data: bytes) -> "FileText":
        return cls(data.decode(errors="surrogateescape"))

    def encode(self) -> bytes:
        return self.whole.encode(errors="surrogateescape")

    @cached_property
    def plain(self) -> str:
        """What the model sees."""
        return self.whole.removeprefix(_BOM).replace("\r\n", "\n")

    @cached_property
    def line_end(self) -> str:
        """How most lines end."""
        with_return = self.whole.count("\r\n")
        return "\r\n" if with_return * 2 > self.whole.count("\n") else "\n"

    @cached_property
    def _returns(self) -> list[int]:
        """The positions in the plain text of line ends that have a carriage return in the file."""
        found: list[int] = []
        text = self.whole.removeprefix(_BOM)
        at = text.find("\r\n")
        while at >= 0:
            found.append(at - len(found))
            at = text.find("\r\n", at + 2)
        return found

    def replaced(self, spans: list[tuple[int, int, str]]) -> "FileText":
        """The text with these stretches of the plain text, in order, replaced."""
        pieces: list[str] = []
        last = 0
        for start, end, new in spans:
            first, after = self._in_file(start), self._in_file(end)
            pieces += self.whole[last:first], self._with_line_ends(new, start, end)
            last = after
        return FileText("".join([*pieces, self.whole[last:]]))

    def _in_file(self, at: int) -> int:
        mark = len(_BOM) if self.whole.startswith(_BOM) else 0
        return mark + at + bisect_left(self._returns, at)

    def _with_line_ends(self, new: str, start: int, end: int) -> str:
        """With the line ends of the replaced lines, or most of the file's."""
        line = self.plain.find("\n", start, end)
        line_end = self.line_end
        if line >= 0:
            place = bisect_left(self._returns, line)
            is_return = place < len(self._returns) and self._returns[place] == line
            line_end = "\r\n" if is_return else "\n"
        return new.replace("\r\n", "\n").replace("\n", line_end) if line_end != "\n" else new
