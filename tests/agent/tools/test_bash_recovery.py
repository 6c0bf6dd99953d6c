"""Commands whose kedge was killed: nothing of them goes on, and what they did is known."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import kedge
from kedge.agent.tools.bash import bash
from kedge.domain.messages import AssistantMessage
from kedge.domain.parts import ToolError, ToolPart
from kedge.domain.sessions import Idle
from kedge.engine import os_process
from kedge.engine.settings import data_folder
from tests.agent.tools.scene import Scene
from tests.support.polling import until_beaten, until_gone, until_told
from tests.support.timeouts import PATIENCE

_ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def child(
    folder: Path, database: Path, mode: str, command: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A kedge that runs a command; killed at the end if it is still there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.tools.shell_process"),
        *(str(folder), str(database), mode, command),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def hear(process: asyncio.subprocess.Process) -> str:
    """The next line that the child says."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = (await process.stdout.readline()).decode().strip()
    assert line, "the child ended without saying anything"
    return line


@pytest.mark.parametrize("mode", ["snapshots", "bare"])
async def test_killed_in_mid_shell(folder: Path, tmp_path: Path, mode: str) -> None:
    """After a restart the processes are gone, the call is an error, its files are its own, and the
    session goes on."""
    line = (
        "echo new > made; sleep 1000 & echo -n $! ' ' > pids;"
        " setsid sleep 1001 & echo -n $! ' ' >> pids;"
        " (trap '' TERM; while :; do sleep 1002; done) & echo $! $$ >> pids; wait"
    )
    database = tmp_path / "kedge.db"
    async with child(folder, database, mode, line) as process:
        session_id = await hear(process)
        pids = [int(word) for word in (await until_told(folder / "pids")).split()]
        if mode == "snapshots":
            await until_beaten(data_folder(None), folder / "pids")
        process.kill()
        await process.wait()
    assert all(os_process.process(pid) is not None for pid in pids)
    settings = kedge.Settings(snapshots=mode != "bare")
    async with kedge.open(folder, database=str(database), settings=settings) as engine:
        assert engine.recovery.sessions == [session_id]
        assert [os_process.process(pid) for pid in pids] == [None] * len(pids)
        scene = Scene(folder, engine, await engine.sessions.get(session_id))
        (part,) = await scene.tool_parts()
        assert isinstance(part.state, ToolError)
        message = (await scene.session.messages()).messages[-1].info
        assert isinstance(message, AssistantMessage)
        assert message.error is not None
        assert await engine.runs.status(session_id) == Idle()
        if mode == "snapshots":
            assert {diff.file for diff in await scene.session.diff()} == {"made", "pids"}
        assert (await scene.run(bash, command="cat made")).text == "new\n"


async def test_killed_before_the_command_began(folder: Path, tmp_path: Path) -> None:
    """What stands at the gate goes away by itself, and has done nothing."""
    database = tmp_path / "kedge.db"
    async with child(folder, database, "gate", "touch made") as process:
        session_id = await hear(process)
        pid = int(await hear(process))
        assert os_process.process(pid) is not None
        process.kill()
        await process.wait()
    await until_gone(pid)
    async with kedge.open(folder, database=str(database)) as engine:
        assert engine.recovery.sessions == [session_id]
        page = await (await engine.sessions.get(session_id)).messages()
        (part,) = [p for m in page.messages for p in m.parts if isinstance(p, ToolPart)]
        assert isinstance(part.state, ToolError)
    assert os.listdir(folder) == []
