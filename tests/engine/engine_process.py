"""The other process of a test: opens an engine on the same database and does as it is told.

It says what it does as one JSON text per line, and reads a line when it is to go on.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic

import kedge
from kedge._failpoints import armed
from kedge.domain.errors import KedgeError
from kedge.domain.questions import QuestionInfo, QuestionOption
from kedge.engine import heartbeats, os_process, parts, pieces, upkeep
from kedge.engine.engine import Engine
from tests.engine.engine_factory import NEVER, PAUSES
from tests.support.timeouts import PATIENCE


def say(value: object) -> None:
    """Tell the test."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def told() -> str:
    """Wait for the test."""
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


def let_time_pass() -> None:
    """Make the next piece of progress old enough to be stored."""
    vars(parts)["monotonic"] = lambda: monotonic() + 1.0  # a clock that jumped


async def work(engine: Engine, session_id: str) -> None:
    """Stand in the middle of a turn, with a text and a tool call open, until told to write."""
    session = await engine.sessions.get(session_id)
    async with (
        session.turn("Work") as turn,
        turn.step() as step,
        step.speak() as out,
        step.tool("bash", {"command": "make"}) as call,
    ):
        let_time_pass()
        await out.write("half a sen")
        say(call.part.id)
        await told()
        await call.progress(output="late")
        say("stored")


async def speak(engine: Engine, session_id: str, kind: str, last: str) -> None:
    """Say a letter each 64th of a second, by a clock that only moves for that, and die while the
    last one is announced."""
    session = await engine.sessions.get(session_id)
    said, now = count(1), 0.0
    vars(pieces)["monotonic"] = lambda: now

    def announce(*arguments: object, **names: object) -> None:
        if next(said) == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    vars(session)["delta"] = announce
    async with (
        session.turn("Speak") as turn,
        turn.step() as step,
        step.speak() if kind == "text" else step.think() as out,
    ):
        for letter in "abcdefghijklmnopqrstuvwxyz":
            await out.write(letter)
            now += 1 / 64


async def fall_silent(engine: Engine, session_id: str) -> None:
    """Say something, and nothing more."""
    session = await engine.sessions.get(session_id)
    async with session.turn("Speak") as turn, turn.step() as step, step.speak() as out:
        await out.write("half a sen")
        say("said")
        await told()


async def touch_files(engine: Engine, session_id: str, written: str = "declared") -> None:
    """Stand in the middle of a shell call and of a declared one, each with a file just made."""
    session = await engine.sessions.get(session_id)
    async with (
        session.turn("Work") as turn,
        turn.step() as step,
        step.tool("bash", {}, effects="unknown"),
        step.tool("write", {}, writes=[written]),
    ):
        for name in ("shell", written):
            (engine.directory / name).touch()
        beat(engine, engine.directory / written)
        say("touched")
        await told()


async def obey(engine: Engine, session_id: str) -> None:
    """Stand in the middle of a shell call and of a declared one, and do what the test says; the
    heart beats only when the test says so."""
    heartbeats.EVERY = NEVER
    await obey_alive(engine, session_id)


async def obey_alive(engine: Engine, session_id: str) -> None:
    """The same, with a heart that beats by itself."""
    session = await engine.sessions.get(session_id)
    mark = engine.data / "mark"
    async with (
        session.turn("Work") as turn,
        turn.step() as step,
        step.tool("bash", {}, effects="unknown"),
        step.tool("write", {}, writes=["declared"]),
    ):
        say("at work")
        while line := await told():
            if line == "beat":
                mark.touch()
                beat(engine, mark)
            else:
                run = partial(subprocess.run, ["sh", "-ec", line], cwd=engine.directory)
                (await asyncio.to_thread(run)).check_returncode()
            say("done")


def beat(engine: Engine, newest: Path) -> None:
    """Give a sign of life that is later than the newest file: clocks of files may be slow."""
    while (engine.heartbeat.beat() or 0) <= newest.stat().st_ctime_ns:
        pass


async def ask(engine: Engine, session_id: str) -> None:
    """Wait in the middle of a turn for a permission and, beside it, for an answer."""
    session = await engine.sessions.get(session_id)
    question = QuestionInfo(
        question="Which?", header="Which", options=[QuestionOption(label="Red")]
    )
    async with session.turn("Work") as turn, turn.step(), asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(engine.asks.permission(turn, "bash", ["ls"], always=["ls *"]))
        which = tasks.create_task(engine.asks.question(turn, [question]))
        say("asking")
        say([(await asked).reply, await which])


async def reply(engine: Engine, id: str) -> None:
    """Allow what another process waits for."""
    await engine.asks.reply_permission(id, "once")
    say("replied")


async def allow(engine: Engine, id: str) -> None:
    """Allow what another process waits for, for as long as this one lives."""
    await engine.asks.reply_permission(id, "always")
    say("allowed")
    await told()


async def rename(engine: Engine, session_id: str, count: str) -> None:
    """Give a session many titles, each its own transaction."""
    session = await engine.sessions.get(session_id)
    say("ready")
    await told()
    for n in range(int(count)):
        await session.update(title=f"{session_id} {n}")
    say("done")


async def abort(engine: Engine, session_id: str) -> None:
    """Abort a session."""
    say(await (await engine.sessions.get(session_id)).abort())


async def delete(engine: Engine, session_id: str) -> None:
    """Delete a session."""
    await (await engine.sessions.get(session_id)).delete()
    say("deleted")


async def begin(engine: Engine, session_id: str) -> None:
    """Try to run a turn."""
    async with (await engine.sessions.get(session_id)).turn("Mine"):
        say("begun")


def pause() -> None:
    """Be paused at once, with all threads; a signal to the process would let this one go on."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


async def revert_and_pause(engine: Engine, session_id: str, message: str) -> None:
    """Revert, and be paused by the kernel when the first file is done."""
    session = await engine.sessions.get(session_id)
    with armed("after-replace", pause):
        await session.revert(message)
    say("reverted")


ROLES = {
    each.__name__: each
    for each in (
        *(
            work,
            speak,
            fall_silent,
            touch_files,
            obey,
            obey_alive,
            ask,
            reply,
            allow,
            rename,
            abort,
            delete,
            begin,
        ),
        revert_and_pause,
    )
}
SETTINGS = {
    "delete": kedge.Settings(stop_patience=0.5),
    "revert_and_pause": kedge.Settings(lease_time=0.3, snapshot_budget=PATIENCE),
}


async def main(folder: str, database: str, role: str, *arguments: str) -> None:
    """Play a role; an error is said by the name of its class."""
    for name in PAUSES:
        setattr(upkeep, name, NEVER)
    if role == "revert_and_pause":
        # As in another container: only its lease tells others whether it lives.
        vars(os_process)["_namespace"] = lambda: "another"
    async with kedge.open(folder, database=database, settings=SETTINGS.get(role)) as engine:
        try:
            await ROLES[role](engine, *arguments)
        except KedgeError as error:
            say(type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
