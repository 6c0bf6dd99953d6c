"""What the tests of reverts are written with: turns that write files, and what is told of paths."""

import os
from collections.abc import Callable
from pathlib import Path

from kedge.domain.receipts import Receipt
from kedge.engine.session import Session
from kedge.engine.steps import Step


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    """End the process."""
    raise Crash


def put(path: Path, text: str | None) -> None:
    """Write a file, whatever folders that takes, or delete it."""
    if text is None:
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def lines(*changed: tuple[int, str], count: int = 9) -> str:
    """Numbered lines, some of which are others."""
    others = dict(changed)
    return "".join(f"{others.get(n, n)}\n" for n in range(count))


async def write(step: Step, path: Path, text: str | None) -> str:
    """A declared call that writes a file, or deletes it; gives the id of its part."""
    async with step.tool("write", {}, reads=[path], writes=[path]) as call:
        put(path, text)
    return call.part.id


async def turn(session: Session, *files: tuple[Path, str | None]) -> str:
    """A turn that writes files; gives the id of its prompt."""
    async with session.turn("Go on") as begun, begun.step() as step:
        await step.text("Done.")
        for path, text in files:
            await write(step, path, text)
    return begun.message.id


async def shell(session: Session, *works: Callable[[], object], title: str = "") -> str:
    """A turn with a call of unknown effect that does all of this; gives the id of its prompt."""
    async with (
        session.turn("Go on") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown") as call,
    ):
        for work in works:
            work()
        call.title = title
    return begun.message.id


def told(receipt: Receipt) -> dict[str, str]:
    """What became of each path."""
    return {entry.path: entry.outcome.value for entry in receipt.files}


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything that is in a folder: permission bits and content of files, targets of links."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = 0, os.fsencode(path.readlink())
        elif path.is_file():
            found[name] = path.stat().st_mode, path.read_bytes()
        else:
            found[name] = path.stat().st_mode, b"/"
    return found
