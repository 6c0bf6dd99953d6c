"""Whose each change of a worktree is, as far as anybody could tell; nothing of conversations."""

from collections.abc import Iterable, Mapping

from kedge.domain.file_states import Absent, Present
from kedge.engine.revert.merge import Source
from tests.engine.revert.plan_model import PERSON, Record
from tests.engine.revert.plan_trees import Blobs, State, Tree


class Ledger:
    """A worktree in memory, and all that happened in it.

    What changes while calls of unknown effect run, is settled when somebody looks: it is whose
    calls ran, and nobody's if several did.
    """

    def __init__(self, tree: Tree, blobs: Blobs) -> None:
        self.blobs = blobs
        self.tree = tree
        self.log: list[Record] = []
        self.trees = [tree.copy()]
        """The worktree as it was after each number."""
        self._settled = dict(tree.files)
        """Of each path the newest state of which it is known whose it is."""
        self._running: dict[str, list[Record]] = {}
        """What was seen so far while a session's call of unknown effect ran."""
        self._held: set[bytes] = set()
        """What a declared call is writing."""

    @property
    def now(self) -> int:
        """The number of the last thing that happened."""
        return len(self.trees) - 1

    def change(self, changes: Mapping[bytes, State]) -> list[bytes]:
        """Files change, by whoever it is; the folders that had to be made."""
        made = self.tree.change(
            (path, state) for path, state in changes.items() if self.tree.state(path) != state
        )
        if not self._running:
            self.look()
        return made

    def look(self, paths: Iterable[bytes] | None = None) -> None:
        """Somebody looks at the files, or at some of them."""
        looked_at = {*self._settled, *self.tree.files} if paths is None else set(paths)
        records = self.settle(looked_at - self._held, *self._at_work())
        for seen in self._running.values():
            seen.extend(records)

    def unsettled(self) -> list[Record]:
        """What happened since somebody looked."""
        return self._records({*self._settled, *self.tree.files}, *self._at_work())

    def _at_work(self) -> tuple[str, Source | None]:
        """Whose a change is that is seen now, and how it is known."""
        names = sorted(self._running)
        source = (None, Source.OBSERVED, Source.SHARED)[min(len(names), 2)]
        return " and ".join(names) or PERSON, source

    def is_running(self, name: str) -> bool:
        """Whether a session's call of unknown effect runs."""
        return name in self._running

    def begin_unknown(self, name: str) -> None:
        """A call of unknown effect begins."""
        self.look()
        self._running[name] = []

    def end_unknown(self, name: str) -> list[Record]:
        """It is over; gives what was seen meanwhile."""
        self.look()
        return self._running.pop(name)

    def begin_declared(self, paths: Iterable[bytes]) -> None:
        """A call begins to write paths."""
        held = set(paths)
        self.look(held)
        self._held = held

    def end_declared(self, name: str) -> list[Record]:
        """It is over: all that became of its paths is its own."""
        held, self._held = self._held, set()
        return self.settle(held, name, Source.DECLARED)

    def settle(
        self, paths: Iterable[bytes], actor: str, source: Source | None, *, of_plan: bool = False
    ) -> list[Record]:
        """It is known whose the newest changes of paths are."""
        records = self._records(paths, actor, source, of_plan=of_plan)
        for each in records:
            if isinstance(each.after, Present):
                self._settled[each.path] = each.after
            else:
                del self._settled[each.path]
        if records:
            self.log += records
            self.trees.append(self.tree.copy())
        return records

    def _records(
        self, paths: Iterable[bytes], actor: str, source: Source | None, *, of_plan: bool = False
    ) -> list[Record]:
        return [
            Record(self.now + 1, actor, path, before, after, source, of_plan)
            for path in sorted(paths)
            if (before := self._settled.get(path, Absent())) != (after := self.tree.state(path))
        ]
