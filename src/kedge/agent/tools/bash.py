"""The tool that runs command lines, and a person's own."""

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated

from kedge.agent.shells.parsing import parse
from kedge.agent.shells.places import places
from kedge.agent.shells.rules import asked_of
from kedge.agent.shells.running import Ran, models_shell, run, users_shell
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text

_DEFAULT_TIME = 120_000
_LONGEST_TIME = 600_000
_SHORT = 4096
"""Characters of a line that is parsed in a moment."""

_DESCRIPTION = """
    Runs a command line with bash and gives back what it writes to its output and error output.

    - It starts in the session's directory; pass `workdir` to start elsewhere instead of using `cd`.
    - It gets no input. Use options that keep programs from asking or paging.
    - Read, search, write and edit files with the tools for that, not with cat, grep, sed or echo.
    - Join commands that depend on each other with `&&`; independent ones are calls of their own.
    - Quote paths that hold spaces.
    - It is stopped, with all that it started, after 2 minutes unless `timeout` says otherwise.
    - Long output is cut in the middle; the whole is then in a file that is named.
    - What should go on after the command, such as a server, can be started with `&`.
"""


@tool("bash", description=_DESCRIPTION)
async def bash(
    call: Call,
    command: Annotated[str, "The command line"],
    timeout: Annotated[  # noqa: ASYNC109 - the name that models know
        float | None, "Milliseconds after which it is stopped; 120000 if not given, 600000 at most"
    ] = None,
    workdir: Annotated[str | None, "The directory to start in"] = None,
    description: Annotated[str | None, "What it does, in five to ten words"] = None,
) -> Output:
    """Run a command line that a model wrote."""
    line = _checked(command)
    if timeout is not None and not timeout > 0:
        raise ToolFailure("The timeout must be more than 0 milliseconds. Call it again with more.")
    directory = call.directory if workdir is None else call.path(workdir)
    await _ask(call, line, directory)

    async def told(output: str) -> None:
        await call.progress(output=output)

    await told("")
    await call.observes()
    time = min(timeout or _DEFAULT_TIME, _LONGEST_TIME)
    ran = await _started(
        run(call, line, shell=models_shell(), directory=directory, limit=time / 1000, told=told),
        directory,
    )
    notes = _notes(ran, time)
    metadata = {"output": ran.preview, "exit": ran.exit, "truncated": ran.is_cut}
    return Output(_with_notes(ran.output, notes), title=command, metadata=metadata)


async def run_shell(call: Call, command: str) -> Output:
    """Run a person's own command line: nobody is asked, and it may take as long as it likes."""
    line = _checked(command)

    async def told(output: str) -> None:
        await call.progress(output=output)

    await call.observes()
    directory = call.directory
    ran = await _started(
        run(call, line, shell=users_shell(), directory=directory, limit=None, told=told),
        directory,
    )
    return Output(ran.output, metadata={"output": ran.preview, "exit": ran.exit})


def _checked(command: str) -> str:
    """The command line as it can be given to a shell."""
    if not command.strip():
        raise ToolFailure("There is no command. Call it again with one.")
    if "\0" in command:
        raise ToolFailure("A command cannot hold NUL characters. Call it again without them.")
    return mend_text(command)


async def _ask(call: Call, command: str, directory: Path) -> None:
    # Not in a thread, unless it takes long: calls of one step ask in their order.
    is_short = len(command) <= _SHORT
    parsed = parse(command) if is_short else await asyncio.to_thread(parse, command)
    real = _real(directory)
    named = _outside(call, [directory, *places(parsed, directory)])
    if named:
        patterns = [str(folder / "*") for folder in named]
        # As a pattern, one with such a name would mean other folders; the root means all of them.
        always = [each for each in patterns if not re.search(r"[*?].|^/\*", each)]
        await call.ask("external_directory", patterns, always=always, metadata={"command": command})
    asked = asked_of(command, parsed)
    await call.ask("bash", asked.patterns, always=asked.always, metadata={"command": command})
    if _real(directory) != real:
        raise ToolFailure(f"{directory} is another folder by now. Call it again.")


def _outside(call: Call, paths: Sequence[Path]) -> list[Path]:
    """The folders of what is outside of the worktree."""
    reals = [_real(path) for path in paths if not call.is_inside(path)]
    return list(dict.fromkeys(real if real.is_dir() else real.parent for real in reals))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


async def _started(running: Awaitable[Ran], directory: Path) -> Ran:
    try:
        return await running
    except FileNotFoundError as error:
        raise ToolFailure(
            f"There is no directory {directory}. Call it again with another `workdir`."
        ) from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ToolFailure(
                "The command is too long for the system. Write it to a file and run that."
            ) from error
        raise ToolFailure(f"The command could not be started: {error.strerror}.") from error


def _notes(ran: Ran, time: float) -> list[str]:
    """What the model should know beyond the output."""
    notes = []
    if ran.exit is None:
        notes.append(
            f"The command was stopped because it took longer than {time:g} ms. If it needs longer,"
            " call it again with a larger `timeout`."
        )
    elif ran.exit:
        notes.append(f"The command ended with exit code {ran.exit}.")
    if ran.goes_on is not None:
        notes.append(
            f"Processes that it started are still running; what they write goes to {ran.goes_on}."
        )
    return notes


def _with_notes(output: str, notes: Sequence[str]) -> str:
    text = output or "(no output)"
    if not notes:
        return text
    lines = "\n".join(["<shell_metadata>", *notes, "</shell_metadata>"])
    return f"{text}\n\n{lines}"
