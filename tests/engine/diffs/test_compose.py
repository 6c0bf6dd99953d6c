"""What changes come to, path by path; on blobs in memory."""

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.file_states import Absent, Known, Present
from kedge.engine.diffs.compose import net_changes
from kedge.engine.revert.merge import Contents
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Change
from kedge.store.queries.changes import ChangeSource, StoredChange

ROOT = "/srv/work"
PLAIN = 0o100644


class History:
    """Changes of one session, as they happen."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.changes: list[StoredChange] = []
        self.contents = Contents(self.blobs.__getitem__)

    def change(
        self,
        before: str | bytes | None,
        after: str | bytes | None,
        source: ChangeSource = "declared",
        *,
        path: bytes = b"a",
        worktree: str = ROOT,
        modes: tuple[int, int] = (PLAIN, PLAIN),
    ) -> None:
        """One more change."""
        self.changes.append(
            StoredChange(
                session_id="ses_1",
                pos=1,
                part_id="prt_1",
                n=len(self.changes),
                message_id="msg_1",
                worktree=worktree,
                path=path,
                timeline=len(self.changes),
                source=source,
                before=self.state(before, modes[0]),
                after=self.state(after, modes[1]),
                reason=None,
                plan_id=None,
            )
        )

    def state(self, content: str | bytes | None, mode: int = PLAIN) -> Known:
        """A state with this content."""
        if content is None:
            return Absent()
        raw = content.encode() if isinstance(content, str) else content
        blob = blob_id(raw).hex()
        self.blobs[blob] = raw
        return Present(blob, mode)

    def net(self) -> list[Change]:
        """What it comes to."""
        return net_changes(self.changes, ROOT, self.contents)

    def texts(self) -> list[tuple[str | None, str | None]]:
        """The same, as texts before and after."""
        return [(self.text(change.before), self.text(change.after)) for change in self.net()]

    def text(self, state: object) -> str | None:
        """The text of a state."""
        if isinstance(state, Absent):
            return None
        assert isinstance(state, Present)
        return self.contents.get(state.blob).decode()


def test_neighbouring_changes_are_one() -> None:
    """From what was there first to what is there last, whatever was there in between."""
    history = History()
    history.change("one\n", "two\n")
    history.change("two\n", None, "observed")
    history.change(None, "three\n", "revert")
    assert history.texts() == [("one\n", "three\n")]


def test_the_order_is_that_of_the_timeline() -> None:
    """Changes are put in order, in whatever order they come."""
    history = History()
    history.change("one\n", "two\n")
    history.change("two\n", "three\n")
    history.changes.reverse()
    assert history.texts() == [("one\n", "three\n")]


def test_what_comes_to_nothing_is_not_there() -> None:
    """A file that is as it was, and one that came and went, are not changed."""
    history = History()
    history.change("one\n", "two\n")
    history.change("two\n", "one\n")
    history.change(None, "new\n", path=b"b")
    history.change("new\n", None, path=b"b")
    assert history.net() == []


def test_what_is_not_the_session_s_is_not_there() -> None:
    """Shared changes, folders and what was not looked at are nobody's diff."""
    history = History()
    history.change("one\n", "two\n", "shared")
    history.change(None, None, "folder", path=b"folder")
    history.change("one\n", None, "uncovered", path=b"large")
    assert history.net() == []


def test_lines_of_others_are_on_both_sides() -> None:
    """What others did to a file between two changes is nothing that the session changed."""
    history = History()
    history.change("1\n2\n3\n4\n5\n", "mine\n2\n3\n4\n5\n")
    # Somebody makes 3 to theirs.
    history.change("mine\n2\ntheirs\n4\n5\n", "mine\n2\ntheirs\n4\nmine too\n")
    assert history.texts() == [("1\n2\ntheirs\n4\n5\n", "mine\n2\ntheirs\n4\nmine too\n")]


def test_lines_of_others_that_the_session_deleted_are_on_one() -> None:
    """A person's line came between two changes and went with the second."""
    history = History()
    history.change("1\n2\n3\n", "mine\n2\n3\n")
    history.change("mine\n2\n3\ntheirs\n", "mine\n2\n3\n")
    assert history.texts() == [("1\n2\n3\ntheirs\n", "mine\n2\n3\n")]


def test_shared_lines_are_on_both_sides() -> None:
    """A shared change parts two of the session like anybody else's."""
    history = History()
    history.change("1\n2\n3\n4\n5\n", "mine\n2\n3\n4\n5\n")
    history.change("mine\n2\n3\n4\n5\n", "mine\n2\nours\n4\n5\n", "shared")
    history.change("mine\n2\nours\n4\n5\n", "mine\n2\nours\n4\nmine too\n")
    assert history.texts() == [("1\n2\nours\n4\n5\n", "mine\n2\nours\n4\nmine too\n")]


def test_what_cannot_be_put_together_stands_for_itself() -> None:
    """Where the session went on in lines that others wrote, each of its changes is shown."""
    history = History()
    history.change("one\n", "two\n")
    history.change("theirs\n", "three\n")
    assert history.texts() == [("one\n", "two\n"), ("theirs\n", "three\n")]


def test_binary_files_stand_for_themselves() -> None:
    """What is not text cannot be merged."""
    history = History()
    history.change(b"\0one", b"\0two")
    history.change(b"\0other", b"\0three")
    assert history.texts() == [("\0one", "\0two"), ("\0other", "\0three")]


def test_a_deletion_takes_what_others_wrote_along() -> None:
    """It stands for itself where that cannot be told from what the session wrote before."""
    history = History()
    history.change("one\n", "two\n")
    history.change("theirs\n", None)
    history.change(None, "mine\n", path=b"b")
    history.change("mine\nand theirs\n", None, path=b"b")
    history.change("1\n2\n3\n", "mine\n2\n3\n", path=b"c")
    history.change("mine\n2\ntheirs\n", None, path=b"c")
    assert history.texts() == [
        ("one\n", "two\n"),
        ("theirs\n", None),
        (None, "mine\n"),
        ("mine\nand theirs\n", None),
        ("1\n2\ntheirs\n", None),
    ]


def test_a_file_that_others_deleted_and_the_session_made_again() -> None:
    """It is shown as changed, and as made."""
    history = History()
    history.change("one\n", "two\n")
    history.change(None, "three\n")
    assert history.texts() == [("one\n", "two\n"), (None, "three\n")]


def test_permission_bits_are_a_change() -> None:
    """A file that only became executable is there."""
    history = History()
    history.change("x\n", "x\n", modes=(PLAIN, 0o100755))
    (change,) = history.net()
    assert (change.path, change.before, change.after) == (
        b"a",
        Present(blob_id(b"x\n").hex(), PLAIN),
        Present(blob_id(b"x\n").hex(), 0o100755),
    )


def test_paths_of_another_worktree_are_seen_from_the_session_s() -> None:
    """The same name in two worktrees is two files, sorted by path."""
    history = History()
    history.change("one\n", "two\n", path=b"sub/a", worktree="/srv/other")
    history.change("one\n", "two\n", path=b"sub/a")
    history.change("one\n", "two\n", path=b"\xff")
    assert [change.path for change in history.net()] == [b"../other/sub/a", b"sub/a", b"\xff"]


def test_changes_are_not_read_when_nobody_came_between() -> None:
    """Only merging needs contents."""
    history = History()
    history.change("one\n", "two\n")
    history.change("two\n", "three\n")
    history.blobs.clear()
    assert len(history.net()) == 1


SLOTS = 6


def lines_changed(history: History) -> list[tuple[set[str], set[str]]]:
    """The lines that went and those that came; all lines are different."""
    sides = [
        (set((before or "").splitlines()), set((after or "").splitlines()))
        for before, after in history.texts()
    ]
    return [(before - after, after - before) for before, after in sides]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, SLOTS - 1)), max_size=20))
def test_others_elsewhere_in_the_file_change_nothing(edits: list[tuple[bool, int]]) -> None:
    """However edits of others are mixed in, the diff is as if the session had been alone."""
    history, alone = History(), History()
    numbers = count()
    # Each has slots of its own, with a line that nobody changes after each.
    lines = [f"line {n}\n" for n in range(SLOTS * 4)]
    mine: list[str] = []
    for by_me, slot in edits:
        place = slot * 4 + (0 if by_me else 2)
        before = "".join(lines)
        lines[place] = f"{'me' if by_me else 'other'} {next(numbers)}\n"
        if by_me:
            mine = mine or before.splitlines(keepends=True)
            history.change(before, "".join(lines))
            before = "".join(mine)
            mine[place] = lines[place]
            alone.change(before, "".join(mine))
    assert lines_changed(history) == lines_changed(alone)


@given(st.data())
def test_any_history_has_a_net(data: st.DataObject) -> None:
    """Whatever happened, both sides differ, and begin with something that the session found."""
    history = History()
    texts = st.sampled_from([None, "", "a\n", "b\n", "a\nb\n", "a\nx\nb\n", "\0"])
    now = data.draw(texts)
    found = []
    for _ in range(data.draw(st.integers(0, 6))):
        if data.draw(st.booleans()):
            now = data.draw(texts)
        else:
            after = data.draw(texts)
            history.change(now, after)
            found.append(now)
            now = after
    nets = history.texts()
    assert all(before != after and before in found for before, after in nets)


def test_changes_of_a_subtask_are_the_session_s() -> None:
    """The rows of two sessions of a family are put together by when they happened."""
    history = History()
    history.change("one\n", "two\n")
    history.change("two\n", "three\n")
    first, second = history.changes
    history.changes = [replace(second, session_id="ses_0", pos=0), first]
    assert history.texts() == [("one\n", "three\n")]
