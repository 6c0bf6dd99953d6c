"""A decoded request as handlers get it, with the directory and the session that it names."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import inspect

from kedge.agent import Agent
from kedge.agent.context import Surroundings
from kedge.domain import wire
from kedge.domain.errors import InvalidId, InvalidInput
from kedge.domain.ids import check_id
from kedge.domain.mismatches import mismatch, path
from kedge.engine.engine import Engine, Place
from kedge.engine.session import Session
from kedge.engine.worktrees import real_path
from kedge.server.errors import BadRequest, Kind
from kedge.server.request_body import check_values
from kedge.server.settings import ServerSettings
from kedge.server.sse.hub import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What handlers work with: the engine, the agent, and the event streams of clients."""

    engine: Engine
    agent: Agent
    settings: ServerSettings
    streams: Streams


Q = TypeVar("Q")
B = TypeVar("B")
_DIRECTORY_HEADER = b"x-opencode-directory"
_MOST_PARAMETERS = 100


class NoQuery(msgspec.Struct, frozen=True):
    """No query parameters except the directory, which every route understands."""


class NoBody(msgspec.Struct, frozen=True):
    """No body; a body that is sent anyway is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[Q, B]):
    """A client's request."""

    backend: Backend
    path: Mapping[str, str]
    """The parameters in the path."""
    query: Q
    body: B
    headers: Mapping[bytes, bytes]
    asked: Mapping[str, str]
    """The raw query parameters."""
    url: str
    """The raw path and query."""

    @property
    def directory(self) -> str:
        """The client's working directory: from the query, else from a header, else the directory in
        which the server was started. It may not exist."""
        said = (
            # What is asked of a route below /api; the SDK adds its client's own directory.
            self.asked.get("location[directory]")
            or self.asked.get("directory")
            or _decoded(self.headers.get(_DIRECTORY_HEADER, b""))
        )
        here = self.backend.engine.directory
        found = real_path(os.path.join(here, said)) if said else str(here)
        self.backend.settings.check_root(found)
        return found

    @property
    def names_directory(self) -> bool:
        """Whether the query gives a directory, which makes it a filter for lists."""
        return bool(self.asked.get("directory"))

    async def place(self) -> Place:
        """The directory of the request with its project."""
        engine = self.backend.engine
        directory = self.directory
        if directory == engine.place.directory:
            return await engine.here()
        return await engine.locate(directory)

    async def known_place(self) -> Place:
        """The same for requests that only show something: faster, and it works for a directory that
        no longer exists."""
        return await self.backend.engine.look_up(self.directory)

    async def surroundings(self) -> Surroundings:
        """The configuration, models and agents of the directory, as far as they can be read."""
        place = await self.known_place()
        return await self.backend.agent.surroundings_of(place.directory, place.worktree)

    def id(self, prefix: str, name: str) -> str:
        """An id from the path; refused unless it is well-formed for its kind."""
        return checked_id(prefix, self.path[name], name, kind="Params")

    async def session_id(self) -> str:
        """The id of the session that the path names. Whether it exists shows when it is used."""
        if self.backend.settings.root is not None:
            await self.session()
        return self.id("ses", "sessionID")

    async def session(self) -> Session:
        """The session that the path names."""
        found = await self.backend.engine.sessions.get(self.path["sessionID"])
        self.backend.settings.check_root(found.info.directory)
        return found


def checked_id(prefix: str, value: str, *at: str | int, kind: Kind = "Payload") -> str:
    """An id that a client sent, by default in the body; refused unless it is well-formed for its
    kind. `at` is the path to it, for the error message."""
    try:
        return check_id(prefix, value)
    except InvalidId as error:
        way = "".join(f"[{wire.encode(step)}]" for step in at)
        raise BadRequest(f"{error}\n  at {way}", kind) from None


def _decoded(header: bytes) -> str:
    try:
        return unquote(header.decode(), errors="strict")
    except UnicodeDecodeError:
        name = _DIRECTORY_HEADER.decode()
        raise BadRequest(f"{name} is not UTF-8 in percent encoding", "Headers") from None


def parsed_query(raw: bytes) -> dict[str, str]:
    """The query as a dict; a repeated key is refused as ambiguous."""
    if not raw:
        return {}
    if raw.count(b"&") >= _MOST_PARAMETERS:
        raise BadRequest(f"the query has more than {_MOST_PARAMETERS} parameters", "Query")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise BadRequest("the query is not UTF-8 in percent encoding", "Query") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise BadRequest(f"{path((twice,))}: expected one value; found several", "Query")
    return found


def query_value(asked: Mapping[str, str], kind: type[Q]) -> Q:
    """The query as a value; unknown keys are ignored."""
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError:
        found = mismatch(asked, inspect.type_info(kind), strict=False)
        raise BadRequest(str(found), "Query") from None


def body_value(raw: bytes, kind: Any, may_be_absent: bool) -> Any:  # noqa: ANN401 - a union is no type
    """The decoded body."""
    if not raw.strip():
        if not may_be_absent:
            raise BadRequest(f"the body is missing; expected an object{_hint(kind)}", "Payload")
        raw = b"{}"
    check_values(raw)
    try:
        return wire.decode(raw, kind)
    except InvalidInput as error:
        raise BadRequest(f"{error}{_hint(kind, error.field)}", "Payload") from None


def _hint(kind: Any, field: str | None = None) -> str:  # noqa: ANN401 - a union is no type
    """A line with an example for a body whose overall shape is often wrong; else empty."""
    example: dict[str, Any] = getattr(kind, "EXAMPLE", {})
    if not example or (field is not None and field.partition("[")[0] not in example):
        return ""
    # An error deep inside the body needs no example.
    return "" if "." in (field or "") else f"\n  send {json.dumps(example)}"
