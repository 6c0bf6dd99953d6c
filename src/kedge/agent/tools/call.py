"""A tool's view of the session that called it."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from kedge.agent.output_limit import DEFAULT
from kedge.config.values import ToolOutputConfig
from kedge.domain.child_processes import OWN_SECRETS
from kedge.domain.events import FileEdited
from kedge.domain.parts import FilePart
from kedge.domain.permissions import PermissionRule
from kedge.domain.questions import QuestionInfo

if TYPE_CHECKING:
    from kedge.agent.folder_instructions import FolderInstructions
    from kedge.agent.subagents import Subagents
    from kedge.domain.commands import Skill
    from kedge.engine.engine import Engine
    from kedge.engine.files.edits import FileWork
    from kedge.engine.parts import ToolCall
    from kedge.engine.session import Session
    from kedge.engine.steps import Step


class Asker(Protocol):
    """Decides whether a call may do something, and puts questions to the user."""

    @property
    def withheld(self) -> Collection[str]:
        """The environment variables that are withheld from programs of the call."""

    async def permission(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: "Call",
    ) -> None:
        """Return when it is permitted; raise when it is not."""

    async def forbid(self, permission: str, texts: Iterable[str], *, call: "Call") -> list[str]:
        """Raise if a rule denies one of the texts; return those whose meaning is not certain, where
        a rule denies anything."""

    async def rule(self, permission: str, text: str, *, call: "Call") -> PermissionRule:
        """The rule that decides about a text, whatever a person allowed."""

    async def unasked(self, permission: str, texts: Iterable[str], *, call: "Call") -> set[str]:
        """The texts that need no answer of the user."""

    async def question(self, questions: Sequence[QuestionInfo], *, call: "Call") -> list[list[str]]:
        """The user's answers: for each question the chosen labels."""


class Call:
    """One call of a tool, from its permission to its end. It is cancelled when the turn is
    aborted."""

    limit: ToolOutputConfig = DEFAULT
    """How much of its output is stored and sent."""
    folders: "FolderInstructions | None" = None
    """The instruction files of folders, if they are to be sent."""
    subagents: "Subagents | None" = None
    """The other agents, if it may give them tasks."""

    skills: "Mapping[str, Skill]" = MappingProxyType({})
    """The skills that may be read."""

    def __init__(
        self,
        step: "Step",
        running: "ToolCall",
        asker: Asker,
        *,
        limit: ToolOutputConfig = DEFAULT,
        folders: "FolderInstructions | None" = None,
        skills: "Mapping[str, Skill] | None" = None,
        subagents: "Subagents | None" = None,
    ) -> None:
        self.step = step
        self.limit = limit
        self.folders = folders
        self.skills = skills or {}
        self.subagents = subagents
        self._running = running
        self._asker = asker

    @property
    def session(self) -> "Session":
        """The session that called."""
        return self.step.turn.session

    @property
    def engine(self) -> "Engine":
        """The engine that the session belongs to."""
        return self.step.turn.engine

    @property
    def directory(self) -> Path:
        """The session's directory: relative paths start here."""
        return Path(self.session.info.directory)

    @property
    def worktree(self) -> Path:
        """The root of the worktree that the directory lies in."""
        return Path(self.session.worktree)

    @property
    def message_id(self) -> str:
        """The assistant message that the call belongs to."""
        return self.step.message.id

    @property
    def call_id(self) -> str:
        """The id that the model gave the call."""
        return self._running.part.callID

    @property
    def part_id(self) -> str:
        """The id of the call's part."""
        return self._running.part.id

    def environ(self) -> dict[str, str]:
        """The environment of programs that the call starts."""
        hidden = {*OWN_SECRETS, *self._asker.withheld}
        return {name: value for name, value in os.environ.items() if name not in hidden}

    def path(self, given: str) -> Path:
        """The absolute path that the model means, without `..`; symlinks are not resolved."""
        return Path(os.path.normpath(self.directory / os.path.expanduser(given)))

    def shown(self, path: Path) -> str:
        """A path for titles: relative to the worktree if it is inside."""
        return os.path.relpath(path, self.worktree) if self.is_inside(path) else str(path)

    def is_inside(self, path: Path) -> bool:
        """Whether a path, with all symlinks on its way resolved, is inside the session's worktree
        or directory."""
        real = _real(path)
        return any(
            real.is_relative_to(os.path.realpath(root)) for root in (self.worktree, self.directory)
        )

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = ("*",),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Go on if the rules, or the user, allow all of the patterns; raise if not."""
        await self._asker.permission(
            permission, patterns, always=always, metadata=metadata or {}, call=self
        )

    async def forbid(self, permission: str, texts: Iterable[str]) -> list[str]:
        """Raise if a rule denies one of the texts; go on without asking if none does. Returns those
        whose meaning is not certain, where a rule denies anything."""
        return await self._asker.forbid(permission, texts, call=self)

    async def rule(self, permission: str, text: str) -> PermissionRule:
        """The rule that decides about a text, whatever a person allowed for good."""
        return await self._asker.rule(permission, text, call=self)

    async def unasked(self, permission: str, texts: Iterable[str]) -> set[str]:
        """The texts that need no answer of the user."""
        return await self._asker.unasked(permission, texts, call=self)

    async def ask_outside(self, path: Path, *, is_folder: bool = False) -> None:
        """Ask for paths outside of the worktree; those inside need no permission."""
        if self.is_inside(path):
            return
        real = _real(path)
        folder = real if is_folder else real.parent
        pattern = str(folder / "*")
        await self.ask(
            "external_directory",
            [pattern],
            always=[pattern],
            metadata={"filepath": str(real), "parentDir": str(folder)},
        )

    async def question(self, questions: Sequence[QuestionInfo]) -> list[list[str]]:
        """Put questions to the user and wait for the answers."""
        return await self._asker.question(questions, call=self)

    async def reads(self, *paths: Path) -> None:
        """Declare which files the session knows from now on. Call it before they are read."""
        await self._running.declare(reads=paths)

    async def writes(
        self,
        *paths: Path,
        reads: Sequence[Path] = (),
        work: "FileWork | None" = None,
    ) -> None:
        """Lock these files until the call ends, and record their changes.

        Raises `FileChanged` where the session does not know the current content. Call it after all
        permissions were given, and read the files after it. `work` is for kedge's own tools: its
        steps are stored, because their temporary files outlive a crash.
        """
        await self._running.declare(writes=paths, reads=reads, work=work)

    def still_at_work(self) -> Callable[[], None]:
        """A check that raises `LeaseLost` if another process has taken over the session since
        `writes` was called; made before that, and called in a thread before each file is
        written."""
        return partial(self.engine.runs.still_held(), self.step.turn.fence)

    async def observes(self) -> None:
        """From here to the end of the call, record changes to any file of the worktree."""
        await self._running.declare(effects="unknown")

    async def show(self, *, title: str | None = None, **metadata: Any) -> None:  # noqa: ANN401
        """Show the user at once what must not be missed."""
        await self._running.show(title=title, **metadata)

    def keep(self, **metadata: Any) -> None:  # noqa: ANN401
        """Metadata that the call ends with, also if it fails."""
        self._running.keep(**metadata)

    async def progress(self, *, title: str | None = None, **metadata: Any) -> bool:  # noqa: ANN401
        """Show the user how far it has come; return whether it is shown now, or with the next."""
        return await self._running.progress(title=title, **metadata)

    def edited(self, path: Path) -> None:
        """Announce to subscribers that a file was written, moved or deleted."""
        info = self.session.info
        self.engine.events.announce(
            FileEdited(file=str(path)),
            session_id=info.id,
            project_id=info.projectID,
            directory=info.directory,
        )

    def attachment(self, *, mime: str, url: str, filename: str | None = None) -> FilePart:
        """A file that is sent to the model with the output."""
        return FilePart(
            id=self.engine.ids.part(),
            sessionID=self.session.id,
            messageID=self.message_id,
            mime=mime,
            filename=filename,
            url=url,
        )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
