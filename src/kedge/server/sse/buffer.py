"""A buffer of the newest events as encoded frames, shared by all clients."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from kedge.domain import wire
from kedge.domain.events import InstanceDisposed, ProjectUpdated
from kedge.engine.event_log import Event

_GLOBAL = "global"
"""The directory given for events that belong to no directory."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The position of a frame that continues a text."""

    part: str
    offset: int
    text: str
    whole_at: int
    """A reader that has read everything since the frame with this number can simply append it."""

    @property
    def end(self) -> int:
        """The length of the text including it."""
        return self.offset + len(self.text)


@dataclass(frozen=True)
class Frame:
    """An event, encoded for any number of clients."""

    event: Event
    delta: Delta | None = None
    part: str | None = None
    """The part whose whole content this frame holds."""

    @cached_property
    def narrow(self) -> bytes:
        """As sent to readers of one directory."""
        return sse(self.event.payload, self.event.cursor)

    @cached_property
    def wide(self) -> bytes:
        """As sent to readers of all directories."""
        return sse(_wrapped(self.event), self.event.cursor)

    @property
    def size(self) -> int:
        """Roughly how much memory it takes."""
        return 2 * len(self.event.payload)

    def seen_from(self, directory: str | None) -> bytes:
        """The frame for readers of a directory, or of all; empty if it does not concern them."""
        if directory is None:
            return self.wide
        if self.event.directory != directory or self.event.type == ProjectUpdated.type:
            return b""
        return self.narrow

    def ends(self, directory: str | None) -> bool:
        """Whether it is the last frame for readers of a directory."""
        return self.event.type == InstanceDisposed.type and self.event.directory == directory


def sse(data: str, cursor: str | None) -> bytes:
    """One frame; `cursor` is what a client sends back when it reconnects."""
    return (f"id: {cursor}\ndata: {data}\n\n" if cursor else f"data: {data}\n\n").encode()


def greeting(payload: str, cursor: str, directory: str | None) -> bytes:
    """A frame of the stream itself, which belongs to no directory."""
    return sse(payload if directory is not None else f'{{"payload":{payload}}}', cursor)


def _wrapped(event: Event) -> str:
    known = event.directory is not None and event.type != ProjectUpdated.type
    directory = wire.encode(event.directory if known else _GLOBAL)
    project = f'"project":{wire.encode(event.project_id)},' if event.project_id else ""
    return f'{{"directory":{directory},{project}"payload":{event.payload}}}'


_MOST_FRAMES = 16_384
_MOST_CHARACTERS = 16 * 1024 * 1024
_BATCH = 256 * 1024
"""Bytes that are sent together, unless a single frame is larger."""


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Consecutive frames for one kind of reader, as bytes."""

    data: bytes
    end: int
    """The number of the frame after the last."""
    position: int
    """The last stored event among them, whether or not these readers see it; 0 if there is none."""
    whole_at: int | None
    """Readers that have read everything since this frame can take the bytes as they are; None if
    all readers can."""
    is_last: bool
    """Whether the stream ends here."""


class Recent:
    """The newest frames, numbered from 0 on, with a bound on their number."""

    def __init__(self, position: int) -> None:
        self.start = 0
        """The oldest frame still in the buffer."""
        self.end = 0
        """The number of the next frame."""
        self.position = position
        """Every stored event up to this one was added, or is older than the buffer."""
        self.floor = position
        """Every stored event after this one is still in the buffer."""
        self._frames: list[Frame] = []
        self._size = 0
        self._batches: dict[tuple[int, str | None], FrameBatch] = {}

    def add(self, frame: Frame) -> None:
        """Add a frame, and drop the oldest ones if there are too many."""
        self._frames.append(frame)
        self._size += frame.size
        self.end += 1
        self.position = max(self.position, frame.event.seq)
        self._batches.clear()
        if self._is_full():
            self._shrink()

    def after(self, seq: int) -> int:
        """The frame at which to continue for readers that have read the stored events up to this
        one."""
        assert seq >= self.floor
        for back, frame in enumerate(reversed(self._frames)):
            if 0 < frame.event.seq <= seq:
                return self.end - back
        return self.start

    def batch(self, start: int, directory: str | None) -> FrameBatch:
        """The frames from `start` on, up to a batch, for readers of a directory or of all."""
        key = (start, directory)
        found = self._batches.get(key)
        if found is None:
            found = self._batches[key] = self._made(start, directory)
        return found

    def between(self, start: int, end: int) -> Iterator[Frame]:
        """The frames from `start` to before `end`."""
        return islice(self._frames, start - self.start, end - self.start)

    def _made(self, start: int, directory: str | None) -> FrameBatch:
        pieces: list[bytes] = []
        size = 0
        end = start
        position = 0
        whole_at: int | None = None
        is_last = False
        for frame in self.between(start, self.end):
            end += 1
            position = max(position, frame.event.seq)
            if not (piece := frame.seen_from(directory)):
                continue
            pieces.append(piece)
            size += len(piece)
            if frame.delta is not None:
                least = frame.delta.whole_at
                whole_at = least if whole_at is None else min(whole_at, least)
            is_last = frame.ends(directory)
            if is_last or size >= _BATCH:
                break
        return FrameBatch(b"".join(pieces), end, position, whole_at, is_last)

    def _is_full(self) -> bool:
        crowded = len(self._frames) > _MOST_FRAMES or self._size > _MOST_CHARACTERS
        return crowded and len(self._frames) > 1

    def _shrink(self) -> None:
        # A quarter at once: removing one from the front of a list costs as much each time.
        gone = 0
        while len(self._frames) - gone > 1 and (
            len(self._frames) - gone > _MOST_FRAMES * 3 // 4
            or self._size > _MOST_CHARACTERS * 3 // 4
        ):
            self._size -= self._frames[gone].size
            self.floor = max(self.floor, self._frames[gone].event.seq)
            gone += 1
        del self._frames[:gone]
        self.start += gone
