"""Two sessions and a person in one file: one session is undone and redone, nobody else is."""

import asyncio
import tempfile
from pathlib import Path

import kedge
from kedge import Session

START = "name: kedge\ncolour: grey\nsize: small\nweight: 5 kg\nprice: 20\n"


async def edit(session: Session, file: Path, old: str, new: str) -> None:
    """A turn of an agent that reads a file and changes one line of it."""
    async with (
        session.turn(f"{old} -> {new}") as turn,
        turn.step() as step,
        step.tool("edit", {"filePath": file.name}, reads=[file], writes=[file]) as call,
    ):
        replace(file, old, new)
        call.output = "done"


def replace(file: Path, old: str, new: str) -> None:
    """Change one line of a file, be it a tool or a person."""
    file.write_text(file.read_text().replace(old, new))


def show(title: str, file: Path) -> None:
    """What the file holds now."""
    print(f"{title}:")
    print("".join(f"  {line}\n" for line in file.read_text().splitlines()), end="")


async def main(folder: Path) -> None:
    """Edit, undo, redo."""
    file = folder / "anchor.txt"
    file.write_text(START)
    async with kedge.open(folder, data_dir=folder / ".kedge") as engine:
        one = await engine.sessions.create("one")
        two = await engine.sessions.create("two")
        await edit(one, file, "name: kedge", "name: bower")
        await edit(two, file, "size: small", "size: large")
        replace(file, "price: 20", "price: 25")
        show("After two sessions and a person", file)
        prompt = (await one.messages()).messages[0].info.id
        receipt = await one.revert(prompt)
        show(f"Session one undone ({receipt.files[0].outcome})", file)
        receipt = await one.unrevert()
        show(f"And redone ({receipt.files[0].outcome})", file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
