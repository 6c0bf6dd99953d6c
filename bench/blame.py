"""Blame of a long file that was changed often, compared with `git blame` on the same history."""

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kedge
from bench.figures import Figure, ratio
from bench.opencode_git import git
from bench.rounds import Candidate, Work, side_by_side, steady
from bench.scratch import Scratch

_PLACES = 5
"""Where each change replaces lines."""
_NAME = "file.py"


async def blame(scratch: Scratch) -> AsyncIterator[Figure]:
    """The first time, again, and after one more change."""
    lines, changes = scratch.size(10_000, 500), scratch.size(200, 10)
    folder, repository = scratch.path("blamed"), scratch.path("blamed-by-git")
    for each in (folder, repository):
        each.mkdir()
    scratch.say(f"changing {lines:,} lines {changes} times")
    versions = list(_versions(lines, changes))
    _commit(repository, versions)
    async with scratch.engine(directory=folder) as engine:
        blamed = Blamed(engine, folder, repository)
        await blamed.write(versions)
        blamed.check(await engine.blame(_NAME))
        scratch.say(f"asking who wrote {lines:,} lines")
        name = f"of {lines:,} lines, {changes} changes"
        ours = [Candidate(blamed.forgotten), Candidate(blamed.remembered)]
        rounds = scratch.size(7, 2)
        git_blame = steady(blamed.with_git)
        first, again, theirs = await side_by_side([*ours, git_blame], rounds)
        yield ratio(f"blame {name} / git blame", first, theirs, target=10)
        yield ratio(f"blame again {name} / git blame", again, theirs)
        later, theirs = await side_by_side([Candidate(blamed.one_more), git_blame], rounds)
        yield ratio(f"blame after one more change {name} / git blame", later, theirs)


@dataclass(slots=True)
class Blamed:
    """A file, and two histories of it that are the same."""

    engine: kedge.Engine
    folder: Path
    repository: Path
    session: kedge.Session = field(init=False)
    calls: list[str] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(2))

    async def write(self, versions: list[list[str]]) -> None:
        """The first version is there before kedge, each other one is a call."""
        (self.folder / _NAME).write_text("".join(versions[0]))
        self.session = await self.engine.sessions.create()
        for version in versions[1:]:
            await self._call("".join(version))

    async def _call(self, text: str) -> None:
        async with (
            self.session.turn("Change it") as turn,
            turn.step() as step,
            step.tool("write", {}, reads=[_NAME], writes=[_NAME]) as call,
        ):
            (self.folder / _NAME).write_text(text)
            self.calls.append(call.part.id)

    def check(self, found: kedge.Blame) -> None:
        """Each line says which change it is from."""
        for line in found.lines:
            _, is_changed, number = line.text.partition(" by ")
            wanted = self.calls[int(number) - 1] if is_changed else None
            assert found.origins[line.origin].partID == wanted, line

    async def forgotten(self) -> Work:
        """Nothing is remembered."""
        self.engine._blames = None
        return self._ask

    async def remembered(self) -> Work:
        """The answer is known."""
        await self._ask()
        return self._ask

    async def one_more(self) -> Work:
        """All but the last change is known."""
        await self._ask()
        lines = (self.folder / _NAME).read_text().splitlines(keepends=True)
        _change(lines, len(self.calls) + 1, self._random)
        await self._call("".join(lines))
        return self._ask

    async def _ask(self) -> None:
        await self.engine.blame(_NAME)

    async def with_git(self) -> None:
        """What git takes, as a process."""
        git("blame", _NAME, folder=self.repository)


def _versions(lines: int, changes: int) -> Iterator[list[str]]:
    chance = random.Random(1)
    text = [f"    line {n} of {chance.randrange(10**9)}\n" for n in range(lines)]
    yield list(text)
    for number in range(1, changes + 1):
        _change(text, number, chance)
        yield list(text)


def _change(text: list[str], number: int, chance: random.Random) -> None:
    for _ in range(_PLACES):
        at = chance.randrange(len(text) - 3)
        fresh = range(chance.randint(2, 4))
        text[at : at + 3] = [f"    line {chance.randrange(10**9)} by {number}\n" for _ in fresh]


def _commit(repository: Path, versions: list[list[str]]) -> None:
    git("init", "-q", "-b", "main", folder=repository)
    stream: list[bytes] = []
    for number, version in enumerate(versions):
        text = "".join(version).encode()
        stream.append(
            b"commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata 1\nx\n"
            b"M 100644 inline %b\ndata %d\n%b\n"
            % (1_600_000_000 + number, _NAME.encode(), len(text), text)
        )
    git("fast-import", "--quiet", folder=repository, given=b"".join(stream))
    git("reset", "-q", "--hard", "main", folder=repository)
