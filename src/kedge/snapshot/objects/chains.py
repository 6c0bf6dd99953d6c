"""The tips of the chains of keeps, combined from ref files and the journals of all processes."""

from kedge.snapshot.objects import keeps
from kedge.snapshot.objects.journal import ForeignJournals, Tip
from kedge.snapshot.objects.journals import OwnJournals
from kedge.snapshot.objects.keeps import Keep, Link, ReadObject
from kedge.snapshot.objects.refs import Refs


class Chains:
    """The refs of all processes; called under the store's lock, except for `unknown`."""

    def __init__(
        self, refs: Refs, own: OwnJournals, foreign: ForeignJournals, read: ReadObject
    ) -> None:
        self._refs = refs
        self._own = own
        self._foreign = foreign
        self._read = read
        self._in_files: dict[str, Tip] = {}
        self._found: dict[bytes, Keep] = {}
        self._learned: set[bytes] = set()
        self._passed: dict[str, tuple[Tip, set[Tip]]] = {}
        """By ref: a commit and others that it is known to supersede, because walking takes long."""

    def newest(self, name: str) -> Tip | None:
        """The deepest commit that any process has written for a ref."""
        tips = self._tips(name)
        return max(tips, key=_order) if tips else None

    def own(self, name: str) -> list[Tip]:
        """The newest commit of a ref that only this process writes: fast to find."""
        tips = self._own_tips(name)
        return [max(tips, key=_order)] if tips else []

    def _own_tips(self, name: str) -> set[Tip]:
        tips = {each.refs[name] for each in self._own.journals() if name in each.refs}
        if name in self._own.pending_refs:
            tips.add(self._own.pending_refs[name])
        return tips

    def _tips(self, name: str) -> set[Tip]:
        # Journals first: a ref is in the ref files before it leaves a journal.
        self._foreign.refresh(self._own.names())
        tips = self._own_tips(name) | set(self._foreign.tips(name))
        commit = self._refs.read(name)
        if commit is not None:
            tips.add(self._tip_in_file(name, commit))
        return tips

    def _tip_in_file(self, name: str, commit: bytes) -> Tip:
        known = self._in_files.get(name)
        if known is None or known.commit != commit:
            known = self._in_files[name] = keeps.read_link(self._read, commit).tip
        return known

    def standing(self, name: str) -> list[Tip]:
        """The commits that hold everything that a ref holds, the newest first.

        There is more than one only if processes continued from the same commit at the same time.
        """
        tips = self._tips(name)
        if not tips:
            return []
        newest = max(tips, key=_order)
        by, passed = self._passed.get(name, (newest, set()))
        unsure = tips - {newest} - (passed if by == newest else set())
        apart = {tip for tip in unsure if not keeps.supersedes(self._read, newest, tip)}
        self._passed[name] = newest, tips - {newest} - apart
        return [newest, *sorted(apart, key=_order)]

    def advance(self, name: str, standing: list[Tip], tip: Tip) -> None:
        """Record a commit that this process made after the standing ones."""
        _, passed = self._passed.get(name, (tip, set()))
        self._passed[name] = tip, passed.union(standing)

    def names(self) -> set[str]:
        """All refs that exist."""
        return self.in_journals().keys() | self._refs.all().keys()

    def in_journals(self) -> dict[str, set[Tip]]:
        """The tips of refs in the journals of all processes, and in this process's buffer."""
        self._foreign.refresh(self._own.names())
        found: dict[str, set[Tip]] = {}
        sources = [self._own.pending_refs, *(each.refs for each in self._own.journals())]
        sources += [each.refs for each in self._foreign]
        for refs in sources:
            for name, tip in refs.items():
                found.setdefault(name, set()).add(tip)
        return found

    def remember(self, keep: Keep) -> None:
        """Make a keep known to `find`."""
        known = self._found.get(keep.held.files)
        # Times are in seconds: within one chain, the deeper commit is newer.
        if known is None or (known.seconds, known.depth) <= (keep.seconds, keep.depth):
            self._found[keep.held.files] = keep

    def known(self, files: bytes) -> Keep | None:
        """The newest keep of a tree among those that were read."""
        return self._found.get(files)

    def unknown(self, tips: list[Tip]) -> list[tuple[Link, Keep | None]]:
        """The commits below these that were not learned yet; slow, and needs no lock."""
        links = keeps.walk(self._read, tips, self._learned.__contains__)
        return [
            (link, keeps.read_keep(self._read, link) if link.is_keep else None) for link in links
        ]

    def learn(self, found: list[tuple[Link, Keep | None]]) -> None:
        """Remember keeps that other processes made."""
        for link, keep in found:
            self._learned.add(link.id)
            if keep is not None:
                self.remember(keep)


def _order(tip: Tip) -> tuple[int, bytes]:
    return tip.depth, tip.commit
