"""Attachments: puts the contents of a prompt's files beside them, as text that a model can read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec

from kedge.agent.tools.call import Call
from kedge.agent.tools.images import data_of, mime_of, most_bytes
from kedge.agent.tools.read import read
from kedge.agent.tools.tool import ToolFailure
from kedge.domain import wire
from kedge.domain.parts import FilePart, Part
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.timeline.declared import identified, known_blobs
from kedge.engine.worktree_paths import named_paths

_FOLDER = "application/x-directory"
_MOST_TEXT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Attached:
    """The parts of a prompt with the contents of its files."""

    parts: str | Sequence[Part | dict[str, Any]]
    seen: Sequence[tuple[bytes, str | None]] = ()
    """The contents that the session knows from them."""
    problems: Sequence[str] = ()
    """Why some of them could not be read."""


NOTHING = Attached("")


async def attach(
    engine: Engine, session: Session, prompt: str | Sequence[Part | dict[str, Any]]
) -> Attached:
    """Read the attachments of a prompt. A file that cannot be read is replaced by a note."""
    if not isinstance(prompt, list | tuple):
        return Attached(prompt)  # text; the code that stores the prompt rejects anything else
    call = _Attaching(engine, session)
    parts: list[Part | dict[str, Any]] = []
    problems: list[str] = []
    for given in prompt:
        file = _file(given)
        if file is None:
            parts.append(given)
            continue
        try:
            parts += await _spelled_out(call, file, given)
        except ToolFailure as failure:
            problem = f"The attachment {file.filename or file.url[:200]} cannot be used: {failure}"
            problems.append(problem)
            parts.append(_told(problem))
    return Attached(parts, call.seen, problems)


async def remember_seen(engine: Engine, session_id: str, attached: Attached) -> None:
    """Record that the session knows the contents of its attachments."""
    if attached.seen:
        await engine.conversations.set_seen(session_id, attached.seen)


class _Attaching(Call):
    """The user shows these files to the model, so no permission is needed."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self.seen: list[tuple[bytes, str | None]] = []

    @property
    def session(self) -> Session:
        return self._session

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def message_id(self) -> str:
        return ""

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = ("*",),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Allowed."""

    async def reads(self, *paths: Path) -> None:
        if self._engine.settings.snapshots:
            place = {"directory": self._session.info.directory, "worktree": self._session.worktree}
            inside = named_paths(paths, field="prompt", **place).inside
            self.seen += known_blobs(await identified(self._session, inside))


class _File(msgspec.Struct, tag_field="type", tag="file", frozen=True):
    """The relevant fields of an attachment."""

    mime: str
    url: str
    filename: str | None = None


def _file(given: object) -> _File | None:
    if isinstance(given, FilePart):
        return _File(given.mime, given.url, given.filename)
    if not isinstance(given, dict) or given.get("type") != "file":
        return None
    try:
        return msgspec.convert(given, _File)
    except msgspec.ValidationError:
        return None  # the code that stores the prompt reports what is wrong with it


async def _spelled_out(
    call: _Attaching, file: _File, given: Part | dict[str, Any]
) -> list[Part | dict[str, Any]]:
    if file.url.startswith("data:"):
        return [*_of_data(file), given]
    address = _split(file.url)
    if not address.scheme:
        raise ToolFailure(
            "its url is no address; say where the file is as in file:///home/me/main.py"
            " (in Python: Path(...).resolve().as_uri())."
        )
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        raise ToolFailure("only files of this machine and data: addresses can be attached.")
    arguments: dict[str, Any] = {"filePath": unquote(address.path)}
    if file.mime != _FOLDER:
        arguments |= _lines(address.query)
    output = await read(call, arguments)
    told = [_called(arguments), _told(output.text)]
    shown = next(iter(output.attachments), None)
    if shown is None and not file.mime.startswith(("text/", _FOLDER)):
        raise ToolFailure(f"it is no {file.mime}.")
    return [*told, given if shown is None else _with(given, mime=shown.mime, url=shown.url)]


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ToolFailure(f"its address is broken: {error}.") from error


def _lines(query: str) -> dict[str, int]:
    """The range of lines in a URL: `start` and `end`, counted from 1."""
    found = {key: values[-1] for key, values in parse_qs(query).items()}
    if "start" not in found:
        return {}
    try:
        start = max(1, int(found["start"]))
        end = int(found["end"]) if "end" in found else start
    except ValueError as error:
        raise ToolFailure("start and end of its lines must be numbers.") from error
    return {"offset": start, "limit": max(1, end - start + 1)}


def _of_data(file: _File) -> list[dict[str, Any]]:
    """An attachment whose URL holds its content."""
    data = data_of(file.url)
    if data is None:
        raise ToolFailure("its data: address is broken.")
    if file.mime.startswith("text/"):
        text = data[:_MOST_TEXT].decode(errors="replace")
        cut = f"\n(cut after {_MOST_TEXT} bytes)" if len(data) > _MOST_TEXT else ""
        return [_called({"filePath": file.filename or "attachment"}), _told(text + cut)]
    found = mime_of(data)
    if found is None or found.partition("/")[0] != file.mime.partition("/")[0]:
        raise ToolFailure(f"it is no {file.mime}.")
    if len(data) > most_bytes(found):
        raise ToolFailure(f"it is larger than {most_bytes(found)} bytes.")
    return []


def _called(arguments: dict[str, Any]) -> dict[str, Any]:
    return _told(f"Called the Read tool with the following input: {wire.encode(arguments)}")


def _told(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "synthetic": True}


def _with(given: Part | dict[str, Any], **fields: str) -> Part | dict[str, Any]:
    if isinstance(given, dict):
        return {**given, **fields}
    return msgspec.structs.replace(given, **fields)
