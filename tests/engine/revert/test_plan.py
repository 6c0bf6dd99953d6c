"""The planner, case by case; what holds in every case is in `test_machine`."""

import stat
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeAlias, get_args

import pytest

from kedge.domain.errors import InvariantBroken, ObjectMissing
from kedge.domain.file_states import Absent, Outcome, Present
from kedge.domain.receipts import RevertStrategy
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.plan import Entry, Plan, plan
from kedge.snapshot.files.reader import Blocked, Disk, Folder, Obstacle
from tests.engine.revert.plan_trees import FILE, LINK, Blobs, State

Seen: TypeAlias = tuple[State, State, Source]

BLOBS = Blobs()
NONE: State = Absent()
RUNNABLE, PRIVATE = stat.S_IFREG | 0o755, stat.S_IFREG | 0o600


def text(*lines: str, mode: int = FILE) -> Present:
    """A file of these lines."""
    return BLOBS.file("".join(f"{line}\n" for line in lines).encode(), mode)


A, B, C, D = (text(name) for name in "ABCD")
LONG = text(*"123456789")
SESSION = text("one", *"23456789")
PERSON = text(*"12345678", "nine")
BOTH = text("one", *"2345678", "nine")


def history(
    path: bytes,
    *states: State,
    disk: Disk,
    source: Source = Source.DECLARED,
    others_later: bool = False,
) -> PathHistory:
    """A path that the session took from the first of these states through all the others."""
    segments = tuple(Segment(before, after, source) for before, after in pairwise(states))
    return PathHistory(path=path, segments=segments, disk=disk, others_later=others_later)


def segmented(*segments: Seen, disk: Disk) -> PathHistory:
    """A path with changes between which others may have done something."""
    own = tuple(Segment(*each) for each in segments)
    return PathHistory(path=b"f", segments=own, disk=disk, others_later=False)


def planned(
    *histories: PathHistory, strategy: RevertStrategy = "merge", made: Iterable[bytes] = ()
) -> Plan:
    """The plan for some paths."""
    return plan(histories, BLOBS.__getitem__, strategy=strategy, made_folders=made)


def said(found: Plan) -> dict[bytes, str]:
    """The outcome of every path."""
    return {entry.path: entry.outcome.value for entry in found.entries}


def wanted(found: Plan) -> list[tuple[bytes, object, object]]:
    """The steps, in order."""
    return [(step.path, step.expect, step.want) for step in found.steps]


def only(found: Plan) -> Entry:
    """What is said of the only path."""
    [entry] = found.entries
    return entry


@pytest.mark.parametrize(
    ("states", "disk", "outcome", "want"),
    [
        pytest.param([A, B], B, "restored", A, id="changed"),
        pytest.param([A, B, C], C, "restored", A, id="changed twice"),
        pytest.param([A, B], A, "unchanged", None, id="undone by a person"),
        pytest.param([A, B, A], C, "unchanged", None, id="came to nothing"),
        pytest.param([NONE, A], A, "deleted", NONE, id="created"),
        pytest.param([NONE, A], NONE, "unchanged", None, id="created, deleted by a person"),
        pytest.param([NONE, A], B, "conflict", None, id="created, changed by a person"),
        pytest.param([NONE, A, NONE], NONE, "unchanged", None, id="created and deleted"),
        pytest.param([NONE, A, NONE], B, "unchanged", None, id="only a person's is left"),
        pytest.param([A, NONE], NONE, "recreated", A, id="deleted"),
        pytest.param([A, NONE], B, "conflict", None, id="deleted, written anew by a person"),
        pytest.param([A, B], NONE, "conflict", None, id="changed, deleted by a person"),
        pytest.param([LONG, SESSION], BOTH, "merged", PERSON, id="other lines by a person"),
        pytest.param([A, B], C, "conflict", None, id="the same lines by a person"),
    ],
)
def test_one_path(states: list[State], disk: Disk, outcome: str, want: State | None) -> None:
    """What becomes of a path follows from what the session did to it and what is there now."""
    found = planned(history(b"f", *states, disk=disk))
    assert said(found) == {b"f": outcome}
    assert wanted(found) == ([] if want is None else [(b"f", disk, want)])
    assert (only(found).reason is not None) == (outcome == "conflict")


def test_merged_content() -> None:
    """The bytes that a merge made are handed over, for they are nowhere else yet."""
    found = planned(history(b"f", LONG, SESSION, disk=BOTH))
    assert isinstance(PERSON, Present)
    assert found.contents == {PERSON.blob: BLOBS[PERSON.blob]}


@pytest.mark.parametrize(
    ("before", "after", "disk", "want"),
    [
        pytest.param(FILE, RUNNABLE, RUNNABLE, FILE, id="changed back"),
        pytest.param(FILE, FILE, PRIVATE, PRIVATE, id="a person's stays"),
        pytest.param(FILE, RUNNABLE, FILE, FILE, id="undone by a person"),
        pytest.param(FILE, RUNNABLE, PRIVATE, None, id="changed by both"),
    ],
)
def test_modes(before: int, after: int, disk: int, want: int | None) -> None:
    """Permissions merge apart from the content."""
    change = text("one", *"23456789", mode=before), text(*"123456789", mode=after)
    found = planned(history(b"f", *change, disk=text(*"12345678", "nine", mode=disk)))
    if want is None:
        assert only(found).reason == "its permissions were changed since"
    else:
        assert said(found) == {b"f": "merged"}
        assert found.steps[0].want == text("one", *"2345678", "nine", mode=want)


def test_mode_alone() -> None:
    """A session's change of permissions is undone in a file that a person edited, unread."""
    change = Present(A.blob, FILE), Present(A.blob, RUNNABLE)
    found = plan([history(b"f", *change, disk=Present(B.blob, RUNNABLE))], _unreadable)
    assert wanted(found) == [(b"f", Present(B.blob, RUNNABLE), B)]


def test_links() -> None:
    """A symlink is put back only where exactly the session's is; its own mode means nothing."""
    link, other = Present(A.blob, LINK), Present(B.blob, LINK)
    same = Present(A.blob, stat.S_IFLNK | 0o755)
    assert wanted(planned(history(b"f", B, link, disk=same))) == [(b"f", same, B)]
    assert said(planned(history(b"f", link, A, disk=same))) == {b"f": "unchanged"}
    assert said(planned(history(b"f", B, link, disk=other))) == {b"f": "conflict"}
    assert said(planned(history(b"f", link, B, disk=C))) == {b"f": "conflict"}


@pytest.mark.parametrize("odd", range(3))
def test_not_text(odd: int) -> None:
    """If one of three contents has a NUL byte anywhere, there is no merge."""
    lines = [b"%d\n" % number for number in range(5000)]
    contents = [
        b"".join([b"session\n", *lines[1:]]),
        b"".join(lines),
        b"".join([*lines[:-1], b"person\n"]),
    ]
    contents[odd] += b"\0"
    before, after, disk = map(BLOBS.file, contents)
    found = planned(history(b"f", before, after, disk=disk))
    assert only(found).reason == "it was changed since, and it is not text"


def test_too_long() -> None:
    """Contents that are too long to be compared are not merged."""
    before, after, disk = (BLOBS.file(b"\n" * 70_000 + end) for end in (b"1", b"2", b"3"))
    found = planned(history(b"f", before, after, disk=disk))
    assert only(found).reason == "it was changed since, and it is too long to be merged"


def test_others_in_between() -> None:
    """Changes with a person's between them are undone one by one, the newest first."""
    segments: list[Seen] = [
        (LONG, SESSION, Source.DECLARED),
        (BOTH, text("one", *"2345678", "nine", "ten", "eleven"), Source.DECLARED),
    ]
    found = planned(segmented(*segments, disk=segments[-1][1]))
    assert said(found) == {b"f": "merged"}
    assert found.steps[0].want == PERSON
    assert list(found.contents) == [PERSON.blob]


def test_deletion_needs_a_creation() -> None:
    """What a person deleted and the session made anew is left: it is not the session's alone."""
    segments: list[Seen] = [
        (A, B, Source.DECLARED),
        (B, A, Source.DECLARED),
        (NONE, C, Source.DECLARED),
    ]
    found = planned(segmented(*segments, disk=C))
    assert (only(found).outcome, found.steps) == ("conflict", ())


def test_deletion_needs_the_last_state() -> None:
    """A file that is made to what the session created only by a merge is not deleted."""
    segments: list[Seen] = [(NONE, LONG, Source.DECLARED), (PERSON, BOTH, Source.DECLARED)]
    found = planned(segmented(*segments, disk=SESSION))
    assert (only(found).outcome, only(found).reason) == ("conflict", "it was changed since")


def test_creation_changed_by_others() -> None:
    """That a session made a file is not undone out of what a person made of it since."""
    segments: list[Seen] = [(NONE, A, Source.DECLARED), (B, NONE, Source.DECLARED)]
    found = planned(segmented(*segments, disk=NONE))
    assert (only(found).outcome, only(found).reason) == ("conflict", "it was changed since")


def test_deletion_after_another_session() -> None:
    """What another session changed since is not deleted, even if it is the same again."""
    found = planned(history(b"f", NONE, A, disk=A, others_later=True))
    assert only(found).reason == "another session changed it later"
    assert said(planned(history(b"f", B, A, disk=A, others_later=True))) == {b"f": "restored"}


def test_shared_alone() -> None:
    """What calls of several sessions changed is left, whatever the strategy, and told."""
    for strategy in get_args(RevertStrategy):
        found = planned(history(b"f", A, B, disk=B, source=Source.SHARED), strategy=strategy)
        assert (only(found).outcome, only(found).source, found.steps) == ("shared", "observed", ())
        assert "not known whose change it is" in (only(found).reason or "")


def test_shared_between() -> None:
    """A session's own changes are undone around a shared one, which stays and is told of."""
    segments: list[Seen] = [(LONG, SESSION, Source.DECLARED), (SESSION, BOTH, Source.SHARED)]
    found = planned(segmented(*segments, disk=BOTH))
    assert wanted(found) == [(b"f", BOTH, PERSON)]
    assert only(found).reason == "a change stays of which it is not known whose it is"


def test_shared_divides() -> None:
    """Changes with shared ones between them are not joined, even if those came to nothing."""
    shared: list[Seen] = [(B, C, Source.SHARED), (C, B, Source.SHARED)]
    segments = [(A, B, Source.DECLARED), *shared, (B, A, Source.DECLARED)]
    assert said(planned(segmented(*segments, disk=D))) == {b"f": "conflict"}


def test_shared_forbids_deletion() -> None:
    """A file that the session made is not deleted after a shared change, even of no effect."""
    shared: list[Seen] = [(A, B, Source.SHARED), (B, A, Source.SHARED)]
    assert said(planned(segmented((NONE, A, Source.DECLARED), *shared, disk=A))) == {
        b"f": "conflict"
    }
    first: list[Seen] = [(A, NONE, Source.SHARED), (NONE, B, Source.DECLARED)]
    assert said(planned(segmented(*first, disk=B))) == {b"f": "deleted"}


@pytest.mark.parametrize(
    ("sources", "source"),
    [
        ([Source.DECLARED, Source.REVERT], "declared"),
        ([Source.DECLARED, Source.OBSERVED], "observed"),
        ([Source.SHARED, Source.DECLARED], "declared"),
    ],
)
def test_source(sources: list[Source], source: str) -> None:
    """A path is told as observed if any of the session's own changes of it is."""
    first, second = sources
    found = planned(segmented((A, B, first), (B, C, second), disk=C))
    assert only(found).source == source


def test_obstacles() -> None:
    """What no snapshot can hold is left, with the outcome and the reason that came with it."""
    for outcome in (Outcome.CONFLICT, Outcome.SKIPPED):
        for strategy in ("merge", "overwrite"):
            disk = Obstacle(outcome, "there is a socket")
            found = planned(history(b"f", A, B, disk=disk), strategy=strategy)
            assert only(found).outcome.value == outcome.value
            assert only(found).reason == "there is a socket"
            assert found.steps == ()
    assert said(planned(history(b"f", A, B, A, disk=disk))) == {b"f": "unchanged"}


def test_lost_content() -> None:
    """A blob that cannot be read costs only the path that has to be merged with it."""
    found = plan(
        [history(b"f", LONG, SESSION, disk=BOTH), history(b"g", A, B, disk=B)], _unreadable
    )
    assert said(found) == {b"f": "skipped", b"g": "restored"}
    assert found.entries[0].reason == f"the snapshot store lacks the object {SESSION.blob}"


def _unreadable(blob: str) -> bytes:
    raise ObjectMissing(blob)


def test_file_became_folder_chain() -> None:
    """`a`, then `a/b`, then `a/b/c`: all of it goes back in one plan, and forth again."""
    below = Folder(frozenset([b"a/b/c"]))
    found = planned(
        history(b"a", A, NONE, disk=below),
        history(b"a/b", NONE, B, NONE, disk=below),
        history(b"a/b/c", NONE, C, disk=C),
    )
    assert said(found) == {b"a": "recreated", b"a/b": "unchanged", b"a/b/c": "deleted"}
    assert wanted(found) == [(b"a/b/c", C, NONE), (b"a", NONE, A)]
    assert found.folders == (b"a/b", b"a")
    back = planned(
        history(b"a", NONE, A, disk=A, source=Source.REVERT),
        history(b"a/b/c", C, NONE, disk=Blocked(b"a"), source=Source.REVERT),
    )
    assert wanted(back) == [(b"a", A, NONE), (b"a/b/c", NONE, C)]
    assert back.folders == ()


def test_folder_with_other_files() -> None:
    """No file is put where a folder is in which anything stays."""
    disk = Folder(frozenset([b"d/x", b"d/y"]))
    paths = [history(b"d", A, NONE, disk=disk), history(b"d/x", NONE, B, disk=B)]
    for strategy in ("merge", "overwrite"):
        found = planned(*paths, strategy=strategy)
        assert said(found) == {b"d": "conflict", b"d/x": "deleted"}
        assert found.folders == ()
    kept = planned(
        history(b"d", A, NONE, disk=Folder(frozenset([b"d/x"]))),
        history(b"d/x", NONE, B, disk=C),
    )
    assert said(kept) == {b"d": "conflict", b"d/x": "conflict"}


def test_file_in_place_of_folder() -> None:
    """A file comes back below a file only if that one is deleted by the same plan."""
    deleted = history(b"d/x", A, NONE, disk=Blocked(b"d"))
    assert said(planned(deleted)) == {b"d/x": "conflict"}
    assert said(planned(deleted, history(b"d", NONE, B, disk=B))) == {
        b"d": "deleted",
        b"d/x": "recreated",
    }
    assert said(planned(deleted, history(b"d", NONE, B, disk=C))) == {
        b"d": "conflict",
        b"d/x": "conflict",
    }


def test_nothing_wanted_where_folder_is() -> None:
    """Where a person made a folder of the session's new file, there is nothing left to undo."""
    disk = Folder(frozenset([b"d/x"]))
    assert said(planned(history(b"d", NONE, A, disk=disk))) == {b"d": "unchanged"}
    assert said(planned(history(b"d/x", NONE, A, disk=Blocked(b"d")))) == {b"d/x": "unchanged"}
    changed = planned(history(b"d", A, B, disk=disk), history(b"e/x", A, B, disk=Blocked(b"e")))
    assert [entry.reason for entry in changed.entries] == [
        "there is a folder now",
        "a file or a symlink is where its folder was",
    ]


def test_in_each_others_way() -> None:
    """Two files of which one would have to be the other's folder are both left."""
    found = planned(
        history(b"d", A, NONE, disk=Folder(frozenset())),
        history(b"d/e/x", B, NONE, disk=NONE),
        history(b"d-", C, NONE, disk=NONE),
    )
    assert said(found) == {b"d": "conflict", b"d-": "recreated", b"d/e/x": "conflict"}


def test_folders() -> None:
    """Folders that the session made go if they are empty, but not those a file comes back to."""
    found = planned(
        history(b"new/in/x", NONE, A, disk=A),
        history(b"back/to/x", A, NONE, disk=NONE),
        made=[b"new", b"new/in", b"back", b"back/to", b"b"],
    )
    assert found.folders == (b"new/in", b"b", b"new")


def test_overwrite() -> None:
    """`overwrite` puts every path back to what it was first, deletions and all."""
    found = planned(
        history(b"changed", A, B, disk=C, others_later=True),
        history(b"created", NONE, A, disk=B, others_later=True),
        history(b"deleted", A, NONE, disk=B),
        history(b"nothing", A, B, A, disk=C),
        history(b"removed", A, B, disk=NONE),
        history(b"same", A, B, disk=A),
        strategy="overwrite",
    )
    assert said(found) == {
        b"changed": "restored",
        b"created": "deleted",
        b"deleted": "restored",
        b"nothing": "restored",
        b"removed": "recreated",
        b"same": "unchanged",
    }
    assert all(step.want == A for step in found.steps if step.path != b"created")


def test_abort() -> None:
    """`abort` does nothing at all if one path is in conflict, and says so at every other."""
    fine = [history(b"f", A, B, disk=B), history(b"g", A, B, disk=A)]
    assert said(planned(*fine, strategy="abort")) == {b"f": "restored", b"g": "unchanged"}
    merging = history(b"m", LONG, SESSION, disk=BOTH)
    conflict = history(b"h", A, B, disk=C)
    found = planned(*fine, merging, conflict, strategy="abort", made=[b"d"])
    assert (found.steps, found.contents, found.folders) == ((), {}, ())
    assert [(entry.outcome.value, entry.reason) for entry in found.entries] == [
        ("skipped", "nothing was done, because other files conflict"),
        ("unchanged", None),
        ("conflict", "it was changed since, in the same lines"),
        ("skipped", "nothing was done, because other files conflict"),
    ]


def test_moving_the_boundary() -> None:
    """Changes after the new boundary and what the pending revert wrote come to one step."""
    earlier: list[Seen] = [
        (NONE, A, Source.DECLARED),
        (A, B, Source.DECLARED),
        (B, A, Source.REVERT),
    ]
    assert wanted(planned(segmented(*earlier, disk=A))) == [(b"f", A, NONE)]
    later: list[Seen] = [(B, C, Source.DECLARED), (C, NONE, Source.REVERT)]
    assert wanted(planned(segmented(*later, disk=NONE))) == [(b"f", NONE, B)]


def test_one_history_per_path() -> None:
    """Two histories of one path are a bug of the caller and never planned."""
    with pytest.raises(InvariantBroken, match="2 histories"):
        planned(history(b"f", A, B, disk=B), history(b"f", B, C, disk=C))


def test_names_of_any_bytes() -> None:
    """Paths are bytes, sorted as such, whatever they are made of."""
    names = [b"-rf", b"a\nb", b"a:b", b'"', b"\xff/\xfe", b"a/b", b"a"]
    found = planned(*(history(name, B, A, disk=A) for name in names if name != b"a"))
    assert [entry.path for entry in found.entries] == sorted(set(names) - {b"a"})
    assert [step.number for step in found.steps] == list(range(len(names) - 1))
