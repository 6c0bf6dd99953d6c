"""Every error kedge raises, in families by who must act; their HTTP form is the server's concern.

The docstring of a class is its default message.
"""

import inspect
from typing import Any

from kedge.domain.text import mend_text

# The wire cuts messages at this length; a caller's whole input must never come back in an error.
MESSAGE_LIMIT = 1024


class KedgeError(Exception):
    """Something went wrong in kedge."""

    def __init__(self, message: str = "") -> None:
        super().__init__(mend_text(message or inspect.getdoc(type(self)) or ""))

    @property
    def data(self) -> dict[str, Any]:
        """What a client is told, small and made of JSON values only."""
        return {"message": str(self)[:MESSAGE_LIMIT], **self._details()}

    def _details(self) -> dict[str, Any]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args`, but many subclasses do not take the message.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(
    kind: type[KedgeError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> KedgeError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class CallerError(KedgeError):
    """The request cannot be carried out as it was made."""


class OperatorError(KedgeError):
    """The machine or the configuration needs attention before this can work."""


class InternalError(KedgeError):
    """This is a bug in kedge; please report it."""


class InvalidInput(CallerError):
    """The input is not valid."""

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def _details(self) -> dict[str, Any]:
        return {} if self.field is None else {"field": self.field[:MESSAGE_LIMIT]}


class InvalidId(InvalidInput):
    """The id does not have the form of its kind."""


class InvalidCursor(InvalidInput):
    """The cursor was not made by this server."""


class TooLarge(InvalidInput):
    """The input is larger than kedge accepts."""


class NotFound(CallerError):
    """There is no such thing."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"{kind} not found: {id}")
        self.kind = kind
        self.id = id


class SessionNotFound(NotFound):
    """There is no such session."""

    def __init__(self, id: str) -> None:
        super().__init__("Session", id)


class MessageNotFound(NotFound):
    """There is no such message."""

    def __init__(self, id: str) -> None:
        super().__init__("Message", id)


class PartNotFound(NotFound):
    """There is no such part."""

    def __init__(self, id: str) -> None:
        super().__init__("Part", id)


class DirectoryNotFound(NotFound):
    """There is no such directory."""

    def __init__(self, path: str) -> None:
        super().__init__("Directory", path)
        self.path = path


class SessionBusy(CallerError):
    """The session is running; wait until it is idle, or abort it."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"Session is busy: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class LeaseLost(CallerError):
    """Another process took the session over."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"Another process took over the session: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class TurnAborted(CallerError):
    """Somebody aborted the turn."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"The turn was aborted: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class EngineClosed(CallerError):
    """The engine is closed; open a new one."""


class StoreError(OperatorError):
    """The database failed; its own message says how."""


class StoreUnavailable(StoreError):
    """The database cannot be reached; check that it runs and that its address is right."""


class StoreBusy(StoreError):
    """The database stayed locked for too long; check what else is using it, then try again."""


class StoreCorrupt(StoreError):
    """The database is damaged; keep a copy of it, then restore the newest backup."""


class StoreReadOnly(StoreError):
    """The database cannot be written; check the permissions of its file and of its folder."""


class StoreFull(StoreError):
    """There is no space left for the database; free some, then try again."""


class StoreTooNew(StoreError):
    """A newer kedge wrote this database; upgrade kedge to open it."""


class NetworkFilesystem(StoreError):
    """SQLite is not safe on a network file system; use a local folder, or PostgreSQL."""


class InvariantBroken(InternalError):
    """Something that is always true was not; this is a bug in kedge, please report it."""
