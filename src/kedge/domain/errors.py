"""All errors that kedge raises, in families by who must act; the server decides their HTTP form.

The docstring of a class is its default message.
"""

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

from kedge.domain.text import mend_text

# The wire cuts messages at this length; an error must never repeat a caller's whole input.
MESSAGE_LIMIT = 1024
_MOST_NAMED = 20


class KedgeError(Exception):
    """Something went wrong in kedge."""

    def __init__(self, message: str = "") -> None:
        super().__init__(mend_text(message or inspect.getdoc(type(self)) or ""))

    @property
    def data(self) -> dict[str, Any]:
        """Details for a client, small and made of JSON values only."""
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


class MessageExists(InvalidInput):
    """There is a message with this id already; it is not written over."""

    def __init__(self, id: str) -> None:
        super().__init__(f"a message {id} exists already", field="message_id")
        self.id = id


class PathRefused(InvalidInput):
    """kedge does not touch this path."""


class InvalidPath(InvalidInput):
    """No file has such a path, or what is there is of another kind."""


class SearchFailed(InvalidInput):
    """The search cannot be made as it was asked for."""


def _similar(id: str, known: Sequence[str]) -> str:
    """What there is instead, the nearest name first."""
    near = difflib.get_close_matches(str(id)[:100], known, n=1)
    meant = f"did you mean {near[0]}? There are" if near else "there are"
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"{meant} {', '.join(known[:_MOST_NAMED])}{more}" if known else ""


class NotFound(CallerError):
    """There is no such thing."""

    def __init__(self, kind: str, id: str, why: str = "") -> None:
        super().__init__(f"{kind} not found: {id}" + (f": {why}" if why else ""))
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


class CallNotFound(NotFound):
    """There is no such tool call in this session."""

    def __init__(self, id: str) -> None:
        super().__init__("Call", id)


class ProjectNotFound(NotFound):
    """There is no such project."""

    def __init__(self, id: str) -> None:
        super().__init__("Project", id)

    def _details(self) -> dict[str, Any]:
        return {"projectID": self.id[:MESSAGE_LIMIT]}


class DirectoryNotFound(NotFound):
    """There is no such directory."""

    def __init__(self, path: str) -> None:
        super().__init__("Directory", path, "name a folder that exists, or create it")
        self.path = path


class ModelNotFound(NotFound):
    """There is no such model."""

    def __init__(self, provider: str, model: str, near: Sequence[str] = ()) -> None:
        why = f"did you mean {', '.join(near)}?" if near else ""
        super().__init__("Model", f"{provider}/{model}".rstrip("/"), why)
        self.provider = provider
        self.model = model
        self.near = tuple(near)

    def _details(self) -> dict[str, Any]:
        return {
            "providerID": self.provider[:MESSAGE_LIMIT],
            "modelID": self.model[:MESSAGE_LIMIT],
            "near": list(self.near),
        }


class TailNotFound(NotFound):
    """There is no such tail."""

    def __init__(self, id: str) -> None:
        super().__init__("Tail", id)


class PermissionNotFound(NotFound):
    """This permission request is not open: it was answered, or its turn has ended."""

    def __init__(self, id: str) -> None:
        super().__init__("Permission request", id)

    def _details(self) -> dict[str, Any]:
        return {"requestID": self.id[:MESSAGE_LIMIT]}


class QuestionNotFound(NotFound):
    """This question is not open: it was answered, or its turn has ended."""

    def __init__(self, id: str) -> None:
        super().__init__("Question request", id)

    def _details(self) -> dict[str, Any]:
        return {"requestID": self.id[:MESSAGE_LIMIT]}


class AgentNotFound(NotFound):
    """There is no such agent."""

    def __init__(self, id: str, known: Sequence[str] = ()) -> None:
        super().__init__("Agent", id, _similar(id, known))


class CommandNotFound(NotFound):
    """There is no such command."""

    def __init__(self, id: str, known: Sequence[str] = ()) -> None:
        super().__init__("Command", id, _similar(id, known))


class SnapshotNotFound(NotFound):
    """There is no such snapshot."""

    def __init__(self, id: str, why: str = "") -> None:
        super().__init__("Snapshot", id, why)


class PathNotFound(NotFound):
    """There was no such file at that time."""

    def __init__(self, path: str) -> None:
        super().__init__("File", path)


class PathUncovered(CallerError):
    """It is not known what was at this path: the snapshot does not cover it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"it is not known what was at {path}: it was {reason}")
        self.path = path
        self.reason = reason

    def _details(self) -> dict[str, Any]:
        return {"path": mend_text(self.path)[:MESSAGE_LIMIT], "reason": self.reason}


class SessionBusy(CallerError):
    """The session is running; wait until it is idle, or abort it."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"Session is busy: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class FileChanged(CallerError):
    """The file is not what the session last read or wrote; read it again first."""

    def __init__(self, path: str, *, known: bool) -> None:
        why = "it changed since you read it: read it again" if known else "read it first"
        super().__init__(f"{path} was not written: {why}")
        self.path = path
        self.known = known
        """Whether the session has read or written the file at all."""

    def _details(self) -> dict[str, Any]:
        return {"path": mend_text(self.path)[:MESSAGE_LIMIT]}


class FileBusy(CallerError):
    """Another session or process is writing the file; wait until it is done, then try again."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Another session or process is writing the file: {path}")
        self.path = path

    def _details(self) -> dict[str, Any]:
        return {"path": mend_text(self.path)[:MESSAGE_LIMIT]}


class QuestionRejected(CallerError):
    """The user dismissed a question, which ends the turn that asked it."""

    def __init__(self, requestID: str) -> None:
        super().__init__("The user dismissed this question")
        self.requestID = requestID

    def _details(self) -> dict[str, Any]:
        return {"requestID": self.requestID}


class LeaseLost(CallerError):
    """Another process took the session over."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"Another process took over the session: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class TurnAborted(CallerError):
    """The turn was aborted."""

    def __init__(self, sessionID: str) -> None:
        super().__init__(f"The turn was aborted: {sessionID}")
        self.sessionID = sessionID

    def _details(self) -> dict[str, Any]:
        return {"sessionID": self.sessionID}


class EngineClosed(CallerError):
    """The engine is closed; open a new one."""


class AgentClosed(CallerError):
    """The agent is closed; make a new one."""


class ConfigInvalid(OperatorError):
    """A configuration file cannot be used; correct it, or move it away."""

    def __init__(self, path: str, why: str, *, line: int | None = None, key: str = "") -> None:
        place = path if line is None else f"{path}:{line}"
        super().__init__(": ".join(each for each in (place, key, why) if each))
        self.path = path
        self.line = line
        self.key = key

    def _details(self) -> dict[str, Any]:
        found = {"path": mend_text(self.path)[:MESSAGE_LIMIT], "line": self.line, "key": self.key}
        return {name: value for name, value in found.items() if value}


class SearchStopped(OperatorError):
    """A search took more time or memory than there is for one."""


class WriteFailed(OperatorError):
    """A file could not be written; those that belong to it were taken back."""


class CannotListen(OperatorError):
    """The server cannot listen at this address; choose another."""


class StoreError(OperatorError):
    """The database failed; its own message says how."""


class StoreUnavailable(StoreError):
    """The database cannot be reached; check that it runs and that its address is right."""


class StoreGone(StoreUnavailable):
    """The database was taken away or replaced while it was open; start kedge again."""


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


class BackupRefused(OperatorError):
    """The backup cannot be made or restored there."""


class SnapshotError(OperatorError):
    """No snapshot could be taken or read; its own message says why."""


class SnapshotRefused(SnapshotError):
    """kedge does not take snapshots of this folder; its files are not protected."""


class SnapshotTimeout(SnapshotError):
    """The snapshot took longer than it may; only declared files are protected until a scan ends."""


class RootBusy(SnapshotError):
    """Another kedge is changing files in this folder; wait until it is done, then try again."""

    def __init__(self, holder: str = "", *, is_own: bool = False) -> None:
        """`holder` describes the process that has the folder, which may be this one; empty if it is
        not visible."""
        told = ""
        if holder:
            told = (
                f"Another kedge is changing files in this folder: {holder}; wait until it is done,"
                " then try again"
            )
        if is_own:
            told = (
                "Other sessions of this process are using this folder for a long time; wait until"
                " they are done, then try again"
            )
        super().__init__(told)
        self.holder = holder
        self.is_own = is_own


class SnapshotStoreFull(SnapshotError):
    """There is no space left for snapshots; free some, then try again."""


class SnapshotStoreDamaged(SnapshotError):
    """The snapshot store is damaged; keep a copy of it, then see what `git fsck` says of it."""


class ObjectMissing(SnapshotError):
    """An object that a snapshot needs is not in the snapshot store."""

    def __init__(self, id: str) -> None:
        super().__init__(f"the snapshot store lacks the object {id}")
        self.id = id


class InvariantBroken(InternalError):
    """Something that is always true was not; this is a bug in kedge, please report it."""
