"""Commands: named prompts with places for arguments, of kedge, the configuration, and skills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from kedge.agent.expansion import Expanded, Piece, ShellLine, expanded, hints, pieces
from kedge.agent.permissions import PermissionRejected, Permissions
from kedge.agent.references import references
from kedge.agent.skills import base_folder, skills_of
from kedge.agent.tools.bash import run_line
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import ToolFailure
from kedge.config.values import CommandConfig, Config, ToolOutputConfig
from kedge.domain.agents import AgentInfo
from kedge.domain.commands import Command
from kedge.domain.errors import CommandNotFound, KedgeError
from kedge.domain.messages import MessageModel
from kedge.engine.turns import Turn

if TYPE_CHECKING:
    from kedge.agent.context import Choice, Surroundings

INIT = "init"
_REVIEW = "review"

_INIT_TEMPLATE = """\
Write `AGENTS.md` in the root of this project, or improve the one that is there. It is read at the \
beginning of every session with a coding agent, and should keep that agent from the mistakes that \
somebody new to the project makes.

What the user says about it: $ARGUMENTS

1. Look around first: README, manifests and lock files, build, lint and test settings, CI, and \
instructions for agents that exist already (`CLAUDE.md`, `.cursor/rules`, `.github/copilot-\
instructions.md`). Then read the code where these leave questions open. Believe what runs over \
what is written about it.
2. Write what cannot be seen at a glance: how to build, lint and run one test; how the parts \
depend on each other and where to begin; conventions that differ from what is usual; steps in an \
order that matters; traps. Leave out what any agent knows, lists of files, and advice that fits \
every project.
3. Be short: a page is plenty, every line checked. If the file exists, keep what is right and \
well said, correct what is wrong, and remove what is of no use.

If something important can only be answered by the user, ask, once and briefly."""

_REVIEW_TEMPLATE = """\
Review changes and report what is wrong with them. Change nothing.

What to review: $ARGUMENTS

- Nothing is named: what is not committed yet (`git status --short`, `git diff`, `git diff \
--cached`), new files included.
- A commit: `git show` it. A branch: compare it with where it left the main branch (`git diff \
main...BRANCH`). A number or an address of a pull request: `gh pr view` and `gh pr diff`.

Read the changed files as a whole, not the diff alone, and who uses what has changed. Look for \
mistakes first: wrong results, cases that are not handled, errors that are lost, races, holes in \
security, data that can be lost. Then for what is slow where it matters, for tests that are \
missing, and for what does not fit the rest of the project. Do not report matters of taste, what \
was there before, or what you only suspect: find out, or say what is not certain.

For each finding say where (`path:line`), what is wrong, when it happens, and what would be \
better, the worst first. If there is nothing, say so."""

_BUILT_IN = {
    INIT: CommandConfig(
        description="write AGENTS.md, the instructions for agents in this project",
        template=_INIT_TEMPLATE,
    ),
    _REVIEW: CommandConfig(
        description="review a commit, a branch or a pull request; else what is not committed",
        template=_REVIEW_TEMPLATE,
        subtask=True,
    ),
}


class Commands:
    """The commands of one configuration."""

    def __init__(self, config: Config) -> None:
        found = {**_BUILT_IN, **config.command}
        self._commands = {name: _command(name, given) for name, given in found.items()}
        for skill in skills_of(config):
            template = f"{skill.content}\n\n{base_folder(skill)}"
            self._commands.setdefault(
                skill.name,
                Command(
                    name=skill.name,
                    description=skill.description,
                    source="skill",
                    template=template,
                    hints=hints(template),
                ),
            )

    def list(self) -> Sequence[Command]:
        """All commands: kedge's own, those of the configuration, and skills."""
        return list(self._commands.values())

    def get(self, name: str) -> Command:
        """A command by its name."""
        if name not in self._commands:
            raise CommandNotFound(name, sorted(self._commands))
        return self._commands[name]


def _command(name: str, given: CommandConfig) -> Command:
    return Command(
        name=name,
        description=given.description,
        agent=given.agent,
        model=given.model,
        source="command",
        template=given.template,
        subtask=given.subtask,
        hints=hints(given.template),
    )


class CommandOptions(TypedDict, total=False):
    """Options of a command; what the command itself says takes precedence."""

    agent: str | None
    model: MessageModel | str | None
    """The model, or `provider/model`."""
    variant: str | None
    message_id: str | None
    """The id of the prompt. A prompt that exists already is not asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """A command with its arguments, and who answers it."""

    command: Command
    pieces: Sequence[Piece]
    options: CommandOptions
    agent: AgentInfo
    """Who works on it: in a subtask, not the one that answers the prompt."""
    choice: "Choice"
    is_subtask: bool

    @property
    def lines(self) -> list[str]:
        """The shell lines of its template, each once, in order."""
        lines = (piece.command for piece in self.pieces if isinstance(piece, ShellLine))
        return list(dict.fromkeys(line for line in lines if line.strip()))

    def text(self, outputs: Mapping[str, str]) -> Expanded:
        """The text of the prompt, with the outputs of its lines."""
        lines = [piece.command for piece in self.pieces if isinstance(piece, ShellLine)]
        return expanded(self.pieces, {**dict.fromkeys(lines, ""), **outputs})


def command_call(
    around: "Surroundings",
    name: str,
    arguments: str,
    options: CommandOptions,
    *,
    has_subtasks: bool,
) -> CommandCall:
    """What a command asks for; raises if it, its agent or its model does not exist."""
    command = around.commands.get(name)
    agent = around.agents.get(command.agent or options.get("agent"))
    is_task = command.subtask is True or (agent.mode == "subagent" and command.subtask is not False)
    named = command.model or (agent.model if command.agent else None) or options.get("model")
    variant = options.get("variant")
    choice = around.chosen(agent.name, named, variant)
    answering: CommandOptions = {**options, "agent": agent.name, "model": named}
    if is_task and has_subtasks:
        # The session's own agent goes on with what the subtask finds.
        answering = {**options}
        around.chosen(options.get("agent"), options.get("model"), variant)
    return CommandCall(
        command=command,
        pieces=pieces(command.template, arguments),
        options=answering,
        agent=agent,
        choice=choice,
        is_subtask=is_task and has_subtasks,
    )


def prompt_parts(
    call: CommandCall,
    outputs: Mapping[str, str],
    around: "Surroundings",
    *,
    worktree: str,
    home: str,
    given: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The parts of the prompt that a command becomes. It looks at the disk."""
    made = call.text(outputs)
    command = call.command
    if call.is_subtask:
        model = call.choice.model
        subtask = {
            "type": "subtask",
            "agent": call.agent.name,
            "description": command.description or "",
            "command": command.name,
            "model": {"providerID": model.providerID, "modelID": model.modelID},
            "prompt": made.text,
        }
        return [subtask]
    agents = {agent.name for agent in around.agents.list()}
    found = references(
        made.text,
        worktree=worktree,
        home=home,
        agents=agents,
        without=made.outputs,
    )
    known = {part.get("url") for part in given}
    mentioned = [part for part in found if part.get("url") not in known or part["type"] == "agent"]
    return [{"type": "text", "text": made.text}, *mentioned, *map(dict, given)]


async def run_lines(
    turn: Turn,
    *,
    lines: Sequence[str],
    outputs: dict[str, str],
    asker: Permissions,
    is_protected: bool,
    limit: ToolOutputConfig,
) -> None:
    """Run the lines of a template, one after the other, as calls of the turn's only step; put what
    they write into `outputs`. It ends with the first that is not permitted."""
    turn.is_protected = turn.is_protected and is_protected
    async with turn.step() as step:
        for line in lines:
            async with step.tool("bash", {"command": line}) as running:
                try:
                    output = await run_line(Call(step, running, asker, limit=limit), line)
                except (ToolFailure, PermissionRejected, KedgeError) as error:
                    running.fail(str(error))
                    break
                running.output = "(What it wrote is in the prompt that follows.)"
                running.title, running.metadata = output.title, dict(output.metadata)
                outputs[line] = output.text
        step.finish = "stop"


def lines_told(name: str) -> dict[str, Any]:
    """The prompt of the turn that runs the lines of a command."""
    text = f"The command /{name} runs these lines before it is asked"
    return {"type": "text", "text": text, "synthetic": True}
