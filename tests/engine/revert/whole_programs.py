"""Programs for everybody in a worktree: what each does, in an order. All choices are small numbers
that are taken as they fit when it is their turn, so that every shorter program is one, too."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from hypothesis import strategies as st

from kedge.domain.receipts import RevertStrategy
from tests.engine.revert.plan_documents import SLOTS
from tests.engine.revert.whole_talks import Wanted

PATHS = [b"a", b"a/b", b"a/b/c", b"d", b"d/x", b"d/y", b"e", b"f"]
OLD = [b"a/b", b"d/x", b"e", b"f"]
"""What may be there at the beginning."""
MODES = [0o644, 0o755, 0o600]
LINKS = [b"e", b"f", b"nowhere"]

Naming: TypeAlias = Literal["parts", "messages", "files"]
"""By what calls are named; by files only, all of them there are meant."""


@dataclass(frozen=True)
class EditSlot:
    """Replace what is in one slot of a file."""

    which: int
    slot: int | None
    """None for one's own, where only few others write."""
    lines: int


@dataclass(frozen=True)
class Patch:
    """Replace some lines anywhere in a file by one line."""

    which: int
    at: int
    cut: int


@dataclass(frozen=True)
class Chmod:
    """Change a file's permissions."""

    which: int
    mode: int


@dataclass(frozen=True)
class Write:
    """Write a whole file; what is in its way, a file or a folder, goes."""

    path: bytes
    mode: int


@dataclass(frozen=True)
class Link:
    """Put a symlink at a path; what is in its way goes."""

    path: bytes
    to: bytes


@dataclass(frozen=True)
class Delete:
    """Delete a file or a symlink."""

    which: int


@dataclass(frozen=True)
class Rename:
    """Move a file or a symlink; what is in its way goes."""

    which: int
    to: bytes


Edit: TypeAlias = EditSlot | Patch | Chmod | Write | Link | Delete | Rename


@dataclass(frozen=True)
class Work:
    """Somebody changes files: a person, or a session by the call of unknown effect that runs, else
    by a call of its own."""

    who: int
    edit: Edit
    declares: bool
    reads: bool = True
    """Whether a declared call reads first what it writes."""
    meanwhile: EditSlot | None = None
    """What a person does during the call."""


@dataclass(frozen=True)
class OpenShell:
    """A call of unknown effect begins, and goes on."""

    who: int


@dataclass(frozen=True)
class CloseShell:
    """It is over."""

    who: int


@dataclass(frozen=True)
class EndStep:
    """A step is over; the turn goes on."""

    who: int


@dataclass(frozen=True)
class EndTurn:
    """A turn is over."""

    who: int


@dataclass(frozen=True)
class Revert:
    """A session is taken back, or its revert to another place."""

    who: int
    back: int
    """How many places back."""
    wanted: Wanted
    dry_run: bool
    """Whether that is asked for first."""
    and_back: bool
    """Whether it is taken back at once."""


@dataclass(frozen=True)
class Unrevert:
    """A session's revert is taken back."""

    who: int


@dataclass(frozen=True)
class Choose:
    """A session's chosen calls are undone, or redone."""

    who: int
    is_redo: bool
    by: Naming
    which: tuple[int, ...]
    """How many calls back, or messages with calls; of a redo, of those of which something is
    undone."""
    strategy: RevertStrategy
    files: tuple[bytes, ...] | None
    dry_run: bool
    """Whether that is asked for first."""
    and_back: bool
    """Whether it is taken back at once."""
    reopens: bool
    """Whether everything stops right after it, and starts again."""


@dataclass(frozen=True)
class Reopen:
    """Everything stops, and starts again."""


T = TypeVar("T", covariant=True)
Action: TypeAlias = (
    Work | OpenShell | CloseShell | EndStep | EndTurn | Revert | Unrevert | Choose | Reopen
)


@dataclass(frozen=True)
class Program:
    """All that happens."""

    sessions: int
    files: tuple[bytes, ...]
    actions: list[Action]


def _weighted(*choices: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of some, as often as its weight says; `one_of` takes only once what is given twice."""
    whole = [choice for weight, choice in choices for _ in range(weight)]
    return st.integers(0, len(whole) - 1).flatmap(whole.__getitem__)


def _edits() -> st.SearchStrategy[Edit]:
    which, paths = st.integers(0, 3), st.sampled_from(PATHS)
    others: st.SearchStrategy[Edit] = st.one_of(
        st.builds(Write, paths, st.sampled_from(MODES)),
        st.builds(Patch, which, st.integers(0, 11), st.integers(0, 3)),
        st.builds(Chmod, which, st.sampled_from(MODES)),
        st.builds(Delete, which),
        st.builds(Rename, which, paths),
        st.builds(Link, paths, st.sampled_from(LINKS)),
    )
    return _weighted((1, _slot_edits()), (1, others))


def _slot_edits() -> st.SearchStrategy[EditSlot]:
    slot = _weighted((2, st.none()), (1, st.integers(0, SLOTS - 1)))
    return st.builds(EditSlot, st.integers(0, 3), slot, st.integers(0, 2))


def _work() -> st.SearchStrategy[Action]:
    rarely = _weighted((9, st.none()), (1, _slot_edits()))
    mostly = st.integers(0, 3).map(lambda n: n != 3)
    return st.builds(Work, st.integers(0, 4), _edits(), st.booleans(), mostly, rarely)


def _reverts() -> st.SearchStrategy[Action]:
    strategy = st.sampled_from(["merge"] * 6 + ["overwrite", "abort"])
    scope = st.sampled_from(["all"] * 8 + ["files", "messages"])
    some = st.lists(st.sampled_from(PATHS), min_size=1, max_size=2, unique=True).map(tuple)
    files = _weighted((9, st.none()), (1, some))
    wanted = st.builds(Wanted, strategy=strategy, scope=scope, files=files)
    rarely = st.integers(0, 4).map(lambda n: n == 4)
    return st.builds(Revert, st.integers(0, 3), st.integers(0, 9), wanted, st.booleans(), rarely)


def _choices() -> st.SearchStrategy[Action]:
    by: st.SearchStrategy[Naming] = st.sampled_from(["parts"] * 4 + ["messages", "files"])
    which = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple)
    some = st.lists(st.sampled_from(PATHS), min_size=1, max_size=2, unique=True).map(tuple)
    rarely = st.integers(0, 7).map(lambda n: n == 7)

    def of_kind(is_redo: bool) -> st.SearchStrategy[Action]:
        others = ["abort"] if is_redo else ["overwrite", "abort"]
        return st.builds(
            Choose,
            who=st.integers(0, 3),
            is_redo=st.just(is_redo),
            by=by,
            which=which,
            strategy=st.sampled_from(["merge"] * 4 + others),
            files=_weighted((5, st.none()), (1, some)),
            dry_run=st.booleans(),
            and_back=st.integers(0, 3).map(lambda n: n == 3),
            reopens=rarely,
        )

    return _weighted((2, of_kind(is_redo=False)), (1, of_kind(is_redo=True)))


def programs(longest: int, *, choices: int = 0) -> st.SearchStrategy[Program]:
    """Two to four sessions and a person, a few files, and what happens to them; `choices` is how
    often chosen calls are undone or redone."""
    who = st.integers(0, 3)
    # What is put first, a failing program is shortened to: it mostly does nothing.
    some = _weighted(
        (1, st.builds(CloseShell, who)),
        (1, st.builds(EndStep, who)),
        (1, st.builds(EndTurn, who)),
        (3, st.builds(OpenShell, who)),
        (18, _work()),
        (6, _reverts()),
        (2, st.builds(Unrevert, who)),
        (1, st.builds(Reopen)),
        *([(choices, _choices())] if choices else []),
    )
    actions = st.lists(some, min_size=longest // 2, max_size=longest)
    files = st.lists(st.sampled_from(OLD), min_size=1, unique=True).map(tuple)
    return st.builds(Program, st.integers(2, 4), files, actions)
