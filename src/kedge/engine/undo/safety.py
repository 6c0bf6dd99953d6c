"""The last check of a plan: nothing that somebody else wrote may leave the disk with it.

It shares no code with the planner and does not trust it. For the content that a step replaces or
removes, it asks whose that is and where it will be afterwards. A step that may go ahead only if its
content is somewhere else names those places, so that they are looked at again when it is carried
out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.engine.undo.segments import Known, PathHistory, Segment, Source, composed
from kedge.engine.undo.wishes import Wish
from kedge.snapshot.files.looking import is_same
from kedge.snapshot.objects.formats import EMPTY_BLOB
from kedge.snapshot.values import Present

ONLY_COPY = "it is the only copy of something that the session did not write"
DROPS_LINES = "undoing it would drop lines that others added"

_EMPTY = EMPTY_BLOB.hex()

Content: TypeAlias = tuple[str, bool]
"""A blob, and whether it is what a symlink says."""


def _nowhere(contents: Collection[Content]) -> Mapping[Content, Sequence[bytes]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known beside the plan itself."""

    lives: Mapping[bytes, Sequence[Segment]]
    """All that the session did to each path, oldest first, also what is not to be undone."""
    opening: Mapping[bytes, Content] = field(default_factory=dict)
    """What stood at the paths of the plan when the session began."""
    displaced: Collection[Content] = frozenset()
    """What stood anywhere in the worktree when the session began, and does not stand there now."""
    elsewhere: Callable[[Collection[Content]], Mapping[Content, Sequence[bytes]]] = _nowhere
    """Paths at which contents are on disk now; asked only where it matters."""

    @classmethod
    def of(cls, histories: Iterable[PathHistory]) -> "Facts":
        """What the histories of a plan say by themselves."""
        return cls(lives={history.path: history.segments for history in histories})

    @cached_property
    def found(self) -> set[Content]:
        """Contents that the session came upon, rather than having put them there itself."""
        segments = (each for life in self.lives.values() for each in composed(life))
        return {found for each in segments if (found := _content(each.before))}

    @cached_property
    def places(self) -> Mapping[Content, set[bytes]]:
        """The paths at which the session found or left each content."""
        places: defaultdict[Content, set[bytes]] = defaultdict(set)
        for path, life in self.lives.items():
            for segment in life:
                for state in (segment.before, segment.after):
                    if content := _content(state):
                        places[content].add(path)
        return places


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check says of a plan."""

    withheld: dict[bytes, str]
    """Why these paths have to be left as they are."""
    needs: dict[bytes, tuple[bytes, ...]]
    """Where one of several paths must hold what this path holds now, before that may go."""


def check(
    wishes: Sequence[Wish],
    histories: Mapping[bytes, PathHistory],
    facts: Facts,
    read: Callable[[str], bytes],
) -> Verdict:
    """Which steps must not be carried out, and what the others depend on."""
    return _Check(wishes, histories, facts, read).verdict()


class _Check:
    def __init__(
        self,
        wishes: Sequence[Wish],
        histories: Mapping[bytes, PathHistory],
        facts: Facts,
        read: Callable[[str], bytes],
    ) -> None:
        self._wishes = wishes
        self._histories = histories
        self._facts = facts
        self._read = read

    def verdict(self) -> Verdict:
        withheld: dict[bytes, str] = {}
        dependent: list[Wish] = []
        for wish in self._wishes:
            if not (wish.writes or wish.deletes) or not self._takes_away(wish):
                continue
            if not self._keeps_lines(wish):
                withheld[wish.path] = DROPS_LINES
            elif not self._is_own(wish):
                dependent.append(wish)
        needs = self._find_copies(dependent, withheld)
        return Verdict(withheld, needs)

    @staticmethod
    def _takes_away(wish: Wish) -> bool:
        """Whether a content is not at the path any more afterwards."""
        now = _content(wish.now)
        # Nobody can lose what is empty.
        return now is not None and now[0] != _EMPTY and now != _content(wish.want)

    def _is_own(self, wish: Wish) -> bool:
        """Whether what goes is the session's work alone, or lines of others are merged."""
        content = _content(wish.now)
        own = self._histories[wish.path].own
        if content not in {_content(segment.after) for segment in own}:
            # Then the planner merged; what others added was looked at already.
            return isinstance(wish.want, Present)
        if content in self._facts.found or content in self._facts.displaced:
            return self._repeats(wish)
        return self._facts.opening.get(wish.path) != content or self._repeats(wish)

    def _repeats(self, wish: Wish) -> bool:
        """Whether the session itself once made of this content, here, what is restored now.

        Then a turn that stays had taken it from the disk already. But not if it was anywhere else:
        it may have been moved there and back.
        """
        content = _content(wish.now)
        assert content is not None
        if self._facts.places.get(content, set()) - {wish.path}:
            return False
        life = [each for each in self._facts.lives.get(wish.path, ()) if _is_work(each)]
        for start, segment in enumerate(life):
            if _content(segment.before) != content:
                continue
            for n, each in enumerate(life[start:], start=start):
                if n > start and not is_same(life[n - 1].after, each.before):
                    break
                if is_same(each.after, wish.want):
                    return True
        return False

    # Lines

    def _keeps_lines(self, wish: Wish) -> bool:
        """Whether what is written has every line that others added to what the session left."""
        if not isinstance(wish.want, Present) or not isinstance(wish.now, Present):
            return True
        segments = composed(self._histories[wish.path].segments)
        steps = [(first.after, second.before) for first, second in pairwise(segments)]
        if segments and not is_same(segments[-1].after, wish.now):
            steps.append((segments[-1].after, wish.now))
        if not steps:
            return True
        try:
            now, want = self._lines(wish.now), self._lines(wish.want)
            return all(self._added(*step) & now <= want for step in steps)
        except SnapshotError:
            # The planner could not have merged what it could not read.
            return False

    def _added(self, before: Known, after: Known) -> Counter[bytes]:
        return self._lines(after) - self._lines(before)

    def _lines(self, state: Known) -> Counter[bytes]:
        content = self._read(state.blob) if isinstance(state, Present) else b""
        return Counter(BytesIO(content).readlines())

    # Copies

    def _find_copies(
        self, dependent: Sequence[Wish], withheld: dict[bytes, str]
    ) -> dict[bytes, tuple[bytes, ...]]:
        """Where the contents of these paths will be; those that will be nowhere are withheld."""
        elsewhere: Mapping[Content, Sequence[bytes]] | None = None
        while True:
            needs: dict[bytes, tuple[bytes, ...]] = {}
            here = self._afterwards(withheld)
            for wish in dependent:
                content = _content(wish.now)
                assert content is not None
                if wish.path in withheld:
                    continue
                copies: Sequence[bytes] = here.get(content, ())
                if not copies:
                    if elsewhere is None:
                        elsewhere = self._untouched(dependent)
                    copies = elsewhere.get(content, ())
                if copies:
                    needs[wish.path] = tuple(copies)
            lost = [w for w in dependent if w.path not in withheld and w.path not in needs]
            if not lost:
                return needs
            withheld |= {wish.path: ONLY_COPY for wish in lost}

    def _afterwards(self, withheld: Mapping[bytes, str]) -> dict[Content, list[bytes]]:
        """What will be at the paths of the plan."""
        places: dict[Content, list[bytes]] = {}
        for wish in self._wishes:
            content = _content(wish.now if wish.path in withheld else wish.want)
            if content is not None:
                places.setdefault(content, []).append(wish.path)
        return places

    def _untouched(self, dependent: Iterable[Wish]) -> Mapping[Content, Sequence[bytes]]:
        """Where else on the disk the contents are."""
        wanted = {content for wish in dependent if (content := _content(wish.now))}
        planned = {wish.path for wish in self._wishes}
        found = self._facts.elsewhere(wanted)
        return {
            content: outside
            for content, paths in found.items()
            if (outside := [path for path in paths if path not in planned])
        }


def _is_work(segment: Segment) -> bool:
    return segment.source in (Source.DECLARED, Source.OBSERVED)


def content_of(state: Present) -> Content:
    """What a path holds, whatever its permission bits."""
    return state.blob, state.is_link


def _content(state: Known) -> Content | None:
    return content_of(state) if isinstance(state, Present) else None
