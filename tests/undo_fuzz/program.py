"""Programs: what sessions and a person do to files, and what is undone; made from a seed, and made
smaller while they still fail."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeAlias

from kedge.domain.receipts import RevertScope, RevertStrategy

PERSON = "person"
SESSIONS = ("s0", "s1", "s2")
FILES = ("a", "b", "c", "d/x", "d/y", ".env")
"""Files that are there before any session; `.env` is ignored."""
PATHS = (*FILES, "d", "n/z", "a/q", "build/out")
IGNORE_RULES = ".env\nbuild/\n"
SLOTS = 4
"""Places in a text that can be edited without touching each other."""


def is_ignored(path: str) -> bool:
    """Whether the ignore rules exclude a path."""
    return path.split("/")[0] in (".env", "build") and path != "build"


# What one actor does to files. Where it makes no sense, nothing happens.


@dataclass(frozen=True, slots=True)
class Write:
    """Writes a whole new text; a file or folder in the way goes."""

    path: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Slot:
    """Replaces the lines of one slot of a text by so many new ones."""

    path: str
    slot: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Patch:
    """Replaces any lines of a text by a new one."""

    path: str
    at: int
    cut: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Writes content that is not text."""

    path: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Leaves an empty file."""

    path: str


@dataclass(frozen=True, slots=True)
class Link:
    """Puts a symlink at a path; a file or folder in the way goes."""

    path: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a file, or a folder with all that is in it."""

    path: str


@dataclass(frozen=True, slots=True)
class Move:
    """Moves a file or folder; what is in the way goes."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies a file; what is in the way goes."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Chmod:
    """Changes the permissions of a file."""

    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """Writes what the path held so many versions ago, as `git checkout` does."""

    path: str
    back: int


Op: TypeAlias = Write | Slot | Patch | Binary | Empty | Link | Delete | Move | Copy | Chmod | Rewind


# What happens.


@dataclass(frozen=True, slots=True)
class Save:
    """A person changes files."""

    op: Op


@dataclass(frozen=True, slots=True)
class Declared:
    """A session's tool says what it writes, and writes it; a person may come in between."""

    who: str
    op: Op
    meanwhile: Op | None = None


@dataclass(frozen=True, slots=True)
class Shell:
    """A session's command of unknown effect."""

    who: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class OpenShell:
    """A command of unknown effect begins, and goes on."""

    who: str


@dataclass(frozen=True, slots=True)
class InShell:
    """The command that a session has running changes files; nothing if there is none."""

    who: str
    op: Op


@dataclass(frozen=True, slots=True)
class CloseShell:
    """The command that a session has running ends."""

    who: str


@dataclass(frozen=True, slots=True)
class EndStep:
    """The session's next call is in another message."""

    who: str


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The session's next call is after another prompt, which makes a pending revert final."""

    who: str


@dataclass(frozen=True, slots=True)
class Revert:
    """Takes a session back to one of its last places; 0 is the last."""

    who: str
    back: int
    strategy: RevertStrategy = "merge"
    scope: RevertScope = "all"
    files: tuple[str, ...] | None = None
    and_back: bool = False
    """Whether it is taken back at once, with nothing in between."""


@dataclass(frozen=True, slots=True)
class Unrevert:
    """Puts back what pending reverts of a session took out."""

    who: str


@dataclass(frozen=True, slots=True)
class UndoCalls:
    """Takes some calls of a session out, wherever they stand; on disk only."""

    who: str
    first: int
    """How many calls back the last of them is,"""
    step: int
    """how many calls are between two of them,"""
    count: int
    """and how many they are."""
    and_back: bool = False
    """Whether they are put back at once."""


@dataclass(frozen=True, slots=True)
class RedoCalls:
    """Puts back what one of the undos of calls took out; on disk only."""

    who: str
    which: int


@dataclass(frozen=True, slots=True)
class Fork:
    """From here on the session's name stands for a fork of it, which owns nothing of before."""

    who: str


@dataclass(frozen=True, slots=True)
class Reopen:
    """The engine is closed and opened again; on disk only."""


@dataclass(frozen=True, slots=True)
class Killed:
    """The process of a session is killed in a call, a person saves; on disk only."""

    who: str
    ops: tuple[Op, ...]
    declares: bool
    after: Op | None = None


@dataclass(frozen=True, slots=True)
class BrokenRevert:
    """A revert in whose middle the process is killed, or a person saves, or both; on disk only."""

    who: str
    back: int
    point: str
    """The fail point at which it happens."""
    killed: bool
    meanwhile: Op | None = None


Action: TypeAlias = (
    Save
    | Declared
    | Shell
    | OpenShell
    | InShell
    | CloseShell
    | EndStep
    | EndTurn
    | Revert
    | Unrevert
    | UndoCalls
    | RedoCalls
    | Fork
    | Reopen
    | Killed
    | BrokenRevert
)
Program: TypeAlias = tuple[Action, ...]

FAIL_POINTS = (
    "plan-stored",
    "before-apply",
    "before-create",
    "after-temporary",
    "before-exchange",
    "after-exchange",
    "after-compare",
    "after-delete",
    "after-apply",
    "before-outcome",
)


class Generator:
    """Makes programs from a seed."""

    def __init__(self, seed: int, *, breaks: bool = False, calls: bool = False) -> None:
        """`breaks` if processes die, `calls` if single calls are undone as well."""
        self._random = random.Random(seed)
        self._calls = random.Random(f"calls {seed}") if calls else None
        self._breaks = breaks
        # Few paths and few sessions meet more often.
        self._paths = self._random.sample(PATHS, self._random.randint(1, 4))
        self._who = SESSIONS[: self._random.choice((1, 2, 2, 3))]

    def program(self, longest: int = 14) -> Program:
        """A program that ends with an undo."""
        actions: list[Action] = []
        while len(actions) < self._random.randint(2, longest):
            actions += self._motif() if self._random.random() < 0.25 else [self._action()]
        if self._breaks:
            at = self._random.randint(1, len(actions))
            actions[at:at] = self._break()
        killed = [each.who for each in actions if isinstance(each, Killed | BrokenRevert)]
        actions += [self._revert(who) for who in killed]
        actions += [self._revert() for _ in range(self._random.choice((1, 1, 2)))]
        if self._calls is not None:
            for _ in range(self._calls.randint(2, 6)):
                actions.insert(self._calls.randint(1, len(actions)), self._of_calls(self._calls))
        return tuple(actions)

    def _of_calls(self, chance: random.Random) -> Action:
        who = chance.choice(self._who)
        if chance.random() < 0.3:
            return RedoCalls(who, chance.randint(0, 3))
        first, step = chance.choice((0, 0, 1, 2, 4)), chance.choice((1, 1, 2))
        return UndoCalls(who, first, step, chance.choice((1, 1, 2, 3)), chance.random() < 0.3)

    def _action(self) -> Action:
        kind = self._random.choices(
            ("save", "declared", "shell", "overlap", "end", "revert", "unrevert", "fork", "reopen"),
            (22, 26, 18, 18, 6, 8, 5, 1, 1),
        )[0]
        who = self._random.choice(self._who)
        match kind:
            case "save":
                return Save(self._op())
            case "declared":
                meanwhile = self._op() if self._random.random() < 0.08 else None
                return Declared(who, self._op(), meanwhile)
            case "shell":
                return Shell(who, self._ops())
            case "overlap":
                return self._overlap(who)
            case "end":
                return self._random.choice((EndStep, EndTurn))(who)
            case "revert":
                return self._revert()
            case "unrevert":
                return Unrevert(who)
            case "fork":
                return Fork(who)
        return Reopen()

    def _motif(self) -> list[Action]:
        """Some actions that have to come together to be worth anything, with others among them."""
        chance = self._random
        who = chance.choice(self._who)
        other = chance.choice([each for each in self._who if each != who] or [who])
        kinds = (
            self._moved_motif,
            self._edited_motif,
            self._rewritten_motif,
            self._shared_motif,
            self._final_motif,
            self._redone_motif,
        )
        motif = chance.choice(kinds)(who, other, chance.choice(self._paths))
        if chance.random() < 0.3:
            motif.insert(chance.randint(1, len(motif)), self._action())
        return motif

    def _moved_motif(self, who: str, other: str, path: str) -> list[Action]:
        """A session edits a file, others edit it too, the session moves it."""
        slot = Slot(path, self._random.randrange(SLOTS))
        to = self._random.choice(PATHS)
        return [Declared(who, slot), self._by_others(other, slot), Shell(who, (Move(path, to),))]

    def _edited_motif(self, who: str, other: str, path: str) -> list[Action]:
        """Others edit a file between two changes of a session."""
        chance = self._random
        first = chance.choice((Slot(path, chance.randrange(SLOTS)), Write(path)))
        last = self._op(path)
        again = chance.choice((Declared(who, last), Shell(who, (last,))))
        return [Declared(who, first), self._by_others(other, self._op(path)), again]

    def _by_others(self, other: str, op: Op) -> Action:
        return self._random.choice((Save(op), Save(op), Declared(other, op), Shell(other, (op,))))

    def _rewritten_motif(self, who: str, other: str, path: str) -> list[Action]:
        """A tool deletes and writes a file while a command runs, with a snapshot in between."""
        path = self._random.choice((path, ".env", "build/out"))
        shell = self._random.choice((who, other))
        look: Action = EndStep(who) if shell == other != who else Shell(other, ())
        return [
            OpenShell(shell),
            Declared(who, Delete(path)),
            look,
            Declared(who, Write(path)),
            CloseShell(shell),
        ]

    def _shared_motif(self, who: str, other: str, path: str) -> list[Action]:
        """Commands of two sessions run at once, after and before changes of one of them."""
        chance = self._random
        motif: list[Action] = [
            OpenShell(who),
            OpenShell(other),
            InShell(chance.choice((who, other)), self._op(path)),
            CloseShell(chance.choice((who, other))),
            CloseShell(who),
        ]
        if chance.random() < 0.5:
            motif.insert(0, Declared(who, Slot(path, chance.randrange(SLOTS))))
        if chance.random() < 0.5:
            motif.append(Declared(who, Slot(path, chance.randrange(SLOTS))))
        return motif

    def _final_motif(self, who: str, other: str, path: str) -> list[Action]:
        """A revert becomes final, and another one goes further back."""
        chance = self._random
        middle = self._shared_motif(who, other, path) if chance.random() < 0.5 else []
        return [
            Declared(who, self._op()),
            EndTurn(who),
            *middle,
            Declared(who, self._op(path)),
            replace(self._revert(who), scope="all", back=chance.choice((0, 1, 2))),
            Declared(who, self._op()),
            replace(self._revert(who), back=chance.choice((3, 5, 6, 9))),
        ]

    def _redone_motif(self, who: str, other: str, path: str) -> list[Action]:
        """Others change a file between a revert and the unrevert of it."""
        revert = replace(self._revert(who), and_back=False)
        saved = self._by_others(other, self._op(path)) if other != who else Save(self._op(path))
        return [Declared(who, self._op(path)), revert, saved, Unrevert(who)]

    def _overlap(self, who: str) -> Action:
        kind = self._random.choices(("open", "in", "close"), (4, 5, 3))[0]
        if kind == "open":
            return OpenShell(who)
        return InShell(who, self._op()) if kind == "in" else CloseShell(who)

    def _ops(self) -> tuple[Op, ...]:
        return tuple(self._op() for _ in range(self._random.choice((1, 1, 1, 2, 3))))

    def _op(self, path: str | None = None) -> Op:
        chance = self._random
        path = path or chance.choice(self._paths)
        kind = chance.choices(
            (Slot, Write, Patch, Delete, Move, Copy, Link, Chmod, Binary, Empty, Rewind),
            (34, 12, 8, 10, 14, 4, 4, 4, 3, 2, 5),
        )[0]
        if kind is Slot:
            return Slot(path, chance.randrange(SLOTS), chance.choice((0, 1, 1, 1, 2)))
        if kind is Patch:
            return Patch(path, chance.randrange(9), chance.randrange(4))
        if kind is Write or kind is Chmod:
            return kind(path, chance.choice((0o644, 0o644, 0o755, 0o600)))
        if kind is Move or kind is Copy:
            return kind(path, chance.choice(PATHS))
        if kind is Rewind:
            return Rewind(path, chance.randint(1, 3))
        assert kind in (Delete, Link, Binary, Empty)
        return kind(path)

    def _revert(self, who: str | None = None) -> Revert:
        chance = self._random
        files = None
        if chance.random() < 0.15:
            files = tuple(chance.sample(PATHS, chance.randint(1, 3)))
        return Revert(
            who or chance.choice(self._who),
            chance.choice((0, 0, 1, 2, 3, 5, 9, 20)),
            strategy=chance.choices(("merge", "overwrite", "abort"), (8, 1, 1))[0],
            scope=chance.choices(("all", "files", "messages"), (8, 2, 0.5))[0],
            files=files,
            and_back=chance.random() < 0.3,
        )

    def _break(self) -> list[Action]:
        """Something that must not happen, and does."""
        chance = self._random
        who, path = chance.choice(self._who), chance.choice(self._paths)
        saved = self._op(chance.choice((path, None))) if chance.random() < 0.8 else None
        if chance.random() < 0.4:
            return [Killed(who, (self._op(path), Write(path)), chance.random() < 0.5, saved)]
        point = chance.choice(("before-apply", *FAIL_POINTS))
        broken = BrokenRevert(who, chance.choice((0, 1, 3, 9)), point, chance.random() < 0.4, saved)
        if chance.random() < 0.5:
            return [broken]
        # The place that something was moved from is taken at the last moment.
        moved = Shell(who, (Move(path, chance.choice(PATHS)),))
        return [moved, replace(broken, point="before-apply", meanwhile=Write(path))]


def shrunk(program: Program, fails: Callable[[Program], bool], *, most: int = 400) -> Program:
    """A smaller program that fails too: actions and operations are left out while it does."""
    tries = 0
    size = max(1, len(program) // 2)
    while size:
        start = 0
        while start < len(program) and tries < most:
            shorter = program[:start] + program[start + size :]
            tries += 1
            if shorter and fails(shorter):
                program = shorter
            else:
                start += size
        size //= 2
    for index, action in enumerate(program):
        for simpler in _simpler(action):
            changed = (*program[:index], simpler, *program[index + 1 :])
            if tries < most and fails(changed):
                program = changed
                break
            tries += 1
    return program


def _simpler(action: Action) -> list[Action]:
    """The same action with less in it, the least first."""
    match action:
        case Declared(who, op, meanwhile) if meanwhile is not None:
            return [Declared(who, op)]
        case Shell(who, ops) if len(ops) > 1:
            fewer = [ops[:index] + ops[index + 1 :] for index in range(len(ops))]
            return [*(Shell(who, (op,)) for op in ops), *(Shell(who, each) for each in fewer)]
        case UndoCalls(and_back=True) | UndoCalls(count=2 | 3):
            return [replace(action, count=1, and_back=False), replace(action, and_back=False)]
        case Revert(who, back):
            plain = Revert(who, back)
            each = ("strategy", "scope", "files", "and_back")
            return [plain, *(replace(plain, **{name: getattr(action, name)}) for name in each)]
        case Killed(who, ops, declares) if len(ops) > 1 or action.after is not None:
            return [Killed(who, (op,), declares, action.after) for op in ops]
    return []


def as_text(program: Sequence[Action], level: str, options: str = "") -> str:
    """A program as Python that runs it."""
    actions = "".join(f"    {_plain(action)},\n" for action in program)
    return (
        f"from tests.undo_fuzz.program import *\n"
        f"from tests.undo_fuzz.{level}_level import run\n\n"
        f"run((\n{actions}){options})\n"
    )


def _plain(value: object) -> str:
    """A value as Python, without what is the default anyway."""
    if isinstance(value, tuple):
        return f"({''.join(f'{_plain(each)}, ' for each in value).strip()})"
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [
        f"{field.name}={_plain(given)}"
        for field in fields(value)
        if (given := getattr(value, field.name)) != field.default
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
