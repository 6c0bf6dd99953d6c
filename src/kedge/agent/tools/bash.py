"""The tool `bash`: runs command lines of the model, and those of a user in a session."""

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from kedge.agent.output_limit import DEFAULT, note_limit
from kedge.agent.shell.parser import parse
from kedge.agent.shell.permissions import AskedRules, Places, asked_of, places, real
from kedge.agent.shell.process import Ran, models_shell, run, users_shell
from kedge.agent.tools.call import Call
from kedge.agent.tools.paths import FilePlace, place_of
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.config.values import ToolOutputConfig
from kedge.domain.permissions import IN_GIT, UNCERTAIN, PermissionRule
from kedge.domain.questions import QuestionInfo
from kedge.domain.text import mend_text
from kedge.engine.turns import Turn

_DEFAULT_TIME = 120_000
_LONGEST_TIME = 600_000
_SHORT = 4096
"""Characters of a line that is parsed quickly."""

_DESCRIPTION = f"""
    Runs a command line with bash and gives back what it writes to its output and error output. Use
    it to build, test, run and install, and for git.

    - Not for files: read instead of cat, head and tail; grep instead of grep and rg; glob instead
      of find and ls; the editing tools (edit and write, or apply_patch) instead of sed, awk, echo
      and heredocs. Say what you have to say in your answer, not with echo.
    - It starts in the session's directory. Pass `workdir` to start elsewhere instead of `cd`: each
      call is a new shell, and carries nothing over from the last one, neither the directory nor
      variables.
    - It gets no input and no terminal. Use options that keep programs from asking (`-y`,
      `--no-edit`, `CI=1`) and from paging (`git --no-pager`).
    - Its environment has no keys of model providers.
    - Join commands that depend on each other with `&&`. Independent ones are calls of their own in
      one step. Quote paths that hold spaces.
    - It is stopped, with all that it started, after 2 minutes, or after `timeout`: 10 minutes at
      most. Start what should go on, such as a server, with `&`.
    - Of an output above {DEFAULT.max_lines:,} lines or {DEFAULT.max_bytes // 1024} KiB you get the
      beginning and the end; the whole is in a file that is named, which you can search with grep.
      So do not cut it with head or tail yourself, and do not run a slow command twice to see more.
    - With git, look as much as you like (status, diff, log, show); commit, push, or change branches
      only when asked, and never throw away changes that are not yours.

    Example: command "npm test -- --run user", workdir "packages/api", timeout 300000.
"""


@tool("bash", description=_DESCRIPTION)
async def bash(
    call: Call,
    command: Annotated[str, "The command line, as bash understands it"],
    timeout: Annotated[  # noqa: ASYNC109 - the name that models know
        float | None, "Milliseconds after which it is stopped; 120000 if not given, 600000 at most"
    ] = None,
    workdir: Annotated[
        str | None, "The directory to start in; leave it out for the session's"
    ] = None,
    description: Annotated[
        str | None, "What it does, in five to ten words, for the person who watches"
    ] = None,
) -> Output:
    """Run a command line of the model."""
    line = _checked(command)
    if timeout is not None and not timeout > 0:
        raise ToolFailure("The timeout must be more than 0 milliseconds. Call it again with more.")
    directory = call.directory if workdir is None else call.path(workdir)
    await _ask(call, line, directory)

    async def told(output: str) -> bool:
        return await call.progress(output=output)

    await told("")
    await call.observes()
    time = min(timeout or _DEFAULT_TIME, _LONGEST_TIME)
    ran = await _started(
        run(call, line, shell=models_shell(), directory=directory, limit=time / 1000, told=told),
        directory,
    )
    notes = _notes(ran, time)
    return Output(_with_notes(ran.output, notes), title=command, metadata=_metadata(ran))


async def run_line(call: Call, command: str) -> Output:
    """Run a line of a command's template: it is asked for as a model's line is. The text is what it
    writes."""
    line = _checked(command)
    directory = call.directory
    await _ask(call, line, directory)

    async def told(output: str) -> bool:
        return await call.progress(output=output)

    await call.observes()
    limit = _DEFAULT_TIME / 1000
    ran = await _started(
        run(call, line, shell=models_shell(), directory=directory, limit=limit, told=told),
        directory,
    )
    notes = [] if ran.exit is not None else _notes(ran, _DEFAULT_TIME)
    text = _with_notes(ran.output, notes) if notes else ran.output
    return Output(text, title=command, metadata=_metadata(ran))


async def run_shell(call: Call, command: str) -> Output:
    """Run a user's own command line: without asking, and without a time limit."""
    line = _checked(command)

    async def told(output: str) -> bool:
        return await call.progress(output=output)

    await call.observes()
    directory = call.directory
    ran = await _started(
        run(call, line, shell=users_shell(), directory=directory, limit=None, told=told),
        directory,
    )
    metadata = _metadata(ran)
    if not ran.is_cut:
        # Clients know the field only from a model's commands.
        del metadata["truncated"]
    return Output(ran.output, metadata=metadata)


def _checked(command: str) -> str:
    """The command line, valid for a shell."""
    if not command.strip():
        raise ToolFailure("There is no command. Call it again with one.")
    if "\0" in command:
        raise ToolFailure("A command cannot hold NUL characters. Call it again without them.")
    return mend_text(command)


async def _ask(call: Call, command: str, directory: Path) -> None:
    # Not in a thread, unless it takes long: calls of one step ask in their order.
    is_short = len(command) <= _SHORT
    look = partial(_look, command, directory)
    named, asked = look() if is_short else await asyncio.to_thread(look)
    before = real(directory)
    outside = [str(folder / "*") for folder in _outside(call, [directory, *named.paths])]
    # As a pattern, one with such a name would match other folders; the root would match all of
    # them.
    always = [each for each in outside if not re.search(r"[*?].|^/\*", each)]
    if not named.is_known:
        outside.append(UNCERTAIN + command)
        # Only the same line may be allowed for good, and no other.
        always += [] if set("*?") & set(command) else [UNCERTAIN + command]
    if outside:
        await call.ask("external_directory", outside, always=always, metadata={"command": command})
    await call.forbid("bash", asked.hints)
    await _ask_edit(call, command, named, is_shown=await _is_asked(call, asked))
    await call.ask("bash", asked.patterns, always=asked.always, metadata={"command": command})
    if real(directory) != before:
        raise ToolFailure(f"{directory} is another folder by now. Call it again.")


async def _is_asked(call: Call, asked: AskedRules) -> bool:
    """Whether the user will be shown the line anyway."""
    return set(asked.patterns) != await call.unasked("bash", asked.patterns)


async def _ask_edit(call: Call, command: str, named: Places, *, is_shown: bool) -> None:
    """Refuse a line that certainly writes what may not be edited. Ask where that is possible, and
    each time for git's own files."""
    paths = [place_of(call, str(path)) for path in named.written]
    folders = [place_of(call, str(path)) for path in named.written_in]
    patterns = [pattern for place in paths for pattern in _edited(place)]
    doubtful = await call.forbid(
        "edit", [*patterns, *(UNCERTAIN + each for each in named.unplaced)]
    )
    asked = [IN_GIT + place.shown for place in (*paths, *folders) if place.is_inside_git]
    asked += [] if is_shown else doubtful
    if asked:
        shown = ", ".join(place.shown for place in paths)
        metadata = {"command": command, "filepath": shown}
        await call.ask("edit", list(dict.fromkeys(asked)), always=[], metadata=metadata)


def _edited(place: FilePlace) -> Iterator[str]:
    """The texts that rules match; for a folder also its contents."""
    for pattern in place.patterns:
        yield pattern
        if os.path.isdir(place.real):
            yield os.path.join(pattern, "*")


def _look(command: str, directory: Path) -> tuple[Places, AskedRules]:
    parsed = parse(command)
    return places(parsed, directory), asked_of(command, parsed)


def _outside(call: Call, paths: Sequence[Path]) -> list[Path]:
    """The folders of paths outside of the worktree."""
    leading = [real(path) for path in paths if not call.is_inside(path)]
    return list(dict.fromkeys(each if os.path.isdir(each) else each.parent for each in leading))


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


def _metadata(ran: Ran) -> dict[str, Any]:
    made = {"output": ran.preview, "exit": ran.exit, "truncated": ran.is_cut}
    return made if ran.kept is None else {**made, "outputPath": str(ran.kept)}


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


OWN_COMMAND = "The following tool was executed by the user"


class PersonAsker:
    """What a person runs needs no permission."""

    withheld = ()

    async def permission(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: Call,
    ) -> None:
        """Allowed."""

    async def forbid(self, permission: str, texts: Iterable[str], *, call: Call) -> list[str]:
        """Allowed."""
        return []

    async def rule(self, permission: str, text: str, *, call: Call) -> PermissionRule:
        """Allowed."""
        return PermissionRule(permission="*", pattern="*", action="allow")

    async def unasked(self, permission: str, texts: Iterable[str], *, call: Call) -> set[str]:
        """All allowed."""
        return set(texts)

    async def question(self, questions: Sequence[QuestionInfo], *, call: Call) -> list[list[str]]:
        """It asks no questions."""
        raise AssertionError("what a person runs asks no questions")


async def run_own_command(
    turn: Turn, *, command: str, is_protected: bool, limit: ToolOutputConfig
) -> None:
    """Run a command as the only call of the turn's only step."""
    turn.is_protected = turn.is_protected and is_protected
    async with turn.step() as step:
        async with step.tool("bash", {"command": command}) as running:
            try:
                output = await run_shell(Call(step, running, PersonAsker(), limit=limit), command)
            except ToolFailure as failure:
                running.fail(str(failure))
            else:
                running.output, running.title = output.text, output.title
                running.metadata = {**output.metadata, **note_limit(output.text, limit)}
        step.finish = "stop"
