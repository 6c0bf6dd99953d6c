"""What clients of a killed server asked for and were told, to be held against what is there."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Prompt:
    """One prompt: its script says `done-<mark>` at its end and writes lines to the log."""

    mark: str
    text: str
    lines: int
    """How many lines its commands write: `<mark>.1`, `<mark>.2`, ..."""
    id: str | None = None
    """The id of its message, as far as the client knows it."""
    is_endless: bool = False
    """Whether it runs until it is aborted."""
    is_acknowledged: bool = False
    may_be_gone: bool = False
    """Whether a revert may have taken it out of the session."""
    outcome: str = ""
    """What had become of it when it was last looked at: `absent`, `unanswered` or `answered`."""
    blamed: set[str] = field(default_factory=set)
    """What was found to be wrong with it."""
    life: int = 0
    """In which life of the server it was sent first."""

    @property
    def done(self) -> str:
        """What its answer says at its end."""
        return f"done-{self.mark}."

    @property
    def said(self) -> list[str]:
        """The lines that its commands write."""
        return [f"{self.mark}.{n}" for n in range(1, self.lines + 1)]


@dataclass(slots=True)
class Known:
    """A session as far as its client knows it."""

    id: str
    titles: list[str | None] = field(default_factory=lambda: [None])
    """What the title may be: what was acknowledged, or is on its way; None: any."""
    deleted: list[bool] = field(default_factory=lambda: [False])
    boundaries: list[str | None] = field(default_factory=lambda: [None])
    """What a pending revert may go back to; None: there is none."""
    prompts: list[Prompt] = field(default_factory=list)
    is_copy: bool = False
    """Whether its messages may be those of another session."""
    reverts: int = 0
    """How many reverts and unreverts were asked for,"""
    asking: int = 0
    """and how many prompts are on their way."""
    was_aborted: bool = False
    """Whether an abort was asked for in this life, which drops what waits."""


@dataclass(slots=True)
class Ledger:
    """All sessions of a world, and what was found to be wrong with them."""

    seed: int
    say: Callable[[str], object]
    sessions: dict[str, Known] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    """Sessions that something may have happened to since the last look."""
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """What was broken, and how it was seen."""
    counts: Counter[str] = field(default_factory=Counter)
    """What happened: kills by kind, acknowledgements by kind."""
    kills: int = 0
    marks: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def know(self, id: str, *, is_copy: bool = False) -> Known:
        """A session that may be new to us."""
        self.touched.add(id)
        return self.sessions.setdefault(id, Known(id, is_copy=is_copy))

    def next_mark(self) -> str:
        """A word that no other prompt of this world has."""
        self.marks += 1
        return f"p{self.marks}k{self.kills}"

    def blame(self, kind: str, evidence: str) -> None:
        """Write down that something is wrong."""
        self.wrong.append((kind, f"seed {self.seed}, after kill {self.kills}: {evidence}"))
        self.say(f"{kind}: {self.wrong[-1][1]}")

    def acknowledged(self, what: str) -> None:
        """Count an answer that promised something."""
        self.counts[f"acknowledged {what}"] += 1
        self._news.set()

    async def until_acknowledged(self, more: int) -> None:
        """Wait for so many more answers that promise something."""
        for _ in range(more):
            self._news.clear()
            await self._news.wait()
