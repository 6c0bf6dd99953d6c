"""Requests that look at files wait for each other, and end with the client that asked."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kedge.engine.files import ripgrep
from kedge.server.app import AT_ONCE, FileQueue
from kedge.server.routes import ALL
from tests.server.test_sockets import until
from tests.server.world import Served, read_reply
from tests.support.timeouts import PATIENCE


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    return not Path(f"/proc/{pid}").exists()


@dataclass
class Crowd:
    """Clients of a server whose searches do not end by themselves."""

    served: Served
    notes: Path
    """A file for each search that began, named by its process."""
    clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    entered: int = 0
    """How many requests were put into the queue."""
    over: int = 0
    """How many of them have left it."""

    async def enter(self, count: int, stack: AsyncExitStack) -> None:
        """Have more clients search, one after the other, each for its number."""
        for _ in range(count):
            reader, writer = await stack.enter_async_context(self.served.connected())
            number = len(self.clients)
            self.clients.append((reader, writer))
            writer.write(self.served.request("GET", f"/find?pattern=number{number}"))
            await until(lambda number=number: self.entered > number)  # type: ignore[misc]

    def begun(self) -> dict[int, int]:
        """The processes of the searches that began, by the number of the client."""
        found = {}
        for note in self.notes.iterdir():
            if words := note.read_text().partition("--regexp=number")[2].split():
                found[int(words[0])] = int(note.name)
        return found

    async def until_begun(self, *numbers: int) -> None:
        """Wait until these searches, and no others, have begun."""
        await until(lambda: len(self.begun()) >= len(numbers))
        assert sorted(self.begun()) == sorted(numbers)


@pytest.fixture
async def crowd(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Crowd]:
    """No client yet."""
    notes = tmp_path / "notes"
    notes.mkdir()
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\necho "$*" > {notes}/$$\nexec sleep 1000\n')
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    made = Crowd(served, notes)
    in_order = FileQueue._in_order

    async def noted(self: FileQueue, work: object) -> object:
        made.entered += 1
        try:
            return await in_order(self, work)  # type: ignore[arg-type]
        finally:
            made.over += 1

    monkeypatch.setattr(FileQueue, "_in_order", noted)
    yield made
    for pid in made.begun().values():
        await until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


async def test_four_at_once_and_the_others_in_order(crowd: Crowd) -> None:
    """Who came first goes first; everybody else is served meanwhile."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        await crowd.enter(AT_ONCE, stack)
        await crowd.until_begun(*range(AT_ONCE))
        await crowd.enter(3, stack)
        assert (await crowd.served.get("/session")).status == 200
        assert sorted(crowd.begun()) == list(range(AT_ONCE))
        for number in range(3):
            os.kill(crowd.begun()[number], signal.SIGKILL)
            assert (await read_reply(crowd.clients[number][0])).status == 503
            await crowd.until_begun(*range(AT_ONCE + number + 1))


async def test_a_client_that_leaves_takes_its_search_along(crowd: Crowd) -> None:
    """The program is killed, and the next one begins."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        await crowd.enter(AT_ONCE + 1, stack)
        await crowd.until_begun(*range(AT_ONCE))
        pid = crowd.begun()[2]
        crowd.clients[2][1].close()
        await until(lambda: is_gone(pid))
        await crowd.until_begun(*range(AT_ONCE + 1))


async def test_a_client_that_leaves_while_it_waits_is_passed_over(crowd: Crowd) -> None:
    """Nothing is begun for it, and those behind it move up."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        await crowd.enter(AT_ONCE + 2, stack)
        await crowd.until_begun(*range(AT_ONCE))
        crowd.clients[AT_ONCE][1].close()
        await until(lambda: crowd.over == 1)
        os.kill(crowd.begun()[0], signal.SIGKILL)
        await crowd.until_begun(*range(AT_ONCE), AT_ONCE + 1)


@pytest.mark.parametrize("target", ["/vcs", "/vcs/status", "/vcs/diff/raw", "/file/status"])
async def test_git_ends_with_the_client_too(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Also while it is asked several things, one after the other."""
    assert (await served.get("/session")).status == 200
    started = tmp_path / "started"
    os.mkfifo(started)
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 1000\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        async with asyncio.timeout(PATIENCE), served.connected() as (_, writer):
            writer.write(served.request("GET", target))
            pid = int(await asyncio.to_thread(started.read_text))
        await until(lambda: is_gone(pid))
    for _ in range(2 * AT_ONCE):
        assert (await served.get("/vcs")).status == 200


def test_every_route_that_looks_at_files_waits() -> None:
    """None of them is forgotten."""
    areas = ("/find", "/file", "/vcs", "/api/fs")
    found = {route.path for route in ALL if route.path.startswith(areas)}
    # Not built yet.
    found -= {"/vcs/apply", "/api/fs/read/*"}
    assert {route.path for route in ALL if route.reads_files} == found


async def test_one_connection_for_many_requests(served: Served) -> None:
    """A request that follows on the connection, or a body that nobody wants, is no client that
    leaves."""
    served.world.put("found.txt", "needle\n")
    body = b"x" * 100_000
    head = b"GET /find?pattern=needle HTTP/1.1\r\nhost: localhost\r\n"
    with_body = b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
    async with asyncio.timeout(PATIENCE), served.connected() as (reader, writer):
        for sent in (head + b"\r\n", with_body, head + b"\r\n"):
            writer.write(sent)
            assert len((await read_reply(reader)).json) == 1
        writer.write((head + b"\r\n") * 10)
        for _ in range(10):
            assert len((await read_reply(reader)).json) == 1
