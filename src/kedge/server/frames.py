"""Events as frames of a stream, in the two forms that clients read; each is encoded once."""

from dataclasses import dataclass
from functools import cached_property

from kedge.domain import wire
from kedge.domain.events import InstanceDisposed, ProjectUpdated
from kedge.engine.events import Event

_GLOBAL = "global"
"""Where events are said to be from that belong to no directory."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What is known of a frame that continues a text."""

    part: str
    offset: int
    text: str
    whole_at: int
    """A reader who has read everything since the frame with this number can just append it."""

    @property
    def end(self) -> int:
        """How long the text is with it."""
        return self.offset + len(self.text)


@dataclass(frozen=True)
class Frame:
    """An event on its way to any number of clients."""

    event: Event
    delta: Delta | None = None
    part: str | None = None
    """The part whose whole content this tells."""

    @cached_property
    def narrow(self) -> bytes:
        """As readers of one directory see it."""
        return sse(self.event.payload, self.event.cursor)

    @cached_property
    def wide(self) -> bytes:
        """As readers of everything see it."""
        return sse(_wrapped(self.event), self.event.cursor)

    @property
    def size(self) -> int:
        """How much of the memory it takes, roughly."""
        return 2 * len(self.event.payload)

    def seen_from(self, directory: str | None) -> bytes:
        """The frame for readers of a directory, or of everything; empty if it is not for them."""
        if directory is None:
            return self.wide
        if self.event.directory != directory or self.event.type == ProjectUpdated.type:
            return b""
        return self.narrow

    def ends(self, directory: str | None) -> bool:
        """Whether it is the last one for readers of a directory."""
        return self.event.type == InstanceDisposed.type and self.event.directory == directory


def sse(data: str, cursor: str | None) -> bytes:
    """One frame; `cursor` is what a client hands back when it comes again."""
    return (f"id: {cursor}\ndata: {data}\n\n" if cursor else f"data: {data}\n\n").encode()


def greeting(payload: str, cursor: str, directory: str | None) -> bytes:
    """A frame of the stream itself, which comes from no place."""
    return sse(payload if directory is not None else f'{{"payload":{payload}}}', cursor)


def _wrapped(event: Event) -> str:
    known = event.directory is not None and event.type != ProjectUpdated.type
    directory = wire.encode(event.directory if known else _GLOBAL)
    project = f'"project":{wire.encode(event.project_id)},' if event.project_id else ""
    return f'{{"directory":{directory},{project}"payload":{event.payload}}}'
