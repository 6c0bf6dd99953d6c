"""The last check of a plan: it must remove nothing from the disk that others wrote.

It has its own rules and does not trust the planner. For the content that a step replaces or
removes, it determines whose that is and where it will be afterwards (decision 021). If a step may
be done only while its content is somewhere else, the step names those copies, so that they are
checked again when it is carried out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from io import BytesIO
from itertools import pairwise
from typing import TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import LEFT, AsideCopy, Known, Present
from kedge.engine.revert.merge import PathHistory, Segment, Source, composed
from kedge.engine.revert.path_plan import Wish
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.objects.formats import EMPTY_BLOB

ONLY_COPY = "it is the only copy of something that the session did not write"
DROPS_LINES = "undoing it would drop lines that others added"

_EMPTY = EMPTY_BLOB.hex()
_TEXTS = 8
"""Contents whose lines are cached: those of one path."""
_TRIVIAL = 2
"""A line of so few characters says nothing about its origin."""
_TELLING = 3
"""If a file lacks so many lines, they identify the file they were moved to."""
_MOST_READ = 200
"""Paths that were not asked for, whose contents are read anyway."""
_LONGEST = 4 << 20
"""Bytes of a content whose lines are compared."""

Content: TypeAlias = tuple[str, bool]
"""A blob, and whether it is the target of a symlink."""


def _nowhere(contents: Collection[Content]) -> Mapping[Content, Sequence[bytes]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known beside the plan itself."""

    undone: Mapping[bytes, Sequence[Segment]]
    """What the session did to each path behind the boundary, oldest first, including paths that
    must not be touched."""
    earlier: Mapping[bytes, Sequence[Segment]] = field(default_factory=dict)
    """What it did before the boundary, which stays."""
    opening: Mapping[bytes, Content] = field(default_factory=dict)
    """The contents at the paths of the plan when the session began."""
    displaced: Collection[Content] = frozenset()
    """Contents that were anywhere in the worktree when the session began, and are not there now."""
    lives: Mapping[bytes, Sequence[Segment]] = field(default_factory=dict)
    """What it did to paths in its order, where that is not `earlier` followed by `undone`."""
    elsewhere: Callable[[Collection[Content]], Mapping[Content, Sequence[bytes]]] = _nowhere
    """Paths at which contents are on disk now; called only where it matters."""

    @classmethod
    def of(cls, histories: Iterable[PathHistory]) -> "Facts":
        """What the histories of a plan say by themselves."""
        return cls(undone={history.path: history.segments for history in histories})

    def life(self, path: bytes) -> list[Segment]:
        """All that the session did to a path."""
        if path in self.lives:
            return list(self.lives[path])
        return [*self.earlier.get(path, ()), *self.undone.get(path, ())]

    @cached_property
    def found(self) -> set[Content]:
        """Contents that the session found rather than wrote; what it wrote before the boundary
        counts as found, because that stays."""
        lives = map(self.life, {**self.earlier, **self.lives})
        histories = (*self.undone.values(), *lives)
        states = (state for history in histories for state in _found(history))
        return {content for state in states if (content := _content(state))}

    @cached_property
    def standing(self) -> set[Content]:
        """What the session had left at the boundary."""
        left = (history[-1].after for history in self.earlier.values())
        return {content for state in left if (content := _content(state))}

    @cached_property
    def taken(self) -> Mapping[Content, set[bytes]]:
        """The paths at which the session removed each content behind the boundary: it may have
        moved it."""
        return _places(
            (path, segment.before) for path, history in self.undone.items() for segment in history
        )

    @cached_property
    def places(self) -> Mapping[Content, set[bytes]]:
        """The paths at which the session found or left each content."""
        return _places(
            (path, state)
            for histories in (self.earlier, self.undone)
            for path, history in histories.items()
            for segment in history
            for state in (segment.before, segment.after)
        )


def _found(history: Sequence[Segment]) -> Iterator[Known]:
    """What the session found at a path, including what disappeared while others were at work."""
    yield from (segment.before for segment in composed(history))
    yield from (each.before for each in history if each.source is Source.SHARED)


def _places(states: Iterable[tuple[bytes, Known]]) -> Mapping[Content, set[bytes]]:
    places: defaultdict[Content, set[bytes]] = defaultdict(set)
    for path, state in states:
        if content := _content(state):
            places[content].add(path)
    return places


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the check."""

    withheld: dict[bytes, str]
    """The paths that have to be left as they are, with the reason."""
    needs: dict[bytes, tuple[AsideCopy, ...]]
    """Per path, copies of which one must exist before the content of the path may be removed."""


def check(
    wishes: Sequence[Wish],
    histories: Mapping[bytes, PathHistory],
    facts: Facts,
    read: Callable[[str], bytes],
) -> Verdict:
    """Which steps must not be carried out, and what the others depend on."""
    return _Check(wishes, histories, facts, read).verdict()


def taken_by(
    wishes: Sequence[Wish],
    histories: Mapping[bytes, PathHistory],
    facts: Facts,
    read: Callable[[str], bytes],
) -> set[bytes]:
    """The paths at which the plan, carried out as it is, removes content of others."""
    return _Check(wishes, histories, facts, read).taken()


class _Check:
    def __init__(
        self,
        wishes: Sequence[Wish],
        histories: Mapping[bytes, PathHistory],
        facts: Facts,
        read: Callable[[str], bytes],
    ) -> None:
        self._wishes = {wish.path: wish for wish in wishes}
        self._histories = histories
        self._facts = facts
        self._read = read
        self._text = lru_cache(_TEXTS)(lambda blob: Counter(BytesIO(read(blob)).readlines()))
        self._withheld: dict[bytes, str] = {}
        self._elsewhere: Mapping[Content, Sequence[bytes]] | None = None

    def verdict(self) -> Verdict:
        """Withhold steps until no remaining one depends on a withheld one."""
        taking = [wish for wish in self._wishes.values() if _takes_away(wish)]
        self._withheld |= {wish.path: DROPS_LINES for wish in taking if not self._keeps_lines(wish)}
        while True:
            needs = self._needs([wish for wish in taking if wish.path not in self._withheld])
            lost = [path for path, copies in needs.items() if copies == ()]
            # A content that is elsewhere on the disk as a whole carries no lines away.
            lost += self._carries_lines([wish for wish in taking if needs.get(wish.path) is None])
            if not lost:
                return Verdict(self._withheld, {path: c for path, c in needs.items() if c})
            self._withheld |= dict.fromkeys(lost, ONLY_COPY)

    def taken(self) -> set[bytes]:
        """The paths at which content of others goes if everything is carried out."""
        taking = [wish for wish in self._wishes.values() if _takes_away(wish)]
        dropping = {wish.path for wish in taking if not self._keeps_lines(wish)}
        after = self._afterwards()
        return dropping | {wish.path for wish in taking if self._is_last_copy(wish, after)}

    def _is_last_copy(self, wish: Wish, after: Mapping[Content, Sequence[bytes]]) -> bool:
        """Whether content that is not the session's alone would be nowhere else."""
        content = _content(wish.now)
        assert content is not None
        is_moved = bool(self._facts.taken.get(content, set()) - {wish.path})
        if self._is_own(wish) and not is_moved:
            return False
        return content not in after and not self._copies_elsewhere(content)

    # Whole contents

    def _needs(self, wishes: Iterable[Wish]) -> dict[bytes, tuple[AsideCopy, ...] | None]:
        """The copies each step depends on: one of them must exist, None means no dependency, and an
        empty tuple a loss."""
        after = self._afterwards()
        return {wish.path: self._needed(wish, after) for wish in wishes}

    def _needed(
        self, wish: Wish, after: Mapping[Content, Sequence[bytes]]
    ) -> tuple[AsideCopy, ...] | None:
        content = _content(wish.now)
        assert content is not None
        others = self._facts.taken.get(content, set()) - {wish.path}
        is_own = self._is_own(wish)
        if is_own and not others:
            return None
        copies = [AsideCopy(path, *content) for path in after.get(content, ())]
        if not copies and is_own and all(map(self._is_settled, others)):
            # It was moved or copied: its origin is restored at the path where that was.
            wanted = {path: _content(self._wishes[path].want) for path in others}
            back = tuple(AsideCopy(path, *found) for path, found in wanted.items() if found)
            return back or None
        return tuple(copies or self._copies_elsewhere(content))

    def _is_own(self, wish: Wish) -> bool:
        """Whether the removed content is the session's work alone, or lines of others are
        merged."""
        content = _content(wish.now)
        facts = self._facts
        if content not in {_content(each.after) for each in self._histories[wish.path].own}:
            # Then the planner merged; the lines that others added were checked already.
            return isinstance(wish.want, Present)
        is_found = content in facts.found or content in facts.displaced
        if is_found or content in facts.standing or facts.opening.get(wish.path) == content:
            return self._repeats(wish)
        return True

    def _repeats(self, wish: Wish) -> bool:
        """Whether the session itself once turned this content, here, into what is restored now.

        Then a turn that stays had removed it from the disk already. Not if it was anywhere else: it
        may have been moved there and back.
        """
        content = _content(wish.now)
        assert content is not None
        if self._facts.places.get(content, set()) - {wish.path}:
            return False
        life = [each for each in self._facts.life(wish.path) if _is_work(each)]
        for start, segment in enumerate(life):
            if _content(segment.before) != content:
                continue
            for n, each in enumerate(life[start:], start=start):
                if n > start and not is_same(life[n - 1].after, each.before):
                    break
                if is_same(each.after, wish.want):
                    return True
        return False

    def _is_settled(self, path: bytes) -> bool:
        """Whether the plan restores a content that was at the path."""
        wish = self._wishes.get(path)
        return wish is not None and wish.outcome not in LEFT and path not in self._withheld

    def _afterwards(self) -> dict[Content, list[bytes]]:
        """The contents at the paths of the plan afterwards."""
        places: dict[Content, list[bytes]] = {}
        for path, wish in self._wishes.items():
            content = _content(wish.now if path in self._withheld else wish.want)
            if content is not None:
                places.setdefault(content, []).append(path)
        return places

    def _copies_elsewhere(self, content: Content) -> list[AsideCopy]:
        """Where else on the disk a content is."""
        if self._elsewhere is None:
            contents = {found for wish in self._wishes.values() if (found := _content(wish.now))}
            self._elsewhere = self._facts.elsewhere(contents)
        paths = self._elsewhere.get(content, ())
        return [AsideCopy(path, *content) for path in paths if path not in self._wishes]

    # Lines

    def _keeps_lines(self, wish: Wish) -> bool:
        """Whether the written content has every line that others added to what the session left."""
        if not isinstance(wish.want, Present) or not isinstance(wish.now, Present):
            return True
        segments = composed(self._histories[wish.path].segments)
        gaps = [(first.after, second.before) for first, second in pairwise(segments)]
        if segments and not is_same(segments[-1].after, wish.now):
            gaps.append((segments[-1].after, wish.now))
        if not gaps:
            return True
        try:
            now, want = self._lines(wish.now), self._lines(wish.want)
            return all((self._lines(new) - self._lines(old)) & now <= want for old, new in gaps)
        except SnapshotError:
            # The planner could not have merged a content that it could not read.
            return False

    def _carries_lines(self, wishes: Sequence[Wish]) -> list[bytes]:
        """Paths that hold most of the lines that the session removed elsewhere and the plan does
        not restore.

        A command may have moved and changed a file at once: then only its lines show it.
        """
        missing = [lines for path in self._facts.undone for lines in self._not_put_back(path)]
        left = [wish for wish in wishes if wish.path not in self._withheld]
        carrying = [wish for wish in left if missing and self._carries(wish, missing)]
        if carrying:
            # Files are often alike: a line that is written elsewhere is not missing.
            for wish in self._wishes.values():
                if self._is_settled(wish.path):
                    written = self._readable(wish.want)
                    missing = [_without(lines, written) for lines in missing]
        return [wish.path for wish in carrying if self._carries(wish, missing)]

    def _carries(self, wish: Wish, missing: Sequence[Counter[bytes]]) -> bool:
        gone = self._readable(wish.now) - self._readable(wish.want)
        return any(lines and (gone & lines).total() * 2 >= lines.total() for lines in missing)

    def _not_put_back(self, path: bytes) -> Iterator[Counter[bytes]]:
        """The lines of each content that the session found at a path, if the plan does not restore
        them."""
        if self._is_settled(path):
            return
        history, wish = self._facts.undone[path], self._wishes.get(path)
        now = history[-1].after if wish is None else wish.now
        if wish is None and isinstance(now, Present) and self._are_many_left:
            # Not asked for, and still there; reading all such files would take long.
            return
        here = self._readable(now)
        for state in _found(history):
            found = self._readable(state)
            missing = Counter(
                {line: n for line, n in (found - here).items() if len(line.strip()) > _TRIVIAL}
            )
            # A few missing lines say nothing, unless nothing is left of the file.
            if missing and (missing.total() >= _TELLING or not found & here):
                yield missing

    @cached_property
    def _are_many_left(self) -> bool:
        return len(self._facts.undone.keys() - self._wishes.keys()) > _MOST_READ

    def _readable(self, state: Known) -> Counter[bytes]:
        """The lines of a text, if it can be read and is not too long."""
        if not isinstance(state, Present):
            return Counter()
        try:
            content = self._read(state.blob)
        except SnapshotError:
            return Counter()
        return Counter() if len(content) > _LONGEST else Counter(BytesIO(content).readlines())

    def _lines(self, state: Known) -> Counter[bytes]:
        return self._text(state.blob) if isinstance(state, Present) else Counter()


def _takes_away(wish: Wish) -> bool:
    """Whether a content will no longer be at the path."""
    now = _content(wish.now)
    # An empty content cannot be lost.
    changes = wish.writes or wish.deletes
    return changes and now is not None and now[0] != _EMPTY and now != _content(wish.want)


def _without(lines: Counter[bytes], others: Collection[bytes]) -> Counter[bytes]:
    return Counter({line: n for line, n in lines.items() if line not in others})


def _is_work(segment: Segment) -> bool:
    return segment.source in (Source.DECLARED, Source.OBSERVED)


def content_of(state: Present) -> Content:
    """The content of a path, regardless of its permission bits."""
    return state.blob, state.is_link


def _content(state: Known) -> Content | None:
    return content_of(state) if isinstance(state, Present) else None
