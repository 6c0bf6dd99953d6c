"""Sessions whose files are known at every moment, to be reverted and unreverted over HTTP."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.engine.crash_world import Tree, files, whole
from tests.support.polling import until
from tests.torture.http_clients import LOST, Clients, patch
from tests.torture.http_ledger import Known, Prompt


@dataclass(slots=True)
class MovingTree:
    """A folder that two turns of a session changed; nobody else touches it."""

    folder: Path
    session: Known
    at: dict[str | None, Tree]
    """The files with each boundary."""
    usual: float = 0.5
    """Seconds that the last move took."""

    async def move(self, clients: Clients, chance: random.Random) -> None:
        """Revert and unrevert until the server is gone."""
        boundary = self.session.boundaries[0]
        try:
            while True:
                boundary = chance.choice([each for each in self.at if each != boundary])
                begun = time.monotonic()
                if boundary is None:
                    await clients.unrevert(self.session)
                else:
                    await clients.revert(self.session, boundary)
                self.usual = time.monotonic() - begun
        except LOST:
            return

    def differences(self, boundary: str | None) -> list[str]:
        """Paths that are not as they should be."""
        found, wanted = now(self.folder), self.at[boundary]
        return sorted(
            path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path)
        )


async def grow(clients: Clients, name: str, number: int) -> MovingTree:
    """Let one command make many files, and a patch change, remove and add some."""
    folder = clients.place.work / name
    session = await clients.create()
    at: dict[str | None, Tree] = {}
    write = f"echo one {name} $n > {name}/old/$n"
    make = f"mkdir -p {name}/old; for n in $(seq {number}); do {write}; done"
    changed = [
        f"*** Update File: {name}/old/{n}\n@@\n-one {name} {n}\n+two {name} {n}" for n in (1, 3, 5)
    ]
    removed = [f"*** Delete File: {name}/old/{n}" for n in (2, 4)]
    added = f"*** Add File: {name}/new/1\n+two {name}"
    change = "\n".join(["*** Begin Patch", *changed, *removed, added, "*** End Patch"])
    for text in (f"bash {make}", f"patch <<END\n{change}\nEND"):
        mark = clients.ledger.next_mark()
        before = now(folder)
        prompt = Prompt(mark, f"{text}\nsay done-{mark}.", lines=0)
        await clients.prompt(session, prompt)
        assert prompt.id is not None, text
        at[prompt.id] = before
        assert now(folder) != before, text
    return MovingTree(folder, session, {**at, None: now(folder)})


def now(folder: Path) -> Tree:
    """The files of a folder that need not exist."""
    return files(whole(folder)) if folder.exists() else {}


@dataclass(slots=True)
class CutPatch:
    """A patch of many files that a kill may have cut; a revert takes back exactly what it did."""

    folder: Path
    session: Known
    prompt: Prompt

    async def until_written(self, files: int) -> None:
        """Wait until so many files are there."""
        await until(lambda: len(list(self.folder.glob("*.txt"))) >= files)


async def begin_patch(clients: Clients, number: int) -> CutPatch:
    """Ask for a patch, and do not wait for it."""
    mark = clients.ledger.next_mark()
    session = await clients.create()
    prompt = Prompt(mark, f"{patch(f'cut/{mark}', number)}\nsay done-{mark}.", lines=0)
    prompt.id = clients.new_id()
    await clients.prompt_async(session, prompt)
    return CutPatch(clients.place.work / "cut" / mark, session, prompt)
