"""Several nodes on a PostgreSQL server that loses connections and restarts, and that are paused
themselves: a prompt that was acknowledged runs exactly once, or its answer says why it did not."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kedge.domain.ids import IdMaker
from tests.server.world import Client
from tests.support.cluster import Cluster, Mode, find_binaries
from tests.support.postgres import HOW_TO_MEND, fresh_database
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[2]
LEASE = 1.0
LOOK = 0.05
NODES = 3

_END_SOME = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < %s"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server of the test's own, which it may restart."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(f"no PostgreSQL that can be restarted; {HOW_TO_MEND}")
    cluster = Cluster(binaries=binaries, record=tmp_path_factory.mktemp("cluster") / "cluster")
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def database(cluster: Cluster) -> Iterator[str]:
    """The URL of an empty database on it."""
    server = cluster.url()
    assert server is not None
    with fresh_database(server) as url:
        yield url


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that shows when one looks."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await happened():
                return
            await asyncio.sleep(LOOK)


@dataclass(frozen=True, slots=True)
class Node:
    """A server in a process of its own, and a client of it."""

    process: subprocess.Popen[str]
    client: Client

    def pause(self) -> None:
        """Stop it from running, without it knowing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def nodes(folder: Path, database: str, count: int) -> Iterator[list[Node]]:
    """As many nodes, which are ready."""
    (folder / "work").mkdir()
    with ExitStack() as stack:
        names = [f"node{n}" for n in range(count)]
        starting = [stack.enter_context(starting_node(folder, database, name)) for name in names]
        yield [Node(process, _client_of(process)) for process in starting]


@contextmanager
def starting_node(folder: Path, database: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """A node that works in the same folder as the others, with the same data."""
    command = [sys.executable, "-m", "tests.torture.node", name, str(LEASE), "serve", "--port", "0"]
    command += ["--data", str(folder / "data"), "--database", database, str(folder / "work")]
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=scratch(folder / name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _client_of(process: subprocess.Popen[str]) -> Client:
    assert process.stdout is not None
    said = process.stdout.readline()
    assert "listening" in said
    return Client(said.split()[-1], {})


@dataclass(slots=True)
class Asked:
    """A prompt that was sent."""

    session: str
    id: str
    last: bool
    """Whether nothing is asked in its session before it is accounted for. Those before it may be
    answered together with it."""
    status: int = 0

    @property
    def is_acknowledged(self) -> bool:
        """Whether the client was told that it will be answered, or that it is."""
        return self.status in (200, 204)


@dataclass(slots=True)
class Conversations:
    """Clients that talk to any of the nodes, and what they were told."""

    nodes: list[Node]
    random: random.Random
    work: Path
    asked: list[Asked] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ids: IdMaker = field(default_factory=IdMaker)

    async def hold(self, rounds: int) -> None:
        """One conversation: some prompts in a row, each to another node, until all are accounted
        for; then again."""
        session = await self._created()
        for _ in range(rounds):
            row = self.random.choice((1, 1, 2, 3))
            asked = [Asked(session, self.ids.message(), n == row - 1) for n in range(row)]
            for each in asked:
                await self._ask(each)
            try:
                await until(partial(self._is_settled, asked[-1]))
            except TimeoutError:
                status = (await self._any().get("/session/status")).json.get(session, "idle")
                messages = await self._messages(session)
                pytest.fail(f"{status}, but of {asked}, the last has no end: {messages}")

    async def check(self) -> None:
        """What every node tells is the same, and everything that was acknowledged is in it."""
        ran = Counter((self.work / "ledger").read_text().split())
        told = {
            session: await self._messages(session) for session in {a.session for a in self.asked}
        }
        for each in self.asked:
            answers = [
                m["info"] for m in told[each.session] if m["info"].get("parentID") == each.id
            ]
            assert ran[each.id] <= 1, f"{each} ran {ran[each.id]} times: {answers}"
            if each.is_acknowledged and each.last:
                assert answers, f"{each} has no answer"
            assert all("completed" in answer["time"] for answer in answers)
            if answers and "error" not in answers[-1]:
                assert ran[each.id] == 1, f"{each} was answered without being run: {answers}"
        assert ran.keys() <= {each.id for each in self.asked}
        for node in self.nodes:
            assert (await node.client.get("/session/status")).json == {}
            for session, messages in told.items():
                same = (await node.client.get(f"/session/{session}/message")).json
                assert [_stored(each) for each in same] == [_stored(each) for each in messages]

    async def _is_settled(self, asked: Asked) -> bool:
        """Whether a prompt that is the last has an answer that is complete; or needs none."""
        if not asked.is_acknowledged:
            return True
        infos = [message["info"] for message in await self._messages(asked.session)]
        answers = [info for info in infos if info.get("parentID") == asked.id]
        if not answers or "completed" not in answers[-1]["time"]:
            return False
        return "error" in answers[-1] or answers[-1].get("finish") == "stop"

    async def _created(self) -> str:
        while True:
            reply = await self._any().post("/session", {})
            if reply.status == 200:
                return str(reply.json["id"])

    async def _ask(self, asked: Asked) -> None:
        self.asked.append(asked)
        # A line that is added is there once, whatever else is written at the same time.
        text = f"bash echo {asked.id} >> ledger\nsay done"
        body = {"messageID": asked.id, "parts": [{"type": "text", "text": text}]}
        route = "message" if asked.last and self.random.random() < 0.3 else "prompt_async"
        reply = await self._any().post(f"/session/{asked.session}/{route}", body)
        asked.status = reply.status
        self.news.set()

    async def _messages(self, session: str) -> list[Any]:
        while True:
            reply = await self._any().get(f"/session/{session}/message")
            if reply.status == 200:
                return list(reply.json)

    def _any(self) -> Client:
        return self.random.choice(self.nodes).client


def _stored(message: Any) -> Any:  # noqa: ANN401 - any JSON
    """A message without what each node finds out by itself: what changed in files."""
    message["info"].pop("summary", None)
    return message


@dataclass(slots=True)
class Trouble:
    """What happens to the nodes and their database meanwhile."""

    cluster: Cluster
    database: str
    nodes: list[Node]
    random: random.Random
    over: bool = False

    async def make(self, strikes: int, news: asyncio.Event) -> None:
        """Strike as often, each time a moment after something was asked."""
        ways = [self._end_some, self._end_all, self._restart, self._crash, self._pause]
        for n in range(strikes):
            await news.wait()
            if self.over:
                return
            news.clear()
            await asyncio.sleep(self.random.uniform(0, 0.3))
            # Each of them, before any is repeated by chance.
            await (ways[n] if n < len(ways) else self.random.choice(ways))()

    async def _end_some(self) -> None:
        await self._end(0.5)

    async def _end_all(self) -> None:
        await self._end(1.0)

    async def _end(self, share: float) -> None:
        async with await psycopg.AsyncConnection.connect(self.database, autocommit=True) as server:
            await server.execute(_END_SOME, (share,))

    async def _restart(self, mode: Mode = "fast") -> None:
        await asyncio.to_thread(self.cluster.halt, mode)
        await asyncio.to_thread(self.cluster.resume)

    async def _crash(self) -> None:
        await self._restart("immediate")

    async def _pause(self) -> None:
        node = self.random.choice(self.nodes)
        node.pause()
        try:
            # Sometimes longer than its leases last.
            await asyncio.sleep(self.random.uniform(0, 2 * LEASE))
        finally:
            node.go_on()


@pytest.mark.parametrize(
    ("seed", "clients", "rounds", "strikes"),
    [
        (1, 3, 1, 3),
        *(
            pytest.param(
                seed,
                8,
                25,
                60,
                marks=[pytest.mark.torture, pytest.mark.timeout(1800)],
                id=f"{seed}",
            )
            for seed in range(2, 4)
        ),
    ],
)
async def test_every_prompt_is_accounted_for(
    cluster: Cluster,
    database: str,
    tmp_path: Path,
    seed: int,
    clients: int,
    rounds: int,
    strikes: int,
) -> None:
    """Three nodes, many clients: no prompt runs twice, and none that was acknowledged vanishes."""
    chance = random.Random(seed)
    with nodes(tmp_path, database, NODES) as started:
        talk = Conversations(started, chance, tmp_path / "work")
        trouble = Trouble(cluster, database, started, chance)
        striking = asyncio.create_task(trouble.make(strikes, talk.news))
        try:
            async with asyncio.timeout(1500):
                await asyncio.gather(*(talk.hold(rounds) for _ in range(clients)))
        finally:
            # Not cancelled: the database would stay away, or a node paused.
            trouble.over = True
            talk.news.set()
            await striking
        await talk.check()


async def test_a_turn_and_what_waits_behind_it_survive_a_restart(
    cluster: Cluster, database: str, tmp_path: Path
) -> None:
    """The database crashes and restarts in the middle of a turn: the turn goes on as if nothing had
    happened, and then the prompt is answered that came meanwhile."""
    with nodes(tmp_path, database, 1) as (only,):
        client, work = only.client, tmp_path / "work"
        session = (await client.post("/session", {})).json["id"]
        command = "touch begun; until [ -e go ]; do sleep 0.05; done; touch ended"
        await _submit(client, session, f"bash {command}")
        await until(partial(_exists, work / "begun"))
        await _submit(client, session, "write answered.txt yes")
        await asyncio.to_thread(cluster.halt, "immediate")
        (work / "go").touch()
        await until(partial(_exists, work / "ended"))
        # What the command said is to be stored now; its lease expires meanwhile.
        await until(partial(_has_complained, tmp_path / "node0.log"))
        await asyncio.to_thread(cluster.resume)
        await until(partial(_is_idle, client))
        messages = (await client.get(f"/session/{session}/message")).json
        assert [m["info"].get("error") for m in messages] == [None] * len(messages)
        assert messages[-1]["info"]["finish"] == "stop"
        assert (work / "answered.txt").read_text() == "yes\n"


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def _has_complained(log: Path) -> bool:
    return (await asyncio.to_thread(log.read_text)).count("cannot renew leases") > 2


async def _is_idle(client: Client) -> bool:
    reply = await client.get("/session/status")
    return reply.status == 200 and not reply.json


async def _submit(client: Client, session: str, text: str) -> None:
    body = {"parts": [{"type": "text", "text": text}]}
    assert (await client.post(f"/session/{session}/prompt_async", body)).status == 204
