"""What it costs a tool call that kedge finds out whose change it is, by how large the tree is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import kedge
from bench.engines import protecting
from bench.figures import Figure, ratio
from bench.rounds import Candidate, Work, side_by_side
from bench.scratch import Scratch
from bench.trees import Tree, committed, sizes
from kedge.engine.steps import Step

_UNPROTECTED = kedge.Settings(snapshots=False)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls that each write one file of a tree: recorded, not recorded, and without a call."""

    tree: Tree
    protected: Step
    plain: Step
    track: Callable[[], Awaitable[object]]
    numbers: "count[int]" = field(default_factory=count)

    def candidates(self) -> list[Candidate]:
        """A declared call, one of unknown effect, one of an engine that protects nothing, and a
        bare snapshot; in this order."""
        return [
            self._after_a_snapshot(self._declared),
            self._after_a_snapshot(self._unknown),
            self._after_a_snapshot(self._plain),
            Candidate(self._snapshot),
        ]

    def _after_a_snapshot(self, call: Callable[[Path], Awaitable[None]]) -> Candidate:
        """A call pays for what it does, and not for what was done to the tree before."""

        async def prepare() -> Work:
            await self.track()
            file = self._next()
            return lambda: call(file)

        return Candidate(prepare)

    async def _snapshot(self) -> Work:
        await self.track()
        self._write(self._next())
        return self.track

    async def _declared(self, file: Path) -> None:
        await self._call(self.protected, file, reads=[file], writes=[file])

    async def _unknown(self, file: Path) -> None:
        await self._call(self.protected, file, effects="unknown")

    async def _plain(self, file: Path) -> None:
        await self._call(self.plain, file)

    async def _call(self, step: Step, file: Path, **effects: Any) -> None:  # noqa: ANN401
        async with step.tool("edit", {}, **effects):
            self._write(file)

    def _next(self) -> Path:
        """Another file each time."""
        return self.tree.root / self.tree.files[next(self.numbers) * 7 % len(self.tree.files)]

    def _write(self, file: Path) -> None:
        file.write_text(f"# {next(self.numbers)}\n" + "an edited line\n" * 20)


async def attribution(scratch: Scratch) -> AsyncIterator[Figure]:
    """Calls in a small and in a large tree, all in turn."""
    small, _, large = (committed(scratch, size) for size in sizes(scratch))
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(_at_work(scratch, each)) for each in (small, large)]
        scratch.say("calling tools in a small and in a large tree")
        candidates = [each for calls in both for each in calls.candidates()]
        samples = await side_by_side(candidates, scratch.size(100, 2))
    halves = samples[:4], samples[4:]
    for tree, (declared, unknown, plain, snapshot) in zip((small, large), halves, strict=True):
        yield ratio(f"declared call in {tree.size} / unprotected", declared, plain)
        yield ratio(f"call of unknown effect in {tree.size} / unprotected", unknown, plain)
        yield ratio(f"call of unknown effect in {tree.size} / snapshot", unknown, snapshot)
    for name, at in (("declared call", 0), ("call of unknown effect", 1)):
        yield ratio(f"{name}: in {large.size} / in {small.size}", halves[1][at], halves[0][at])


@asynccontextmanager
async def _at_work(scratch: Scratch, tree: Tree) -> AsyncIterator[Calls]:
    """A step of an engine that protects the tree, and one of an engine that does not."""
    async with (
        protecting(scratch, tree) as engine,
        scratch.engine(directory=tree.root, settings=_UNPROTECTED) as other,
        _step(engine) as protected,
        _step(other) as plain,
    ):
        snapshots = await engine.snapshots()
        yield Calls(tree, protected, plain, snapshots.track)


@asynccontextmanager
async def _step(engine: kedge.Engine) -> AsyncIterator[Step]:
    session = await engine.sessions.create()
    async with session.turn("Call tools") as turn, turn.step() as step:
        yield step
