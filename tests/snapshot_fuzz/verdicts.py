"""Compares what snapshots say with what the oracle read; a complaint is a line for people."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from kedge.domain.file_states import Outcome, Present, State
from kedge.snapshot.values import Change, Result
from tests.snapshot_fuzz.disk import Leaf, read_leaf, walk
from tests.snapshot_fuzz.oracle import Listing, Standing

_NOT_DONE = (Outcome.CONFLICT, Outcome.SKIPPED)
_MAY_BE = {
    Standing.PRESENT: ("present",),
    Standing.ABSENT: ("absent",),
    Standing.UNCOVERED: ("uncovered",),
    Standing.UNKNOWN: ("absent", "uncovered"),
}


def judge_changes(changes: Iterable[Change], before: Listing, after: Listing) -> Iterator[str]:
    """What is wrong with the changes between two snapshots of these two worktrees."""
    said = list(changes)
    paths = [each.path for each in said]
    if paths != sorted(set(paths)):
        yield f"not sorted, or a path twice: {paths}"
    for each in said:
        yield from _judge_state("before", each.path, each.before, before)
        yield from _judge_state("after", each.path, each.after, after)
        if each.before == each.after:
            yield f"{each.path!r} is said to have changed from {each.before} to the same"
    changed = {
        path
        for path in before.files.keys() | after.files.keys()
        if before.files.get(path) != after.files.get(path)
    }
    for path in sorted(changed - set(paths)):
        sides = (before.files.get(path), after.files.get(path))
        yield f"{path!r} changed from {sides[0]} to {sides[1]}, which is not said"


def _judge_state(when: str, path: bytes, state: State, listing: Listing) -> Iterator[str]:
    standing = listing.standing(path)
    if type(state).__name__.lower() not in _MAY_BE[standing]:
        yield f"{path!r} {when}: {state}, but it was {standing.value}"
    if isinstance(state, Present) and standing is Standing.PRESENT:
        leaf = listing.files[path]
        if (state.blob, state.mode) != (leaf.blob, leaf.mode):
            yield f"{path!r} {when}: {state}, but it was {leaf}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A restore as the oracle saw it."""

    wanted: Listing
    """The worktree that was to come back."""
    found: Listing
    """The worktree before."""
    disk_before: Mapping[bytes, Leaf]
    """All files before, covered or not."""
    disk_after: Mapping[bytes, Leaf]
    results: Mapping[bytes, Result]

    def complaints(self) -> Iterator[str]:
        """What is wrong: a covered path not as wanted, or an uncovered one not as it was."""
        known = self.disk_before.keys() | self.disk_after.keys() | self.wanted.files.keys()
        for path in sorted(known):
            was, left = self.disk_before.get(path), self.disk_after.get(path)
            want = self.wanted.files.get(path)
            sides = (self.wanted.standing(path), self.found.standing(path))
            if Standing.UNCOVERED in sides:
                if left != was:
                    yield f"{path!r} was not to be touched: {was} became {left}"
            elif Standing.UNKNOWN in sides and left == was:
                continue
            elif left != want and not self._may_stay(path):
                yield f"{path!r} should be {want} and is {left}: {self.results.get(path)}"

    def _may_stay(self, path: bytes) -> bool:
        """It was said that it could not be done, and something uncovered is in the way."""
        result = self.results.get(path)
        if result is None or result.outcome not in _NOT_DONE:
            return False
        if self.disk_after.get(path) != self.disk_before.get(path):
            return False
        return _is_in_the_way(path, self.found.uncovered.keys())


def _is_in_the_way(path: bytes, others: Set[bytes]) -> bool:
    below = (other.startswith(path + b"/") for other in others)
    above = (path.startswith(other + b"/") for other in others)
    return any(below) or any(above)


def read_disk(root: bytes) -> dict[bytes, Leaf]:
    """Every file and link below a folder but for git's own, whatever the rules say."""
    found: dict[bytes, Leaf] = {}
    for each in walk(root):
        if each.is_folder or os.path.basename(each.path) == b".git":
            continue
        leaf = None if each.is_special else read_leaf(root, each)
        found[each.path] = leaf or Leaf("", stat.S_IFMT(each.mode))
    return found
