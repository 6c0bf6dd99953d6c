"""Finds whose the lines of a version are: walks back from version to version, with the lines that
are not found in an older one left to who wrote the newer.

A version that a revert wrote has several others to take lines from, so each line is looked for in
what was on disk, and then in the versions that the revert restored from. No I/O except through the
function that reads blobs.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kedge.engine.blame.versions import UNKNOWN, Version, Versions, Writer
from kedge.snapshot.diffs.lines import Match, matching_lines, split_lines

Read: TypeAlias = Callable[[str], bytes | None]
"""The content of a blob; None if it is not kept any more."""


_MOST_CONTENTS = 8
"""A walk needs few contents at once."""
_MOST_TRIED = 100
"""Versions in which the lines of a revert are looked for that are in none of the likely ones."""


class _Lines(NamedTuple):
    """Neighbouring lines of a version whose writers are wanted."""

    at: int
    """The first one in the version."""
    to: int
    """Where it is in the result."""
    length: int


class _Node(NamedTuple):
    """A version of a path."""

    path: bytes
    at: int


@dataclass(frozen=True, slots=True)
class Sources:
    """All that lines may come from."""

    paths: Mapping[bytes, Versions]
    read: Read
    known: Callable[[bytes], Sequence[Writer] | None]
    """The writers of all lines of a version, by its key, if they were found before."""


def writers_of(path: bytes, index: int, sources: Sources) -> list[Writer]:
    """The writer of each line of a version, which can be read."""
    return _Walk(sources).walk(_Node(path, index))


class _Walk:
    """One walk back."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._result: list[Writer] = []
        self._pending: dict[_Node, list[_Lines]] = {}
        self._queue: list[tuple[int, int, _Node]] = []
        self._contents: dict[str, bytes | None] = {}

    def walk(self, start: _Node) -> list[Writer]:
        count = len(split_lines(self._content(start) or b""))
        self._result = [UNKNOWN] * count
        self._hand_on(start, [_Lines(0, 0, count)] if count else [])
        while self._queue:
            _, _, node = heapq.heappop(self._queue)
            lines = self._pending.pop(node, [])
            if lines:
                self._look(node, sorted(lines))
        return self._result

    def _look(self, node: _Node, lines: list[_Lines]) -> None:
        version = self._version(node)
        known = self._sources.known(version.key)
        if known is not None:
            for each in lines:
                self._result[each.to : each.to + each.length] = known[
                    each.at : each.at + each.length
                ]
            return
        new = self._content(node) or b""
        below = self._readable_below(node)
        # What happened since the last version that can be read.
        since = [self._sources.paths[node.path].versions[each] for each in _between(below, node)]
        if below is not None:
            lines = self._take(lines, below, new)
        for source in self._restored(node, since):
            if not lines:
                return
            lines = self._take(lines, source, new)
        if lines and version.gone:
            lines = self._take_moved(lines, node, new)
        writers = {each.writer for each in since}
        self._settle(lines, writers.pop() if len(writers) == 1 else UNKNOWN)

    def _take(self, lines: list[_Lines], source: _Node, new: bytes) -> list[_Lines]:
        """Hand lines on that are in another version too; return the others."""
        found, left = _split(lines, matching_lines(self._content(source) or b"", new))
        self._hand_on(source, found)
        return left

    def _take_moved(self, lines: list[_Lines], node: _Node, new: bytes) -> list[_Lines]:
        """The same for a file that was moved: the one that it is most like, if half of it is."""
        version = self._version(node)
        most, best = len(split_lines(new)) / 2, None
        for gone in version.gone:
            other = self._sources.paths.get(gone.path)
            index = None if other is None else other.found_by(version)
            if index is None:
                continue
            source = _Node(gone.path, index)
            old = self._content(source)
            if old is None:
                continue
            count = sum(match.length for match in matching_lines(old, new))
            if count >= most and (best is None or count > most):
                most, best = count, source
        return lines if best is None else self._take(lines, best, new)

    def _restored(self, node: _Node, since: Sequence[Version]) -> Iterator[_Node]:
        """The versions that lines of a revert may come from."""
        if not any(version.is_plan for version in since):
            return
        likely = [index for version in since for index in version.restores]
        # A line that is restored was there before, whatever is known of the revert.
        others = range(node.at - 1, max(-1, node.at - 1 - _MOST_TRIED), -1)
        for index in dict.fromkeys((*likely, *others)):
            source = _Node(node.path, index)
            if index < node.at and self._content(source) is not None:
                yield source

    def _readable_below(self, node: _Node) -> _Node | None:
        """The newest older version that can be read; None if there is none."""
        for index in range(node.at - 1, -1, -1):
            below = _Node(node.path, index)
            if self._content(below) is not None:
                return below
        return None

    def _hand_on(self, node: _Node, lines: list[_Lines]) -> None:
        if not lines:
            return
        if node not in self._pending:
            heapq.heappush(self._queue, (-self._version(node).number, -node.at, node))
        self._pending.setdefault(node, []).extend(lines)

    def _settle(self, lines: list[_Lines], writer: Writer) -> None:
        for each in lines:
            self._result[each.to : each.to + each.length] = [writer] * each.length

    def _version(self, node: _Node) -> Version:
        return self._sources.paths[node.path].versions[node.at]

    def _content(self, node: _Node) -> bytes | None:
        blob = self._version(node).blob
        if blob is None:
            return b""
        if blob not in self._contents:
            if len(self._contents) >= _MOST_CONTENTS:
                self._contents.pop(next(iter(self._contents)))
            self._contents[blob] = self._sources.read(blob)
        return self._contents[blob]


def _between(below: _Node | None, node: _Node) -> range:
    return range(0 if below is None else below.at + 1, node.at + 1)


def _split(lines: Sequence[_Lines], matches: Sequence[Match]) -> tuple[list[_Lines], list[_Lines]]:
    """Lines of a newer version as lines of an older one, and those that it does not have."""
    found: list[_Lines] = []
    left: list[_Lines] = []
    start = 0
    for at, to, length in lines:
        end, done = at + length, at
        while start < len(matches) and matches[start].new + matches[start].length <= at:
            start += 1
        for index in range(start, len(matches)):
            match = matches[index]
            if match.new >= end:
                break
            first, last = max(done, match.new), min(end, match.new + match.length)
            if first > done:
                left.append(_Lines(done, to + done - at, first - done))
            found.append(_Lines(match.old + first - match.new, to + first - at, last - first))
            done = last
        if done < end:
            left.append(_Lines(done, to + done - at, end - done))
    return found, left
