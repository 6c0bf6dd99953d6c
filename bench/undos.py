"""What it costs to undo one call of a session, by how many calls the session has made."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import kedge
from bench.engines import protecting
from bench.figures import Figure, ratio
from bench.rounds import Candidate, Work, side_by_side
from bench.scratch import Scratch
from bench.trees import Tree, committed, sizes

_CALLS_OF_A_FILE = 4
_LINES = 40


async def undos(scratch: Scratch) -> AsyncIterator[Figure]:
    """One call in the middle of a long session and of a short one, each with later calls in the
    same file; in one tree and one run."""
    small, _, _ = sizes(scratch)
    tree = committed(scratch, small)
    numbers = (scratch.size(2_000, 40), 20)
    async with protecting(scratch, tree) as engine:
        worlds = [await Calls.made(engine, tree, number) for number in numbers]
        many, few = numbers
        name = f"{many:,} calls / {few} calls"
        rounds = scratch.size(30, 2)
        scratch.say(f"undoing and redoing one call: {name}")
        undone = await side_by_side([Candidate(each.undo) for each in worlds], rounds)
        yield ratio(f"undo of one call, session of {name}", *undone, target=1.5)
        redone = await side_by_side([Candidate(each.redo) for each in worlds], rounds)
        yield ratio(f"redo of one call, session of {name}", *redone, target=1.5)


@dataclass(frozen=True, slots=True)
class Calls:
    """A session that made many calls, and the one that is undone."""

    session: kedge.Session
    call_id: str

    @classmethod
    async def made(cls, engine: kedge.Engine, tree: Tree, number: int) -> "Calls":
        """A session of as many calls; every file is changed by a few of them, in other lines."""
        folder = tree.root / f"calls {number}"
        folder.mkdir()
        session = await engine.sessions.create()
        files = [folder / f"{n}.txt" for n in range(-(-number // _CALLS_OF_A_FILE))]
        for file in files:
            file.write_text("".join(f"line {n} of {file.name}\n" for n in range(_LINES)))
        middle = number // 2
        async with session.turn("Change these files") as turn, turn.step() as step:
            for n in range(number):
                file = files[n % len(files)]
                async with step.tool("edit", {}, reads=[file], writes=[file], call_id=f"call_{n}"):
                    _edit(file, n // len(files))
        return cls(session, f"call_{middle % len(files) + len(files)}")

    async def undo(self) -> Work:
        """An undo, with the call in effect before."""
        await self.session.redo(calls=[self.call_id])

        async def work() -> None:
            assert (await self.session.undo(calls=[self.call_id])).applied

        return work

    async def redo(self) -> Work:
        """A redo, with the call undone before."""
        await self.session.undo(calls=[self.call_id])

        async def work() -> None:
            assert (await self.session.redo(calls=[self.call_id])).applied

        return work


def _edit(file: Path, times: int) -> None:
    lines = file.read_text().splitlines(keepends=True)
    lines[times * (_LINES // _CALLS_OF_A_FILE)] = f"changed {times}\n"
    file.write_text("".join(lines))
