"""The real OpenCode, served as its own clients use it, with subscribers that hear its events."""

import asyncio
import http.client
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from bench.agents_sides import MODEL, PROVIDER, Side, Turn, configuration
from bench.processes import Process, started

_STARTS = 60
"""Seconds that it may take to start."""
_FOLDERS = ("CONFIG", "DATA", "STATE", "CACHE")
_DELTA, _IDLE = b'"message.part.delta"', b'"session.idle"'


class OpenCodeSide(Side):
    """A server and those who listen to it."""

    name = "OpenCode"

    def __init__(
        self, process: Process, url: str, worktree: Path, listeners: list["_Listener"]
    ) -> None:
        self.pid = process.pid
        self._url = url
        self._worktree = worktree
        self._listeners = listeners

    async def turn(self, prompt: str) -> Turn:
        """Prompt in a new session."""
        session = await asyncio.to_thread(self._post, "/session", {"title": "Measured"})
        for listener in self._listeners:
            listener.begin()
        body = {
            "model": {"providerID": PROVIDER, "modelID": MODEL},
            "parts": [{"type": "text", "text": prompt}],
        }
        await asyncio.to_thread(self._post, f"/session/{session['id']}/prompt_async", body)
        heard = [await listener.idle for listener in self._listeners]
        return Turn(min(heard), min(listener.deltas for listener in self._listeners))

    def _post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        where = f"{path}?directory={quote(str(self._worktree))}"
        status, text = _request(self._url, "POST", where, body)
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise RuntimeError(f"OpenCode answered {status} to {path}: {text!r}")
        return json.loads(text or b"null")


class _Listener(asyncio.Protocol):
    """A subscriber that only looks for what is counted, so that hearing costs next to nothing."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another turn comes."""
        self.idle: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.deltas = 0
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Count; what may be the beginning of a word is looked at again."""
        told = self._rest + data
        self._rest = told[-len(_DELTA) + 1 :]
        self.deltas += told.count(_DELTA)
        if _IDLE in told and not self.idle.done():
            self.idle.set_result(time.monotonic_ns())


@asynccontextmanager
async def opencode_side(
    program: Path, worktree: Path, home: Path, url: str, subscribers: int
) -> AsyncIterator[OpenCodeSide]:
    """OpenCode on a worktree, with a home of its own, off the network."""
    environ = prepared(home, url)
    command = (str(program), "serve", "--hostname", "127.0.0.1", "--port", "0")
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(
            started(*command, folder=worktree, environ=environ)
        )
        stack.push_async_callback(process.stop)
        async with asyncio.timeout(_STARTS):
            address = await _listening(process)
            await _healthy(address)
        listeners = [await _listen(stack, address, worktree) for _ in range(subscribers)]
        yield OpenCodeSide(process, address, worktree, listeners)


def prepared(home: Path, url: str) -> dict[str, str]:
    """The environment of an OpenCode with a home of its own, off the network."""
    config = home / "config" / "opencode"
    config.mkdir(parents=True)
    (config / "opencode.json").write_text(json.dumps(configuration(url)))
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in _FOLDERS}
    quiet = ("OPENCODE_PURE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE")
    own = {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath)}
    return {**own, **folders, **dict.fromkeys(quiet, "1")}


async def _listening(process: Process) -> str:
    """Where it says that it is to be found."""
    while True:
        if found := re.search(r"http://[\d.]+:\d+", await process.line()):
            return found[0]


async def _healthy(url: str) -> None:
    """Return when it answers: what is asked while it starts is never answered."""
    while True:
        try:
            status, _ = await asyncio.to_thread(_request, url, "GET", "/global/health", None, 1)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            if status == http.HTTPStatus.OK:
                return


def _request(
    url: str, method: str, path: str, body: dict[str, Any] | None, patience: float = 60
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=patience)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def _listen(stack: AsyncExitStack, url: str, worktree: Path) -> _Listener:
    where = urlsplit(url)
    loop = asyncio.get_running_loop()
    transport, listener = await loop.create_connection(_Listener, "127.0.0.1", where.port or 80)
    stack.callback(transport.close)
    path = f"/event?directory={quote(str(worktree))}"
    transport.write(f"GET {path} HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode())
    return listener
