"""An agent of one's own on the turn API: a toy model, two tools, a person who is asked, an undo."""

import asyncio
import tempfile
from pathlib import Path

import kedge
from kedge import (
    MessageWithParts,
    Step,
    Subscription,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    Turn,
)
from kedge.events import PartUpdated, PermissionAsked, SessionIdle

PROMPT = "bread, sweets, milk"


def model(messages: list[MessageWithParts]) -> tuple[str, str, str]:
    """Stands in for a model: what it says next, and the tool it calls with what, if any."""
    prompt = next(part.text for part in messages[0].parts if isinstance(part, TextPart))
    wanted = prompt.split(", ")
    calls = [part for each in messages for part in each.parts if isinstance(part, ToolPart)]
    if not calls:
        return "Let me look at the list.", "look", ""
    if len(calls) <= len(wanted):
        item = wanted[len(calls) - 1]
        return f"I put {item} on it.", "add", item
    done = [call for call in calls[1:] if isinstance(call.state, ToolCompleted)]
    return f"{len(done)} of {len(wanted)} are on the list.", "", ""


async def answer(session: kedge.Session, prompt: str, file: Path) -> None:
    """The loop: ask the model, do what it wants, ask again."""
    async with session.turn(prompt) as turn:
        tool = "?"
        while tool:
            said, tool, item = model((await session.messages()).messages)
            async with turn.step() as step:
                await step.text(said)
                if tool == "look":
                    await look(step, file)
                elif tool == "add":
                    await add(turn, step, file, item)


async def look(step: Step, file: Path) -> None:
    """A tool that reads: the session knows from now on what is in the file."""
    async with step.tool("look", {}, reads=[file]) as call:
        call.output = await asyncio.to_thread(file.read_text)


async def add(turn: Turn, step: Step, file: Path, item: str) -> None:
    """A tool that writes, if it may; so its change can be undone."""
    async with step.tool("add", {"item": item}) as call:
        answer = await turn.engine.asks.permission(turn, "add", [item])
        if answer.reply == "reject":
            call.fail(answer.message or "The person does not want that.")
            return
        await call.declare(reads=[file], writes=[file])
        append(file, item)
        call.output = "It is on the list."


def append(file: Path, line: str) -> None:
    """Write one more line."""
    with file.open("a") as opened:
        opened.write(f"{line}\n")


async def person(engine: kedge.Engine, events: Subscription) -> None:
    """Watch, and answer what is asked, as a user interface in any other process could."""
    async for event in events:
        match event.properties:
            case PartUpdated(part=TextPart(text=text)):
                print(f"  {text}")
            case PartUpdated(part=ToolPart(tool=tool, state=ToolCompleted())):
                print(f"    {tool}: done")
            case PartUpdated(part=ToolPart(tool=tool, state=ToolError(error=error))):
                print(f"    {tool}: {error}")
            case PermissionAsked(id=id, patterns=["sweets"]):
                await engine.asks.reply_permission(id, "reject", "No sweets today.")
            case PermissionAsked(id=id):
                await engine.asks.reply_permission(id, "once")
            case SessionIdle():
                return


async def main(folder: Path) -> None:
    """Have three things put on a list, and take it back."""
    file = folder / "list.txt"
    file.write_text("eggs\n")
    async with kedge.open(folder, data_dir=folder / ".kedge") as engine:
        session = await engine.sessions.create("Shopping")
        async with engine.events.subscribe(session=session.id) as events:
            watching = asyncio.create_task(person(engine, events))
            await answer(session, PROMPT, file)
            await watching
        show("On the list", file)
        prompt = (await session.messages()).messages[0].info.id
        receipt = await session.revert(prompt)
        show(f"Undone ({receipt.files[0].outcome})", file)


def show(title: str, file: Path) -> None:
    """What the list holds now."""
    print(f"{title}: {', '.join(file.read_text().split())}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
