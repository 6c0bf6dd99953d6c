"""A first look at kedge: a turn, its events, a fork and a search, all in a temporary folder.

It is not an agent: what a model would say is written down here.
"""

import asyncio
import tempfile
from pathlib import Path

import kedge
from kedge import Event, Subscription, ToolPart, UserMessage
from kedge.events import MessageUpdated, PartDelta, PartUpdated, SessionIdle


async def tour(project: Path, data: Path) -> None:
    """Work in one engine, then look in a second one at what is left."""
    async with kedge.open(project, data_dir=data) as engine:
        session = await engine.sessions.create("A greeting")
        print("A turn, as a listener hears it:")
        async with engine.events.subscribe(session=session.id) as events:
            listener = asyncio.create_task(show(events))
            await greet(session, project / "hello.txt")
            await listener
    print("After everything was closed and opened again:")
    async with kedge.open(project, data_dir=data) as engine:
        await look(engine, session.id)


async def greet(session: kedge.Session, file: Path) -> None:
    """One turn of two steps; the first calls a tool."""
    async with session.turn("Please greet the world in a file") as turn:
        async with turn.step() as step:
            async with step.speak() as out:
                for piece in ("I write ", "the file."):
                    await out.write(piece)
            async with step.tool("write", {"filePath": str(file), "content": "Hello\n"}) as call:
                await asyncio.to_thread(file.write_text, "Hello\n")
                call.title, call.output = file.name, "Wrote file successfully."
        async with turn.step() as step:
            await step.text("The world is greeted.")


async def show(events: Subscription) -> None:
    """Print what is worth it until the session is idle again."""
    async for event in events:
        if line := describe(event):
            print(f"  {event.type:20}  {line}")
        if event.type == SessionIdle.type:
            return


def describe(event: Event) -> str | None:
    """What a person wants to know of an event, if anything."""
    match event.properties:
        case MessageUpdated(info=UserMessage()):
            return "the prompt is stored, the turn begins"
        case PartDelta(delta=delta):
            return repr(delta)
        case PartUpdated(part=ToolPart(tool=tool, state=state)):
            return f"{tool}: {type(state).__name__.removeprefix('Tool').lower()}"
        case SessionIdle():
            return "the turn is over"
        case _:
            return None


async def look(engine: kedge.Engine, id: str) -> None:
    """Read the conversation, fork it, search it."""
    session = await engine.sessions.get(id)
    for message in (await session.messages()).messages:
        kinds = [type(part).__name__.removesuffix("Part") for part in message.parts]
        print(f"  {type(message.info).__name__:20}  {', '.join(kinds)}")
    fork = await session.fork()
    print(f"  {'fork':20}  {fork.title!r}, {len((await fork.messages()).messages)} messages")
    for hit in (await engine.sessions.search("world")).hits:
        print(f"  {'search for world':20}  {hit.session.title!r}: {hit.excerpt}")


def main() -> None:
    """Take the tour in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        asyncio.run(tour(project, Path(folder, "data")))


if __name__ == "__main__":
    main()
