"""Runs a command line in processes of its own, and leaves none of them behind when it is stopped.

A command waits at a gate until its process is stored. So kedge cannot die at a moment when an
unknown process is left running.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kedge._async import to_the_end
from kedge.agent.shell.output import Pipe, ShellOutput
from kedge.domain.child_processes import Process
from kedge.domain.errors import KedgeError
from kedge.engine.os_process import MARK
from kedge.engine.processes import end_processes
from kedge.engine.saved_output import output_path

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

_GATE = 'IFS= read -r go && unset go && exec "$@" </dev/null'
"""Wait for a line; if the process that should send it is gone, exit."""
_TOLD_EVERY = 0.25
"""Seconds between two progress reports."""
_PIPE_GRACE = 0.25
"""Seconds in which the last output may arrive after the shell has ended."""
_PATIENCE = 5.0
"""Seconds in which a killed process should be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a command."""

    output: str
    preview: str
    """The newest output, for clients."""
    exit: int | None
    """Its exit code, in the shell's convention; None if it had to be killed."""
    is_cut: bool
    """Whether there was more output than this."""
    kept: Path | None
    """The file with all of it, if it was cut and could be saved."""
    goes_on: Path | None
    """The file for further output of processes that the command left running, if there are any."""


def models_shell() -> list[str]:
    """The shell for a model's commands: the rules are about bash's syntax."""
    users = os.environ.get("SHELL", "")
    if os.path.basename(users) == "bash" and os.access(users, os.X_OK):
        return [users, "-c"]
    return [shutil.which("bash") or "/bin/sh", "-c"]


def users_shell() -> list[str]:
    """The shell for a user's commands."""
    users = os.environ.get("SHELL", "")
    if os.path.basename(users) == "zsh" and os.access(users, os.X_OK):
        return [users, "-c"]
    return models_shell()


async def run(
    call: "Call",
    line: str,
    *,
    shell: Sequence[str],
    directory: Path,
    limit: float | None,
    told: Callable[[str], Awaitable[bool]],
) -> Ran:
    """Run a command line to its end; `told` is called with the newest output, at most four times a
    second, and says whether it is shown now.

    If the limit, in seconds, is over or the task is cancelled, everything that the command started
    is ended first. Raises OSError if it cannot be started.
    """
    path = output_path(call.engine.data, call.session.id, call.part_id)
    output = ShellOutput(path, limit=call.limit)
    command = await _begin(call, [*shell, line], directory, output)
    try:
        in_time = await _wait(command, limit, told)
        if in_time:
            await command.pipe.finish(_PIPE_GRACE)
        else:
            await to_the_end(command.end())
    except BaseException:
        await to_the_end(_give_up(command, told))
        raise
    output.end()
    goes_on = not command.pipe.has_ended
    if goes_on:
        output.keep()
        command.pipe.slow_down()
        call.engine.processes.keep(command.pipe)
    if command.known is not None:
        await call.engine.processes.forget(command.known)
    return Ran(
        output=output.text(),
        preview=output.preview(),
        exit=_code(command.process.returncode) if in_time else None,
        is_cut=output.is_cut,
        kept=output.path if output.is_cut and output.has_file else None,
        goes_on=output.path if goes_on else None,
    )


async def _give_up(command: "_Command", told: Callable[[str], Awaitable[bool]]) -> None:
    await command.end()
    # If it is stopped because nothing can be stored any more, it still has to stop.
    with contextlib.suppress(KedgeError):
        await told(command.pipe.output.preview())


@dataclass(frozen=True, slots=True)
class _Command:
    process: asyncio.subprocess.Process
    known: Process | None
    """As it is stored; None if it ended before that."""
    pipe: Pipe

    async def end(self) -> None:
        """End it and everything that it started."""
        try:
            if self.known is not None:
                await end_processes([self.known])
            # Its exit status must be collected, but waiting for it must not block if the system
            # cannot end it.
            exited = asyncio.ensure_future(self.process.wait())
            await asyncio.wait({exited}, timeout=_PATIENCE)
            exited.cancel()
        finally:
            self.pipe.take_all()
            self.pipe.close()


async def _begin(
    call: "Call", arguments: Sequence[str], directory: Path, output: ShellOutput
) -> _Command:
    gate, opener = os.pipe()
    source, sink = os.pipe()
    pipe = Pipe(source, output, call.engine.processes)
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", _GATE, "sh", *arguments),
                stdin=gate,
                stdout=sink,
                stderr=asyncio.subprocess.STDOUT,
                cwd=directory,
                env={**call.environ(), MARK: _mark(call.part_id)},
                start_new_session=True,
            )
        finally:
            os.close(gate)
            os.close(sink)
        known = await _let_in(call, process, opener)
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(opener)
    return _Command(process, known, pipe)


async def _let_in(call: "Call", process: asyncio.subprocess.Process, opener: int) -> Process | None:
    """Store the process, and open its gate."""
    try:
        fence = call.step.turn.fence
        known = await call.engine.processes.remember(fence, call.part_id, process.pid)
        if known is not None:
            os.write(opener, b"\n")
    except BaseException:
        # It still stands at the gate, or was ended from outside.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await to_the_end(process.wait())
        raise
    return known


async def _wait(
    command: _Command, limit: float | None, told: Callable[[str], Awaitable[bool]]
) -> bool:
    """Wait for the shell; return whether it ended in time."""
    exited = asyncio.ensure_future(command.process.wait())
    telling = asyncio.ensure_future(_tell(command.pipe, told))
    try:
        either = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait({exited, telling}, timeout=limit, return_when=either)
        if telling in done:
            # It never returns normally.
            telling.result()
    finally:
        telling.cancel()
        exited.cancel()
        await to_the_end(asyncio.gather(telling, exited, return_exceptions=True))
    return exited in done


async def _tell(pipe: Pipe, told: Callable[[str], Awaitable[bool]]) -> None:
    while True:
        await pipe.came.wait()
        pipe.came.clear()
        if not await told(pipe.output.preview()):
            # Nothing more may come for long: it is told again until it is shown.
            pipe.came.set()
        await asyncio.sleep(_TOLD_EVERY)


def _mark(part_id: str) -> str:
    outer = os.environ.get(MARK)
    return f"{outer}:{part_id}" if outer else part_id


def _code(status: int | None) -> int | None:
    """The exit code, with signals in the shell's convention."""
    return 128 - status if status is not None and status < 0 else status
