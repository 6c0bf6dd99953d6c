"""A program as a user of kedge writes it: only public names; `test_library` runs and checks it.

An agent of its own, pages, events, undo, forks, search, and the agent that comes with kedge.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import kedge
from kedge import (
    BUILTIN,
    Agent,
    Answer,
    AssistantMessage,
    Call,
    Engine,
    Event,
    FileDiff,
    MessageWithParts,
    Output,
    PermissionRule,
    Receipt,
    ReceiptOutcome,
    RevertScope,
    RevertStrategy,
    Session,
    Step,
    Subscription,
    TextPart,
    Todo,
    ToolCompleted,
    ToolPart,
    Turn,
    UserMessage,
    tool,
)
from kedge.errors import CallerError, FileChanged, SessionNotFound
from kedge.events import MessageUpdated, PartUpdated, PermissionAsked, SessionIdle

NOTES = {"first.txt": "one\n", "second.txt": "two\n"}


async def own_agent(session: Session, folder: Path) -> str:
    """A turn of an agent of its own; gives the id of the prompt."""
    async with session.turn("Write two notes, then build") as turn:
        async with turn.step() as step:
            await step.text("I write the notes.")
            for name, text in NOTES.items():
                await write(step, folder / name, text)
            await step.set_todos([Todo(content="Build it", status="in_progress", priority="high")])
        await build(turn, folder)
    return turn.message.id


async def write(step: Step, file: Path, text: str) -> None:
    """A tool that says which file it writes."""
    async with step.tool("write", {"filePath": str(file)}, writes=[file]) as call:
        await asyncio.to_thread(file.write_text, text)
        call.output = f"{len(text)} characters"


async def build(turn: Turn, folder: Path) -> None:
    """A tool of which nobody knows what it does."""
    async with turn.step() as step:
        async with step.tool("bash", {"command": "make"}, effects="unknown") as call:
            (folder / "made.txt").write_text("by a program\n")
            call.output = "made"
        async with step.speak() as out:
            for piece in ("All ", "done."):
                await out.write(piece)
        step.tokens = kedge.TokenCount(
            input=10, output=5, reasoning=0, cache=kedge.CacheCount(read=0, write=0)
        )
        step.cost = 0.01


async def sessions_of(engine: Engine) -> AsyncIterator[Session]:
    """Every session, page by page."""
    cursor: str | None = None
    while True:
        page = await engine.sessions.list(limit=1, cursor=cursor)
        for session in page.sessions:
            yield session
        cursor = page.cursor
        if cursor is None:
            return


async def messages_of(session: Session) -> list[MessageWithParts]:
    """The whole conversation, oldest first, read from its end."""
    page = await session.messages(limit=2)
    found = page.messages
    while page.older is not None:
        page = await session.messages(limit=2, before=page.older)
        found = [*page.messages, *found]
    return found


def told(message: MessageWithParts) -> str:
    """Who said what, and which tools worked."""
    match message.info:
        case UserMessage(agent=agent):
            who = f"person to {agent}"
        case AssistantMessage(parentID=parent, finish=finish):
            assert parent.startswith("msg_")
            who = f"model, {finish}"
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    calls = [
        f"{part.tool}: {part.state.output}"
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
    ]
    return f"{who}: {'; '.join([*texts, *calls])}"


async def prompts_heard(events: Subscription) -> list[str]:
    """The prompts that came until a session was idle."""
    found: list[str] = []
    async for event in events:
        match event.properties:
            case MessageUpdated(info=UserMessage(id=id)) if id not in found:
                found.append(id)
            case SessionIdle():
                break
            case _:
                assert is_dated(event)
    return found


def is_dated(event: Event) -> bool:
    """Whether one can go on after an event."""
    return event.cursor is not None or event.type.endswith(".delta")


async def undo(session: Session, prompt: str, folder: Path) -> None:
    """Ask first, then undo what is wanted, and redo it."""
    strategy: RevertStrategy = "merge"
    scope: RevertScope = "files"
    foreseen = await session.revert(prompt, strategy=strategy, dry_run=True)
    assert not foreseen.applied
    assert (folder / "made.txt").exists()
    some = await session.revert(prompt, scope=scope, files=["first.txt"])
    print("undone:", outcomes(some))
    print("redone:", outcomes(await session.unrevert()))
    whole = await session.revert(prompt, strategy=foreseen.strategy)
    print("undone:", outcomes(whole))
    print("redone:", outcomes(await session.unrevert()))


def outcomes(receipt: Receipt) -> dict[str, str]:
    """What became of each path that did not stay as it was."""
    return {
        entry.path: entry.outcome.value
        for entry in receipt.files
        if entry.outcome not in (ReceiptOutcome.UNCHANGED, ReceiptOutcome.SKIPPED)
    }


def lines(diffs: list[FileDiff]) -> str:
    """How much changed."""
    return ", ".join(f"{each.file} +{each.additions} -{each.deletions}" for each in diffs)


@tool("tide", description="Tells when the water is high.")
async def tide(call: Call, harbour: Annotated[str, "The name of the harbour"]) -> Output:
    """A tool for the agent that comes with kedge."""
    await call.ask("tide", [harbour])
    return Output(f"High water in {harbour} is at six.", title=harbour)


async def allow_all(engine: Engine, events: Subscription) -> int:
    """Say yes to what the agent asks, until it is idle; gives how often."""
    asked = 0
    async for event in events:
        properties = event.properties
        if isinstance(properties, PermissionAsked):
            asked += 1
            await engine.asks.reply_permission(properties.id, "once")
        elif isinstance(properties, PartUpdated) and isinstance(properties.part, ToolPart):
            assert properties.part.tool == "tide" or properties.part.tool == "write"
        elif isinstance(properties, SessionIdle):
            break
    return asked


async def built_in_agent(engine: Engine, agent: Agent) -> Answer:
    """Two prompts for the agent; what it did is undone again."""
    rule = PermissionRule(permission="tide", pattern="*", action="ask")
    session = await engine.sessions.create("The tide", permission=[rule])
    note = await agent.prompt(session, "The harbour is Kiel.", no_reply=True)
    async with engine.events.subscribe(session=session.id) as events:
        allowing = asyncio.create_task(allow_all(engine, events))
        answer = await agent.prompt(
            session,
            'call tide {"harbour": "Kiel"}\nwrite plan.md Sail at six.\nsay The plan is written.',
            model="kedge/offline",
        )
        print("asked:", await allowing)
    assert answer.info.parentID != note.info.id
    receipt = await session.revert(answer.info.parentID)
    print("undone:", outcomes(receipt))
    return answer


async def refused(engine: Engine, session: Session, folder: Path) -> None:
    """What is wrong is raised, by its class."""
    try:
        await engine.sessions.get("ses_nowhere")
    except CallerError as error:
        print("refused:", isinstance(error, SessionNotFound), error.data)
    (folder / "second.txt").write_text("a person's\n")
    try:
        async with session.turn("Again") as turn, turn.step() as step:
            await write(step, folder / "second.txt", "three\n")
    except FileChanged as error:
        print("refused:", type(error).__name__)


async def main(folder: Path, data: Path) -> None:
    """All of it, in one folder."""
    settings = kedge.Settings(queue_length=4096)
    async with kedge.open(folder, data_dir=data, settings=settings) as engine:
        start = await engine.events.head()
        session = await engine.sessions.create("Notes", metadata={"ticket": 17})
        prompt = await own_agent(session, folder)
        async with engine.events.subscribe(after=start, session=session.id) as events:
            assert await prompts_heard(events) == [prompt]
        messages = await messages_of(session)
        for message in messages:
            print(told(message))
        print("todos:", [todo.content for todo in await session.todos()])
        print("diff:", lines(await session.diff()))
        print("tree:", [entry.name for entry in await session.tree(messages[-1].info.id)])
        await undo(session, prompt, folder)
        fork = await session.fork()
        assert fork.origin is not None
        assert fork.origin.sessionID == session.id
        hits = (await engine.sessions.search("notes")).hits
        print("found:", sorted({hit.session.title for hit in hits}))
        print("sessions:", sorted([each.title async for each in sessions_of(engine)]))
        await refused(engine, session, folder)
        async with Agent(engine, tools=[*BUILTIN, tide], environ={"HOME": str(data)}) as agent:
            answer = await built_in_agent(engine, agent)
            print("answer:", told(answer))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
