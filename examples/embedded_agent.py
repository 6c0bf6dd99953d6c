"""The built-in agent inside a program: a tool of one's own, a permission, what happens, a revert.

The offline model does what its prompt says, so that this runs without a key and without a network.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import kedge
from kedge import (
    BUILTIN,
    Agent,
    Call,
    Output,
    PermissionRule,
    Subscription,
    TextPart,
    ToolCompleted,
    ToolPart,
    tool,
)
from kedge.events import PartUpdated, PermissionAsked, SessionIdle

PROMPT = """
say First the tide, then the plan.
call tide {"harbour": "Kiel"}
write plan.md Sail at six.
bash cat plan.md
say The plan is written.
"""


@tool("tide", description="Tells when the water is high.")
async def tide(call: Call, harbour: Annotated[str, "The name of the harbour"]) -> Output:
    """A tool is a typed function; here it asks before it answers."""
    await call.ask("tide", [harbour])
    return Output(f"High water in {harbour} is at six.", title=harbour)


async def watch(engine: kedge.Engine, events: Subscription) -> None:
    """Print what happens, and allow what is asked for, until the session is idle again."""
    async for event in events:
        match event.properties:
            case PermissionAsked(id=id, permission=permission, patterns=patterns):
                print(f"  may it {permission} {', '.join(patterns)}? once")
                await engine.asks.reply_permission(id, "once")
            case PartUpdated(part=ToolPart(tool=name, state=ToolCompleted() as done)):
                print(f"  {name} ({done.title}): {done.output.splitlines()[0]}")
            case PartUpdated(part=TextPart(text=text, time=time)) if time and time.end:
                print(f"  {text}")
            case SessionIdle():
                return


async def main(folder: Path) -> None:
    """One prompt, and all it did taken back."""
    project = folder / "project"
    project.mkdir()
    ask_first = PermissionRule(permission="tide", pattern="*", action="ask")
    async with (
        kedge.open(project, data_dir=folder / "data") as engine,
        # Without `environ` it reads your configuration, and so uses your models.
        Agent(engine, tools=[*BUILTIN, tide], environ={"HOME": str(folder)}) as agent,
    ):
        session = await engine.sessions.create("The tide", permission=[ask_first])
        async with engine.events.subscribe(session=session.id) as events:
            watching = asyncio.create_task(watch(engine, events))
            print("The agent works:")
            answer = await agent.prompt(session, PROMPT)
            await watching
        print(f"Its files: {files(project)}")
        receipt = await session.revert(answer.info.parentID)
        print(f"Taken back: {', '.join(f'{each.path} {each.outcome}' for each in receipt.files)}")
        print(f"Its files: {files(project)}")


def files(folder: Path) -> str:
    """What is in a folder."""
    return ", ".join(sorted(path.name for path in folder.iterdir())) or "none"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
