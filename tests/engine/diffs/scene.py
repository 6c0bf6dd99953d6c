"""A conversation that changes files, written straight to the database and to the object store."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kedge.domain.file_states import Absent, Known, Present
from kedge.domain.messages import (
    AssistantMessage,
    MessageModel,
    MessagePath,
    MessageTime,
    UserMessage,
)
from kedge.domain.parts import StepFinishPart, StepStartPart
from kedge.domain.sessions import NO_TOKENS
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.snapshot.aio import AsyncSnapshots
from kedge.store.queries.changes import (
    ChangeSource,
    Home,
    NewChange,
    add_changes,
    begin_task_turn,
)
from kedge.store.queries.timeline import next_number
from kedge.store.transaction import Script

PLAIN = 0o100644


@dataclass
class Talk:
    """One session and what is said in it."""

    engine: Engine
    session: Session
    snapshots: AsyncSnapshots
    prompts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    @classmethod
    async def begin(
        cls, engine: Engine, *, parent: str | None = None, directory: str | None = None
    ) -> "Talk":
        """A new session."""
        session = await engine.sessions.create(parent=parent, directory=directory)
        return cls(engine, session, await session.snapshots())

    def write(self, name: str, content: str) -> None:
        """Somebody writes a file of the worktree."""
        Path(self.session.worktree, name).write_text(content)

    async def snapshot(self) -> str:
        """A snapshot of the worktree as it is now."""
        return (await self.snapshots.track(session=self.session.id)).id

    async def prompt(self) -> str:
        """Somebody asks something; the id of the message."""
        message = UserMessage(
            id=self.engine.ids.message(),
            sessionID=self.session.id,
            time=MessageTime(created=self.engine.clock.now()),
            agent="build",
            model=MessageModel(providerID="p", modelID="m"),
        )
        await self.session.put_message(message)
        self.prompts.append(message.id)
        return message.id

    async def answer(self, prompt: str | None = None) -> str:
        """The model answers a prompt, by default the last one; the id of the message."""
        message = AssistantMessage(
            id=self.engine.ids.message(),
            sessionID=self.session.id,
            parentID=self.prompts[-1] if prompt is None else prompt,
            mode="build",
            agent="build",
            modelID="m",
            providerID="p",
            path=MessagePath(cwd=self.session.info.directory, root=self.session.worktree),
            cost=0,
            tokens=NO_TOKENS,
            time=MessageTime(created=self.engine.clock.now()),
        )
        await self.session.put_message(message)
        self.answers.append(message.id)
        return message.id

    async def step_start(self, message: str, snapshot: str | None) -> None:
        """The step of an answer begins."""
        await self.session.put_part(
            StepStartPart(
                id=self.engine.ids.part(),
                sessionID=self.session.id,
                messageID=message,
                snapshot=snapshot,
            )
        )

    async def step_finish(self, message: str, snapshot: str | None) -> None:
        """The step of an answer ends."""
        await self.session.put_part(
            StepFinishPart(
                id=self.engine.ids.part(),
                sessionID=self.session.id,
                messageID=message,
                snapshot=snapshot,
                reason="stop",
                cost=0,
                tokens=NO_TOKENS,
            )
        )

    async def blob(self, content: str | bytes | None, mode: int = PLAIN) -> Known:
        """A state with this content, which is in the object store."""
        if content is None:
            return Absent()
        raw = content.encode() if isinstance(content, str) else content
        (blob,) = await self.snapshots.put_blobs([raw], session=self.session.id)
        return Present(blob, mode)

    async def change(
        self,
        path: str | bytes,
        before: str | bytes | None,
        after: str | bytes | None,
        *,
        message: str | None = None,
        source: ChangeSource = "declared",
    ) -> None:
        """A tool call of an answer, by default the last one, changes a file."""
        change = NewChange(
            path=path.encode() if isinstance(path, str) else path,
            before=await self.blob(before),
            after=await self.blob(after),
            source=source,
        )
        await self.add([change], message=message)

    async def add(
        self, changes: list[NewChange], *, message: str | None = None, part: str | None = None
    ) -> None:
        """Record changes of one tool call."""
        home = Home(
            session_id=self.session.id,
            message_id=self.answers[-1] if message is None else message,
            part_id=self.engine.ids.part() if part is None else part,
            worktree=self.session.worktree,
        )

        def script() -> Script[None]:
            number = yield from next_number()
            yield from add_changes(home, changes, number=number)

        await self.engine.store.write_bulk(script)

    async def work_for(self, parent: Session, pos: int) -> None:
        """The turn that begins at a position is a subtask of the parent's newest part."""
        await self.engine.store.write(partial(begin_task_turn, self.session.id, pos, parent.id))
