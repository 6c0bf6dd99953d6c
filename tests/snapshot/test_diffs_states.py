"""Changes known by states: what git would tell apart of them."""

from kedge.snapshot.diffs.states import tree_changes
from kedge.snapshot.diffs.trees import TreeChange
from kedge.snapshot.values import Absent, Change, Present, Reason, Uncovered

ONE, TWO = "1" * 40, "2" * 40


def test_states_become_gits_modes() -> None:
    """Only the owner's right to run a file counts, and a link has no rights of its own."""
    changes = [
        Change(b"b", Present(ONE, 0o100600), Present(TWO, 0o100711)),
        Change(b"a", Absent(), Present(ONE, 0o120755)),
        Change(b"c", Present(ONE, 0o100655), Absent()),
    ]
    one, two = bytes.fromhex(ONE), bytes.fromhex(TWO)
    assert tree_changes(changes) == [
        TreeChange(b"a", None, (0o120000, one)),
        TreeChange(b"b", (0o100644, one), (0o100755, two)),
        TreeChange(b"c", (0o100644, one), None),
    ]


def test_what_git_does_not_see_is_left_out() -> None:
    """Bits that git does not keep, and paths of which one side is not known."""
    changes = [
        Change(b"a", Present(ONE, 0o100644), Present(ONE, 0o100600)),
        Change(b"b", Uncovered(Reason.IGNORED), Present(ONE, 0o100644)),
        Change(b"c", Present(ONE, 0o100644), Uncovered(Reason.LARGE)),
        Change(b"d", Absent(), Absent()),
    ]
    assert tree_changes(changes) == []
