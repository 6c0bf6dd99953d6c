"""Text deltas: how much of a growing text each client has, and how it catches up.

OpenCode's terminal UI appends every delta to the text that it has. So a reader gets a delta only if
it has exactly the text before it, and otherwise the whole part as it is now.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kedge.domain.events import (
    PartDelta,
    PartRemoved,
    PartUpdated,
    SessionIdle,
    frame,
    frame_text,
)
from kedge.domain.ids import IdMaker
from kedge.engine.event_log import Event
from kedge.server.sse.buffer import Delta, Frame

_SPOKEN = ("text", "reasoning")


class _Time(msgspec.Struct, frozen=True):
    end: int | None = None


class _Part(msgspec.Struct, frozen=True):
    id: str
    type: str
    text: str = ""
    time: _Time | None = None


class _Told(msgspec.Struct, frozen=True):
    part: _Part


class _PartFrame(msgspec.Struct, frozen=True):
    properties: _Told


class _DeltaFrame(msgspec.Struct, frozen=True):
    properties: PartDelta


_read_part = msgspec.json.Decoder(_PartFrame)
_read_delta = msgspec.json.Decoder(_DeltaFrame)
_read_any = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder()


@dataclass(slots=True)
class _Text:
    event: Event | None = None
    """The newest event that held the whole part."""
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    shown: int = 0
    """How much of the text readers have that read everything."""
    whole_at: int = 0
    """The frame that last gave them the whole part."""
    whole: Frame | None = None

    def replace(self, text: str) -> None:
        if len(text) >= self.length:
            self.pieces, self.length, self.whole = [text], len(text), None

    def extend(self, offset: int, text: str) -> None:
        if offset <= self.length < offset + len(text):
            self.pieces.append(text[self.length - offset :])
            self.length, self.whole = offset + len(text), None


class GrowingTexts:
    """The parts that are still growing, with all of their text."""

    def __init__(self, ids: IdMaker) -> None:
        self._ids = ids
        self._growing: dict[str, dict[str, _Text]] = {}
        """By session, then by part."""

    def frames(self, event: Event, number: int) -> Iterator[Frame]:
        """The frames of an event; `number` is the number of the first."""
        if event.type == PartDelta.type:
            yield from self._delta(event, number)
        elif event.type == PartUpdated.type:
            yield self._updated(event, number)
        else:
            if event.type == PartRemoved.type:
                removed = _read_any.decode(event.payload)["properties"]["partID"]
                self._texts(event).pop(removed, None)
            elif event.type == SessionIdle.type:
                self._growing.pop(event.session_id or "", None)
            yield Frame(event)

    def whole(self, event: Event, part: str) -> tuple[Frame, int] | None:
        """A part with all of its text, and the length of that, for readers that lack some of it;
        None if the part has stopped growing, because then the log holds all of it."""
        text = self._texts(event).get(part)
        if text is None or text.event is None:
            return None
        if text.whole is None:
            text.whole = self._made_whole(text.event, part, "".join(text.pieces))
        return text.whole, text.length

    def rest(self, frame: Frame, known: int) -> Frame:
        """A delta for readers that already have some of its text."""
        assert frame.delta is not None
        delta = frame.delta
        return self._cut(frame.event, delta.offset, delta.text, known, delta.part, delta.whole_at)

    def _texts(self, event: Event) -> dict[str, _Text]:
        return self._growing.get(event.session_id or "", {})

    def _updated(self, event: Event, number: int) -> Frame:
        part = _read_part.decode(event.payload).properties.part
        if part.type not in _SPOKEN or part.time is None or part.time.end is not None:
            self._texts(event).pop(part.id, None)
            return Frame(event, part=part.id)
        texts = self._growing.setdefault(event.session_id or "", {})
        text = texts.setdefault(part.id, _Text())
        text.event = event
        text.replace(part.text)
        text.shown, text.whole_at = len(part.text), number
        return Frame(event, part=part.id)

    def _delta(self, event: Event, number: int) -> Iterator[Frame]:
        said = _read_delta.decode(event.payload).properties
        offset = event.offset or 0
        texts = self._growing.setdefault(event.session_id or "", {})
        text = texts.setdefault(said.partID, _Text())
        text.extend(offset, said.delta)
        end = offset + len(said.delta)
        if text.event is None or not text.shown < end <= text.length:
            # Nothing new; or a gap, which the next stored state will fill.
            return
        if offset > text.shown:
            whole = self.whole(event, said.partID)
            assert whole is not None
            text.shown, text.whole_at = text.length, number
            yield whole[0]
        else:
            known, text.shown = text.shown, end
            yield self._cut(event, offset, said.delta, known, said.partID, text.whole_at)

    def _cut(
        self, event: Event, offset: int, text: str, known: int, part: str, whole_at: int
    ) -> Frame:
        if known > offset:
            text = text[known - offset :]
            said = _read_delta.decode(event.payload).properties
            fewer = msgspec.structs.replace(said, delta=text)
            event = _unstored(event, frame(self._ids.event(), fewer), PartDelta.type)
        return Frame(event, Delta(part, max(offset, known), text, whole_at))

    def _made_whole(self, event: Event, part: str, text: str) -> Frame:
        properties = _read_any.decode(event.payload)["properties"]
        properties["part"]["text"] = text
        told = _encoder.encode(properties).decode()
        payload = frame_text(self._ids.event(), PartUpdated.type, told)
        return Frame(_unstored(event, payload, PartUpdated.type), part=part)


def _unstored(event: Event, payload: str, type: str) -> Event:
    home = (event.session_id, event.project_id, event.directory)
    return Event(type, payload, None, *home)
