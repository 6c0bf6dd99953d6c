"""Whose a change is, held against a world in which it is known who did what."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.file_states import Absent, Present, Reason, State, Uncovered
from kedge.engine.timeline.attribution import (
    NOW,
    Declared,
    Ownership,
    Point,
    RunningCalls,
    Stretch,
    ownership,
    stretches,
)

SESSIONS = ("one", "two", "three")
OUTSIDE = "outside"


@dataclass
class World:
    """One path, calls that come and go, and a record of who really wrote what."""

    number: int = 0
    writes: list[str] = field(default_factory=list)
    """Who made each state that the path ever had; the state is named by its place."""
    calls: dict[str, RunningCalls] = field(default_factory=dict)
    ended: list[RunningCalls] = field(default_factory=list)
    samples: list[Point] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    writing: Point | None = None
    """What a declared call found that is at it."""
    left: Point | None = None
    """What it left, while that has no number yet."""
    claims: list[tuple[str, Stretch, Ownership]] = field(default_factory=list)
    part: int = 0
    lone: dict[str, list[int]] = field(default_factory=dict)
    """What a session wrote while no other was at work."""

    def make(self, move: str, session: str) -> None:
        if move == "toggle":
            (self.end if session in self.calls else self.begin)(session)
        elif move == "declare":
            self.declare()
        elif move == "sample":
            self.sample()
        elif move == "outside" or session in self.calls:
            self.write(session or OUTSIDE)
            if len(self.calls) == 1 and session and self.writing is None:
                self.lone.setdefault(session, []).append(len(self.writes))

    @property
    def state(self) -> State:
        return Present(f"{len(self.writes):040x}", 0o100644) if self.writes else Absent()

    def write(self, author: str) -> None:
        self.writes.append(author)

    def sample(self) -> Point:
        asked, state = self.number, self.state
        self.number += 1
        point = Point.seen(asked, self.number, state)
        self.samples.append(point)
        return point

    def begin(self, session: str) -> None:
        self.sample()
        self.part += 1
        self.calls[session] = RunningCalls(session, f"prt_{self.part:04}", self.number, None)

    def end(self, session: str) -> None:
        me = self.calls.pop(session)
        asked = self.number
        points = [each for each in self.samples if each.end >= 2 * me.began]
        points.append(Point.seen(asked, NOW, self.state))
        spans = list(self.declared)
        if self.writing is not None:
            spans.append(Declared(found=self.writing, left=None))
        calls = [*self.calls.values(), *self.ended, me]
        for stretch in stretches(points, spans):
            self.claims.append((session, stretch, ownership(stretch, calls, me)))
        self.sample()
        self.ended.append(RunningCalls(me.session_id, me.part_id, me.began, asked))

    def declare(self) -> None:
        """A declared call begins, or writes and looks at it, or ends."""
        self.number += 1
        if self.writing is None:
            self.writing = Point.declared(self.number - 1, self.number, self.state)
        elif self.left is None:
            self.number -= 1
            self.write("declared")
            self.left = Point.declared(self.number, 0, self.state)
        else:
            left = Point(self.left.start, 2 * self.number, self.left.state)
            self.declared.append(Declared(found=self.writing, left=left))
            self.writing = self.left = None

    def authors(self, stretch: Stretch) -> set[str]:
        first, last = _place(stretch.first.state), _place(stretch.last.state)
        return set(self.writes[first:last])


def _place(state: State) -> int:
    return int(state.blob, 16) if isinstance(state, Present) else 0


MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("toggle", "write")), st.sampled_from(SESSIONS)),
        st.tuples(st.sampled_from(("declare", "sample", "outside")), st.just("")),
    ),
    max_size=40,
)


@given(MOVES)
def test_nobody_is_given_what_another_did(moves: list[tuple[str, str]]) -> None:
    """What a call is given, it did itself, or somebody did of whom nothing can be known."""
    world = World()
    for move in moves:
        world.make(*move)
    for session in list(world.calls):
        world.end(session)
    for session, stretch, owner in world.claims:
        if owner is Ownership.MINE:
            assert world.authors(stretch) <= {session, OUTSIDE}
        elif owner is Ownership.SHARED:
            assert "declared" not in world.authors(stretch)
    for session, places in world.lone.items():
        mine = [
            each for who, each, how in world.claims if who == session and how.name != "NOT_MINE"
        ]
        for place in places:
            assert any(_place(each.first.state) < place <= _place(each.last.state) for each in mine)


def point(asked: int, number: int, content: str | None) -> Point:
    """The path as it was found; None for nothing there."""
    return Point.seen(asked, number, Absent() if content is None else Present(content, 0o100644))


def declared(asked: int, number: int, content: str) -> Point:
    """The path as a declared call found or left it."""
    return Point.declared(asked, number, Present(content, 0o100644))


def test_a_call_alone_owns_what_changed() -> None:
    """Between the opening and the closing snapshot of the only call, all is its own."""
    me = RunningCalls("one", "prt_1", 1, None)
    (stretch,) = stretches([point(0, 1, None), point(1, NOW, "a")], [])
    assert ownership(stretch, [me], me) is Ownership.MINE


def test_two_sessions_share_what_changed_while_both_ran() -> None:
    """Before the second began it is the first one's alone."""
    one, two = RunningCalls("one", "prt_1", 1, None), RunningCalls("two", "prt_2", 2, None)
    found = stretches([point(0, 1, None), point(1, 2, "a"), point(2, NOW, "b")], [])
    assert [ownership(each, [one, two], one) for each in found] == [
        Ownership.MINE,
        Ownership.SHARED,
    ]
    assert [ownership(each, [one, two], two) for each in found] == [
        Ownership.NOT_MINE,
        Ownership.SHARED,
    ]


def test_calls_of_one_session_share_nothing() -> None:
    """What happened while two calls of the same session ran is recorded once, by the older."""
    one, two = RunningCalls("one", "prt_1", 1, None), RunningCalls("one", "prt_2", 1, None)
    (stretch,) = stretches([point(0, 1, None), point(1, NOW, "a")], [])
    assert ownership(stretch, [one, two], one) is Ownership.MINE
    assert ownership(stretch, [one, two], two) is Ownership.NOT_MINE


def test_a_call_without_an_opening_snapshot_owns_nothing_before_the_next() -> None:
    """A stretch that began before the call did belongs to nobody."""
    me = RunningCalls("one", "prt_1", 5, None)
    (stretch,) = stretches([point(0, 1, None), point(6, NOW, "a")], [])
    assert ownership(stretch, [me], me) is Ownership.NOT_MINE


@pytest.mark.parametrize("side", [0, 1])
def test_what_was_not_looked_at_belongs_to_nobody(side: int) -> None:
    """A path that is uncovered in one of two snapshots did not change between them."""
    states: list[State] = [Absent(), Present("a", 0o100644)]
    states[side] = Uncovered(Reason.IGNORED)
    points = [Point.seen(0, 1, states[0]), Point.seen(1, 2, states[1])]
    assert stretches(points, []) == []


def test_a_declared_write_is_left_out() -> None:
    """What lies between its before and its after is its own; the rest is not."""
    span = Declared(found=declared(1, 2, "b"), left=declared(3, 4, "c"))
    points = [point(0, 1, "a"), point(2, 3, "torn"), point(4, NOW, "d")]
    found = stretches(points, [span])
    pairs = [(each.first.state, each.last.state) for each in found]
    assert pairs == [
        (Present("a", 0o100644), Present("b", 0o100644)),
        (Present("c", 0o100644), Present("d", 0o100644)),
    ]


def test_a_declared_write_that_goes_on_hides_what_comes_after() -> None:
    """Until it is over, nothing that is seen of the path means anything."""
    span = Declared(found=declared(1, 2, "a"), left=None)
    assert stretches([point(0, 1, "a"), point(1, NOW, "half")], [span]) == []
