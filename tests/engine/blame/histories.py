"""Random histories of three sessions and a person in one folder, and what blame must say of them.

Every line that is written is unlike any other and names who wrote it, so that what is on disk says
by itself what blame has to say: nothing of what reverts, merges and moves do is worked out here.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import kedge
from kedge.domain.blame import Blame, LineOrigin
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.steps import Step
from kedge.engine.turns import Turn

FILES = ("a", "b", "d/c")
PATHS = (*FILES, "e", "d/f", "g/h")
SESSIONS = 3
_LINES = 12


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a line."""

    kind: str
    session_id: str | None = None
    prompt_id: str | None = None
    message_id: str | None = None
    part_id: str | None = None

    @classmethod
    def of(cls, origin: LineOrigin) -> "Author":
        """As blame has it."""
        return cls(origin.kind, origin.sessionID, origin.promptID, origin.messageID, origin.partID)


class WrongBlame(AssertionError):
    """Blame says something else of a line than the line itself."""


@dataclass(slots=True)
class Working:
    """A session in a turn."""

    turn: Turn
    step: Step


class History:
    """One random history, as it happens."""

    def __init__(self, engine: Engine, folder: Path, seed: int) -> None:
        self._engine = engine
        self._folder = folder
        self._random = random.Random(seed)
        self._sessions: list[Session] = []
        self._working: dict[str, Working] = {}
        self._stack = AsyncExitStack()
        self._authors: dict[str, Author] = {}
        self.seen: Counter[str] = Counter()
        """How many lines of each kind were checked."""
        self.outcomes: Counter[str] = Counter()
        """What the reverts did."""

    async def run(self, actions: int) -> None:
        """Lay the files, and let things happen; blame is checked after each."""
        for path in FILES:
            self._put(path, [self._line(Author("before")) for _ in range(_LINES)])
        self._sessions = [await self._engine.sessions.create() for _ in range(SESSIONS)]
        # What is there before the first change was there before kedge.
        async with self._call("edit", "e") as author:
            self._put("e", [self._line(author) for _ in range(_LINES)])
        for _ in range(actions):
            await self._act()
            await self.check(self._random.choice(PATHS))
        for session in self._sessions:
            await self._end_turn(session)
        await self.check(*PATHS)

    async def check(self, *paths: str) -> None:
        """Compare what blame says of these files with what their lines say."""
        for path in paths:
            place = self._folder / path
            if not place.is_file():
                continue
            text = place.read_text()
            blame = await self._engine.blame(path)
            assert [line.text for line in blame.lines] == text.splitlines()
            for line in blame.lines:
                said = Author.of(blame.origins[line.origin])
                if said != self._authors[line.text]:
                    raise WrongBlame(f"{path}: {line.text!r} is said to be by {said}")
                self.seen[said.kind] += 1

    async def blames(self, engine: Engine) -> list[Blame]:
        """What an engine says of all files."""
        there = [path for path in PATHS if (self._folder / path).is_file()]
        return [await engine.blame(path) for path in there]

    # Actions.

    async def _act(self) -> None:
        kinds = {
            self._declared: 24,
            self._shell: 18,
            self._person: 16,
            self._both: 6,
            self._move: 14,
            self._delete: 4,
            self._next_turn: 8,
            self._revert: 12,
            self._unrevert: 6,
            self._undo: 8,
            self._redo: 12,
        }
        (action,) = self._random.choices(list(kinds), list(kinds.values()))
        await action()

    async def _declared(self) -> None:
        path = self._random.choice(PATHS)
        async with self._call("edit", path) as author:
            self._edit(path, author)

    async def _shell(self) -> None:
        path = self._random.choice(PATHS)
        async with self._call("bash") as author:
            self._edit(path, author)
            await self._check_unrecorded(path, author)

    async def _check_unrecorded(self, path: str, author: Author) -> None:
        """While a command runs, it may have written all that is not recorded yet."""
        place = self._folder / path
        if place.is_file():
            blame = await self._engine.blame(path)
            kinds = {line.text: blame.origins[line.origin].kind for line in blame.lines}
            for line in place.read_text().splitlines():
                wrote = self._authors[line]
                if wrote == author:
                    wanted = {"unrecorded"}
                else:
                    wanted = {"unrecorded", "outside"} if wrote.kind == "outside" else {wrote.kind}
                if kinds[line] not in wanted:
                    raise WrongBlame(f"{path}: {line!r} is said to be {kinds[line]} for now")

    async def _person(self) -> None:
        path = self._random.choice(PATHS)
        place = self._folder / path
        if self._random.random() < 0.1:
            place.unlink(missing_ok=True)
        else:
            self._edit(path, Author("outside"))

    async def _both(self) -> None:
        """Commands of two sessions run at once."""
        first, second = self._random.sample(self._sessions, 2)
        path = self._random.choice(PATHS)
        async with self._call("bash", session=first), self._call("bash", session=second):
            self._edit(path, Author("shared"))

    async def _move(self) -> None:
        there = [path for path in PATHS if (self._folder / path).is_file()]
        free = [path for path in PATHS if path not in there]
        if not there or not free:
            return
        old, new = self._random.choice(there), self._random.choice(free)
        declares = self._random.random() < 0.4
        async with self._call("move", *([old, new] if declares else [])) as author:
            (self._folder / new).parent.mkdir(exist_ok=True)
            (self._folder / old).rename(self._folder / new)
            # What shares less than half of its lines with a file is another one.
            is_long = len((self._folder / new).read_text().splitlines()) >= _LINES / 2
            if is_long and self._random.random() < 0.4:
                self._edit(new, author, most=1)

    async def _delete(self) -> None:
        path = self._random.choice(PATHS)
        async with self._call("bash"):
            (self._folder / path).unlink(missing_ok=True)

    async def _next_turn(self) -> None:
        """The next call of a session is after another prompt, which makes a revert final."""
        await self._end_turn(self._random.choice(self._sessions))

    async def _revert(self) -> None:
        session = self._random.choice(self._sessions)
        await self._end_turn(session)
        messages = (await session.messages()).messages
        if not messages:
            return
        message = self._random.choice(messages[-4:])
        tools = [part for part in message.parts if isinstance(part, kedge.ToolPart)]
        part = self._random.choice(tools).id if tools and self._random.random() < 0.4 else None
        receipt = await session.revert(
            message.info.id,
            part,
            strategy=self._random.choice(("merge", "merge", "merge", "overwrite")),
            scope=self._random.choice(("all", "all", "files")),
        )
        self.outcomes.update(entry.outcome.value for entry in receipt.files)

    async def _unrevert(self) -> None:
        session = self._random.choice(self._sessions)
        await self._end_turn(session)
        receipt = await session.unrevert()
        self.outcomes.update(f"un-{entry.outcome.value}" for entry in receipt.files)

    async def _undo(self) -> None:
        session, calls = await self._calls()
        if calls:
            parts = self._random.sample(calls, min(len(calls), self._random.randint(1, 3)))
            receipt = await session.undo(parts=[part.id for part in parts])
            self.outcomes.update(f"undo-{entry.outcome.value}" for entry in receipt.files)

    async def _redo(self) -> None:
        session, calls = await self._calls()
        undone = [part.id for part in calls if part.undone is not None]
        if undone:
            receipt = await session.redo(parts=[self._random.choice(undone)])
            self.outcomes.update(f"redo-{entry.outcome.value}" for entry in receipt.files)

    async def _calls(self) -> tuple[Session, list[kedge.ToolPart]]:
        session = self._random.choice(self._sessions)
        await self._end_turn(session)
        messages = (await session.messages()).messages
        parts = [part for each in messages for part in each.parts]
        return session, [part for part in parts if isinstance(part, kedge.ToolPart)]

    # Turns and calls.

    @asynccontextmanager
    async def _call(
        self, tool: str, *paths: str, session: Session | None = None
    ) -> AsyncIterator[Author]:
        who = session or self._random.choice(self._sessions)
        working = await self._begin(who)
        effects = {"reads": paths, "writes": paths} if paths else {"effects": "unknown"}
        async with working.step.tool(tool, {}, **effects) as call:
            yield Author(
                "session",
                who.id,
                working.turn.message.id,
                working.step.message.id,
                call.part.id,
            )
        if self._random.random() < 0.3:
            await working.step.__aexit__(None, None, None)
            working.step = working.turn.step()
            await working.step.__aenter__()

    async def _begin(self, session: Session) -> Working:
        if session.id not in self._working:
            turn = session.turn("Go on")
            await turn.__aenter__()
            step = turn.step()
            await step.__aenter__()
            self._working[session.id] = Working(turn, step)
        return self._working[session.id]

    async def _end_turn(self, session: Session) -> None:
        working = self._working.pop(session.id, None)
        if working is not None:
            await working.step.__aexit__(None, None, None)
            await working.turn.__aexit__(None, None, None)

    # Files.

    def _edit(self, path: str, author: Author, most: int = 3) -> None:
        """Replace, add or remove lines at some places; a file that is not there is made."""
        place = self._folder / path
        lines = place.read_text().splitlines() if place.is_file() else []
        if not lines:
            lines = [self._line(author) for _ in range(_LINES)]
        for _ in range(self._random.randint(1, most)):
            at = self._random.randint(0, len(lines))
            fresh = [self._line(author) for _ in range(self._random.randint(0, 2))]
            lines[at : at + self._random.randint(0, 2)] = fresh
        self._put(path, lines)

    def _put(self, path: str, lines: list[str]) -> None:
        place = self._folder / path
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(f"{line}\n" for line in lines))

    def _line(self, author: Author) -> str:
        line = f"{len(self._authors)} {author.kind} {author.part_id or ''}"
        self._authors[line] = author
        return line


async def run_history(folder: Path, seed: int, actions: int) -> History:
    """One history in a folder of its own; at the end another engine says the same, which has
    remembered nothing."""
    work = folder / f"work{seed}"
    work.mkdir()
    place = partial(
        kedge.open, work, database=folder / f"{seed}.db", data_dir=folder / f"data{seed}"
    )
    async with place() as engine:
        history = History(engine, work, seed)
        await history.run(actions)
        said = await history.blames(engine)
    async with place() as fresh:
        assert await history.blames(fresh) == said
    return history


def run(folder: Path, seed: int, actions: int) -> History:
    """The same, for callers that are not asynchronous."""
    return asyncio.run(run_history(folder, seed, actions))
