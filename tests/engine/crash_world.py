"""A worktree in which two turns did everything that can be done to files, and what it looked like
before, between and after them; made to be reverted by processes that are killed."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.receipts import Receipt
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.snapshot.files.steps import is_own_name
from kedge.store.queries.plans import open_plans
from tests.engine.revert.scene import lines, put, tree

State = tuple[int, bytes]
Tree = Mapping[str, State]
"""Mode and content of every file, target of every symlink, mode of every folder."""


@dataclass(frozen=True, slots=True)
class World:
    """A session of two turns, and the files at its three moments."""

    folder: Path
    session: str
    first: str
    """The prompt of the first turn,"""
    second: str
    """and of the second."""
    bare: Tree
    """Before both turns,"""
    half: Tree
    """between them,"""
    full: Tree
    """and after them."""

    def at(self, boundary: str | None) -> Tree:
        """The files as they should be with this boundary pending."""
        return {None: self.full, self.first: self.bare, self.second: self.half}[boundary]

    @property
    def paths(self) -> list[str]:
        """Every path that is a file at some moment."""
        return sorted(files(self.bare) | files(self.half) | files(self.full))


async def build(engine: Engine, folder: Path) -> World:
    """Make the worktree and let a session work in it; a person has changed one file since."""
    _lay(folder)
    bare = whole(folder)
    session = await engine.sessions.create()
    first = await _first_turn(session, folder)
    half = whole(folder)
    second = await _second_turn(session, folder)
    put(folder / "merged", lines((1, "two"), (8, "theirs")))
    their_line: State = (bare["merged"][0], lines((8, "theirs")).encode())
    their_half: State = (bare["merged"][0], lines((1, "one"), (8, "theirs")).encode())
    return World(
        folder,
        session.id,
        first,
        second,
        bare=dict(bare) | {"merged": their_line},
        half=dict(half) | {"merged": their_half},
        full=whole(folder),
    )


def whole(folder: Path) -> Tree:
    """All that is in a worktree now, kedge's own short-lived files left out."""
    return {path: each for path, each in tree(folder).items() if not _is_own(path)}


def files(found: Tree) -> dict[str, State]:
    """A tree without its folders: which of them stay depends on who made them."""
    return {path: each for path, each in found.items() if each[1] != b"/"}


def left_over(folder: Path) -> list[str]:
    """Tree of kedge's own that are still there, also such as it keeps for somebody."""
    return [path for path in tree(folder) if ".kedge-" in path]


async def boundary_of(engine: Engine, session: Session) -> tuple[str | None, Receipt | None]:
    """The pending boundary and the receipt that belongs to it; nothing may be half done."""
    await session.refresh()
    plans = await engine.store.read(lambda: open_plans(session.id))
    assert [plan.state for plan in plans] == ["pending"] * len(plans)
    if session.info.revert is None:
        # What an unrevert had to leave alone waits for another one.
        assert {plan.kind for plan in plans} <= {"files"}
        return None, None
    assert plans[-1].data.messageID == session.info.revert.messageID
    return session.info.revert.messageID, plans[-1].data.receipt


def _is_own(path: str) -> bool:
    return is_own_name(os.fsencode(path).rpartition(b"/")[2])


def _lay(folder: Path) -> None:
    for name in ("edited", "script", "gone/deep/file", "swapped", "turned/below"):
        put(folder / name, f"{name} in the beginning\n")
    put(folder / "merged", lines())
    put(folder / "private", "a secret\n")
    (folder / "private").chmod(0o600)
    (folder / "link").symlink_to("edited")


async def _first_turn(session: Session, folder: Path) -> str:
    async with session.turn("Go on") as begun, begun.step() as step:
        await step.text("Working.")
        async with step.tool("write", {}, reads=_in(folder), writes=_in(folder)):
            put(folder / "edited", "one\n")
            put(folder / "private", "another secret\n")
            put(folder / "merged", lines((1, "one")))
            put(folder / "made/deep/file", "one\n")
            (folder / "made/deep/file").chmod(0o640)
        async with step.tool("bash", {}, effects="unknown"):
            (folder / "script").chmod(0o755)
            _point(folder / "link", "script")
            shutil.rmtree(folder / "gone")
            (folder / "swapped").unlink()
            put(folder / "swapped/below/deep", "one\n")
            shutil.rmtree(folder / "turned")
            put(folder / "turned", "one\n")
    return begun.message.id


async def _second_turn(session: Session, folder: Path) -> str:
    async with session.turn("Go on") as begun, begun.step() as step:
        await step.text("Working.")
        async with step.tool("write", {}, reads=_in(folder), writes=_in(folder)):
            put(folder / "edited", "two\n")
            put(folder / "merged", lines((1, "two")))
            shutil.rmtree(folder / "made/deep")
            put(folder / "made/late", "two\n")
        async with step.tool("bash", {}, effects="unknown"):
            (folder / "script").chmod(0o700)
            (folder / "link").unlink()
            put(folder / "link/is/a/folder", "two\n")
            put(folder / "swapped/below/deep", "two\n")
            put(folder / "turned", "two\n")
            put(folder / "observed", "two\n")
    return begun.message.id


def _in(folder: Path) -> list[Path]:
    """What the declared calls say they touch."""
    names = ("edited", "private", "merged", "made/deep/file", "made/late")
    return [folder / name for name in names]


def _point(link: Path, target: str) -> None:
    link.unlink()
    link.symlink_to(target)
