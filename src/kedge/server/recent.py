"""What happened lately, kept once for all streams: each has a place in it, none a queue."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kedge.server.frames import Frame

_MOST_FRAMES = 16_384
_MOST_CHARACTERS = 16 * 1024 * 1024
_BATCH = 256 * 1024
"""Bytes that are sent at once, unless a single frame has more."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some frames for one kind of reader, as bytes."""

    data: bytes
    end: int
    """The number of the frame after the last."""
    position: int
    """The last stored event among them, whoever it is for; 0 if there is none."""
    whole_at: int | None
    """Those who have read everything since this frame need no other bytes; None for everybody."""
    is_last: bool
    """Whether the stream ends here."""


class Recent:
    """The newest frames, numbered from 0 on, with a bound on how many there are."""

    def __init__(self, position: int) -> None:
        self.start = 0
        """The oldest frame that is still here."""
        self.end = 0
        """The frame that is to come next."""
        self.position = position
        """Every stored event up to this one was added, or came before the first."""
        self.floor = position
        """Every stored event after this one is still here."""
        self._frames: list[Frame] = []
        self._size = 0
        self._batches: dict[tuple[int, str | None], Batch] = {}

    def add(self, frame: Frame) -> None:
        """One more; the oldest go if there are too many."""
        self._frames.append(frame)
        self._size += frame.size
        self.end += 1
        self.position = max(self.position, frame.event.seq)
        self._batches.clear()
        if self._is_full():
            self._shrink()

    def after(self, seq: int) -> int:
        """The frame to go on with for those who have read the stored events up to this one."""
        assert seq >= self.floor
        for back, frame in enumerate(reversed(self._frames)):
            if 0 < frame.event.seq <= seq:
                return self.end - back
        return self.start

    def batch(self, start: int, directory: str | None) -> Batch:
        """The frames from `start` on, or the first of them, for readers of a directory or all."""
        key = (start, directory)
        found = self._batches.get(key)
        if found is None:
            found = self._batches[key] = self._made(start, directory)
        return found

    def between(self, start: int, end: int) -> Iterator[Frame]:
        """The frames from `start` to before `end`."""
        return islice(self._frames, start - self.start, end - self.start)

    def _made(self, start: int, directory: str | None) -> Batch:
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
        return Batch(b"".join(pieces), end, position, whole_at, is_last)

    def _is_full(self) -> bool:
        crowded = len(self._frames) > _MOST_FRAMES or self._size > _MOST_CHARACTERS
        return crowded and len(self._frames) > 1

    def _shrink(self) -> None:
        # A quarter at once: taking single ones from the front of a list would cost as much each.
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
