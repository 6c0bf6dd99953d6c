"""Errors as HTTP responses: one table gives the status and body of each.

The bodies are OpenCode's, which come in two forms: `name` with `data`, and `_tag`.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any, Literal

from kedge.domain.errors import (
    MESSAGE_LIMIT,
    AgentClosed,
    AgentNotFound,
    CallerError,
    CommandNotFound,
    ConfigInvalid,
    EngineClosed,
    FileBusy,
    FileChanged,
    InvalidCursor,
    InvalidId,
    InvalidInput,
    InvalidPath,
    KedgeError,
    LeaseLost,
    ModelNotFound,
    NotFound,
    OperatorError,
    PathRefused,
    PathUncovered,
    PermissionNotFound,
    ProjectNotFound,
    QuestionNotFound,
    SearchFailed,
    SessionBusy,
    SnapshotRefused,
    StoreError,
    TooLarge,
    TurnAborted,
)
from kedge.server.responses import Response, json

_log = logging.getLogger(__name__)
_UNEXPECTED = "Unexpected server error. Check server logs for details."
Kind = Literal["Params", "Query", "Payload", "Headers"]


class BadRequest(InvalidInput):
    """The request does not have the form that its route requires."""

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message)
        self.kind = kind


class RouteNotFound(NotFound):
    """There is no such route."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__("Route", f"{method} {path}", "GET /doc lists those that there are")


class ProviderNotFound(NotFound):
    """There is no such provider, or none that can be used."""

    def __init__(self, id: str) -> None:
        super().__init__("Provider", id)

    def _details(self) -> dict[str, Any]:
        return {"providerID": self.id[:MESSAGE_LIMIT]}


class WrongMethod(CallerError):
    """The route does not accept this method."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__(f"this route knows {', '.join(allowed)}")
        self.allowed = allowed


class WrongType(CallerError):
    """The body is not JSON."""

    def __init__(self, type: str) -> None:
        super().__init__(f"Unsupported content-type: {type}")


class Refused(CallerError):
    """The request comes from a source that is not allowed."""


class SlowBody(CallerError):
    """The body of the request did not arrive in time."""


class ClientGone(CallerError):
    """The client disconnected before its request was complete."""


class Crowded(CallerError):
    """Too much data is being sent at the same time; try again."""


class NotBuilt(CallerError):
    """This version of kedge does not implement that yet."""


def error_answer(error: Exception) -> Response:
    """The response to a client for an error."""
    for kind, form in _TABLE:
        if isinstance(error, kind):
            return form(error)
    reference = f"err_{secrets.token_hex(4)}"
    _log.error("%s: a request failed", reference, exc_info=error)
    return _named("UnknownError", {"message": _UNEXPECTED, "ref": reference}, 500)


def _named(name: str, data: dict[str, Any], status: int) -> Response:
    return json({"name": name, "data": data}, status)


def _plain(name: str, status: int) -> Callable[[Any], Response]:
    return lambda error: _named(name, error.data, status)


def _bad_request(error: InvalidInput) -> Response:
    kind: Kind = "Payload"
    if isinstance(error, BadRequest):
        kind = error.kind
    elif isinstance(error, InvalidId):
        kind = "Params"
    elif isinstance(error, InvalidCursor | InvalidPath | SearchFailed):
        kind = "Query"
    return _named("BadRequest", {"message": str(error)[:MESSAGE_LIMIT], "kind": kind}, 400)


def _tagged(tag: str, status: int, key: str) -> Callable[[Any], Response]:
    return lambda error: json(
        {"_tag": tag, key: error.data.get(key), "message": error.data["message"]}, status
    )


def _wrong_method(error: WrongMethod) -> Response:
    body = {"name": "MethodNotAllowed", "data": error.data}
    return json(body, 405, [("allow", ", ".join(error.allowed))])


def _wrong_type(error: WrongType) -> Response:
    return Response(str(error).encode(), 415, b"text/plain")


def _operator(error: OperatorError) -> Response:
    _log.error("a request failed: %s", error)
    return _named("UnknownError", error.data, 503)


_TABLE: tuple[tuple[type[KedgeError], Callable[[Any], Response]], ...] = (
    (TooLarge, _plain("TooLarge", 413)),
    (PathRefused, _plain("PathRefused", 403)),
    (InvalidInput, _bad_request),
    (SessionBusy, _tagged("SessionBusyError", 409, "sessionID")),
    (PermissionNotFound, _tagged("PermissionNotFoundError", 404, "requestID")),
    (QuestionNotFound, _tagged("QuestionNotFoundError", 404, "requestID")),
    (ProjectNotFound, _tagged("ProjectNotFoundError", 404, "projectID")),
    (ProviderNotFound, _tagged("ProviderNotFoundError", 404, "providerID")),
    (ModelNotFound, _plain("ProviderModelNotFoundError", 400)),
    (AgentNotFound, _plain("BadRequest", 400)),
    (CommandNotFound, _plain("BadRequest", 400)),
    (NotFound, _plain("NotFoundError", 404)),
    (PathUncovered, _plain("PathUncovered", 409)),
    (FileChanged, _plain("FileChanged", 409)),
    (FileBusy, _plain("FileBusy", 409)),
    (LeaseLost, _plain("LeaseLost", 409)),
    (TurnAborted, _plain("MessageAbortedError", 409)),
    (Refused, _plain("Refused", 403)),
    (WrongMethod, _wrong_method),
    (WrongType, _wrong_type),
    (SlowBody, _plain("SlowBody", 408)),
    (Crowded, _plain("Crowded", 503)),
    (NotBuilt, _plain("NotImplemented", 501)),
    (EngineClosed, _plain("Stopping", 503)),
    (AgentClosed, _plain("Stopping", 503)),
    (SnapshotRefused, _plain("SnapshotRefused", 409)),
    (ConfigInvalid, _plain("ConfigInvalidError", 500)),
    (StoreError, _operator),
    (OperatorError, _operator),
    (CallerError, _plain("BadRequest", 400)),
)
"""The first entry that matches counts."""
