"""What is said of a mismatch: everything needed to see it again, for people."""

from collections.abc import Iterable
from dataclasses import dataclass

from kedge.domain.file_states import Absent, Present, State
from kedge.snapshot.values import Change
from tests.snapshot_fuzz.oracle import Listing


class Mismatch(AssertionError):
    """Snapshots and oracle disagree; the message holds everything needed to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was wrong, and when."""

    command: str
    """Repeats the run up to here."""
    complaints: list[str]
    log: list[str]
    """What the mutator did in this round."""
    oracle: Listing
    snapshot: Iterable[Change]
    """All that the snapshot knows, as changes since an empty worktree."""

    def mismatch(self) -> Mismatch:
        """The finding as an error."""
        sections = {
            "complaints": self.complaints,
            "what the mutator did in this round": self.log,
            f"the oracle's listing, tree {self.oracle.tree}": self.oracle.lines(),
            "the snapshot's listing": [_line(each) for each in self.snapshot],
        }
        texts = [f"{title}:\n" + _indented(lines) for title, lines in sections.items()]
        return Mismatch("\n\n".join([f"repeat with: {self.command}", *texts]))


def _indented(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines) or "  (none)"


def _line(change: Change) -> str:
    return f"{_state(change.after)} {change.path!r}"


def _state(state: State) -> str:
    match state:
        case Present(blob=blob, mode=mode):
            return f"{mode:06o} {blob[:12]}"
        case Absent():
            return "             absent"
        case _:
            return f"{state.reason:>19}"
