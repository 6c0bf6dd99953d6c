"""Kills servers at random moments while clients use them over HTTP, starts them again, and looks
whether everything that was acknowledged is there and whether everything that was cut says so.

`python -m tests.torture.http_kill --seed S --kills N [--postgres]` does what a failed test did.
"""

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from kedge.engine.doctor.doctor import examine
from kedge.engine.doctor.findings import Severity
from tests.engine.doctor.clinic import PLENTY
from tests.server.world import Client
from tests.support import environment, postgres
from tests.torture.http_clients import Clients
from tests.torture.http_judge import Follower, Judge
from tests.torture.http_ledger import Known, Ledger, Prompt
from tests.torture.http_server import AtKill, Place, ServerEnded, ServerProcess, build, look
from tests.torture.http_trees import CutPatch, MovingTree, begin_patch, grow
from tests.torture.orders import ROOT

KINDS = ("load", "load", "start", "revert", "patch")
"""What a kill comes in the middle of; each five of them have all of these, in any order."""
ACKNOWLEDGEMENTS = 30
"""A kill in the middle of load comes after at most so many of them."""
LATER = 0.2
"""Seconds that it comes later than that, at most."""
CLIENTS = 3
FILES = {"small": 25, "large": 1000}
"""Files that a revert touches."""
PATCHED = 150
REPEATS = 2
"""Prompts that are sent again after each kill."""
_CHECKS_OF_STORES = 10
"""Git looks at the snapshots after so many kills."""


class World:
    """A server's data through all kills of one seed, and what its clients know of it."""

    def __init__(self, seed: int, place: Place, say: Callable[[str], object] = len) -> None:
        self.ledger = Ledger(seed, say)
        self.starts: list[float] = []
        """Seconds until each start had answered."""
        self._place = place
        self._followers = [Follower("/global/event"), Follower("/event")]
        self._trees: list[MovingTree] = []
        self._patch: CutPatch | None = None
        self._left: list[AtKill] = []
        """What each kill left since somebody last looked."""

    async def live_and_die(self, kills: int) -> None:
        """Kill the server so many times, and look once more."""
        try:
            while self.ledger.kills < kills:
                await self._one_kill()
            await self._serve("", random.Random(0))
            await self._examine()
        except ServerEnded as error:
            said = self._place.complaints.read_text()[-2000:]
            self.ledger.blame("no start", f"{error}: {said}")

    async def _examine(self) -> None:
        """The doctor calls the data healthy."""
        place = self._place
        report = await examine(
            place.work, data_dir=place.data, database=place.database, limits=lambda: PLENTY
        )
        for finding in report.findings:
            if finding.severity is not Severity.NOTICE:
                self.ledger.blame("doctor", f"{finding.code}: {finding.what}")

    async def _one_kill(self) -> None:
        begun, ledger = time.monotonic(), self.ledger
        kind, chance = self._kind(), self._chance("what clients do")
        if kind == "start" and self._left:
            await self._start_and_kill(chance)
        else:
            await self._serve(kind, chance)
        ledger.kills += 1
        ledger.counts[f"kills, {kind}"] += 1
        left = await look(self._place)
        self._left.append(left)
        ledger.counts["answers cut"] += left.unfinished
        ledger.counts["reverts cut"] += len(left.reverting)
        if left.integrity != "ok":
            ledger.blame("integrity", left.integrity)
        ledger.say(f"kill {ledger.kills}, {kind}: {time.monotonic() - begun:.1f} s")

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self.ledger.seed} {self.ledger.kills} {what}")

    def _kind(self) -> str:
        five, number = divmod(self.ledger.kills, len(KINDS))
        return random.Random(f"{self.ledger.seed} {five}").sample(KINDS, len(KINDS))[number]

    async def _start_and_kill(self, chance: random.Random) -> None:
        server = await ServerProcess.start(self._place)
        usual = statistics.median(self.starts)
        await asyncio.sleep(chance.random() * 1.5 * usual)
        await server.kill()

    async def _serve(self, kind: str, chance: random.Random) -> None:
        """One life that serves: look at what the last kills left, then work until the next one."""
        server = await ServerProcess.start(self._place)
        try:
            client = await server.client()
            self.starts.append(server.answered)
            async with asyncio.TaskGroup() as group:
                await self._use(server, client, kind, chance, group)
                await server.kill()
        finally:
            await server.kill()

    async def _use(
        self,
        server: ServerProcess,
        client: Client,
        kind: str,
        chance: random.Random,
        group: asyncio.TaskGroup,
    ) -> None:
        clients = Clients(self.ledger, self._place, client, chance)
        for follower in self._followers:
            group.create_task(follower.follow(client))
        group.create_task(clients.answer_asks())
        if not self._trees:
            for follower in self._followers:
                await follower.until_it_hears()
            self._trees = [await grow(clients, name, number) for name, number in FILES.items()]
        await self._look(Judge(self.ledger, self._place, clients, server.pid))
        if kind:
            await self._work(clients, kind, chance, group)

    async def _look(self, judge: Judge) -> None:
        """Is everything as it should be after the last kills?"""
        await judge.settle(self._left)
        await judge.look(self._left, self._followers)
        judge.trees(self._trees)
        sent = self._sent_again()
        self.ledger.touched = set()
        for prompt, session in sent:
            await judge.repeat(prompt, session)
        if self._patch is not None:
            await judge.undo(self._patch)
        if self.ledger.kills % _CHECKS_OF_STORES == 0:
            await asyncio.to_thread(judge.stores)
        self._left, self._patch = [], None

    def _sent_again(self) -> list[tuple[Prompt, Known]]:
        """Some of the prompts that clients would send again after a kill, of a session each."""
        chance, again = self._chance("again"), list[tuple[Prompt, Known]]()
        for session in (self.ledger.sessions[id] for id in sorted(self.ledger.touched)):
            prompts = [
                each
                for each in session.prompts
                if each.id is not None and not each.may_be_gone and each.outcome != "unanswered"
            ]
            if prompts and session.deleted == [False] and session.boundaries == [None]:
                again.append((chance.choice(prompts), session))
        return chance.sample(again, min(REPEATS, len(again)))

    async def _work(
        self, clients: Clients, kind: str, chance: random.Random, group: asyncio.TaskGroup
    ) -> None:
        """Begin something, and come to the moment of the kill."""
        if kind == "revert":
            tree = self._trees[(self.ledger.kills // len(KINDS) + 1) % len(self._trees)]
            group.create_task(tree.move(clients, chance))
            await asyncio.sleep(chance.random() * 2 * tree.usual)
        elif kind == "patch":
            self._patch = await begin_patch(clients, PATCHED)
            await self._patch.until_written(chance.randrange(PATCHED))
        else:
            for _ in range(CLIENTS):
                group.create_task(clients.work())
            group.create_task(self._trees[0].move(clients, chance))
            await self.ledger.until_acknowledged(chance.randrange(ACKNOWLEDGEMENTS))
            await asyncio.sleep(chance.random() * LATER)


def report(worlds: Sequence[World]) -> str:
    """The figures of some worlds, with what was wrong."""
    counts: Counter[str] = Counter()
    for world in worlds:
        counts.update(world.ledger.counts)
    starts = sorted(start for world in worlds for start in world.starts)
    at = {each: starts[min(len(starts) - 1, len(starts) * each // 100)] for each in (50, 95, 99)}
    wrong = Counter(kind for world in worlds for kind, _ in world.ledger.wrong)
    return "\n".join(
        [
            f"{sum(world.ledger.kills for world in worlds)} kills: "
            + ", ".join(f"{number} {name}" for name, number in sorted(counts.items())),
            f"{len(starts)} starts until health and sessions were answered: "
            + ", ".join(f"p{percent} {seconds:.2f} s" for percent, seconds in at.items())
            + f", longest {starts[-1]:.2f} s, {sum(each > 2 for each in starts)} over 2 s",
            f"{wrong.total()} wrong: "
            + ", ".join(f"{number} {kind}" for kind, number in wrong.most_common()),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one seed, and say what was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.http_kill", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="another kedge to kill")
    given = parser.parse_args(arguments)
    environment.isolate()
    root = Path(tempfile.mkdtemp(prefix="kedge-kills-"))
    with ExitStack() as stack:
        database = None
        if given.postgres:
            server = postgres.server_url(environment.run_folder())
            database = stack.enter_context(postgres.fresh_database(server))
        place = build(root, database, given.checkout)
        world = World(given.seed, place, lambda text: sys.stderr.write(f"{text}\n"))
        asyncio.run(world.live_and_die(given.kills))
    environment.dispose()
    sys.stdout.write(f"{report([world])}\n")
    if world.ledger.wrong:
        sys.stdout.write(f"{root}\n")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
