"""What kept snapshots say of paths, compared with a plain model of a worktree."""

import stat

from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot import Absent, Present, Reason, Snapshot, Uncovered
from kedge.snapshot.history import View, changes
from kedge.snapshot.objects.formats import BLOB, TREE, encode_tree, object_id

names = st.sampled_from([b"a", b"b", b"c.d", b"\xff"])
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
present = st.builds(
    lambda content, bits: (content, bits),
    st.sampled_from([b"", b"1", b"2"]),
    st.sampled_from([0o644, 0o755, 0o600, 0o4755]),
)
uncovered = st.sampled_from(list(Reason))
trees = st.dictionaries(paths, st.one_of(present, uncovered), max_size=8).map(
    lambda tree: {
        path: held
        for path, held in tree.items()
        # A path is either a file, noted, or a folder of others.
        if not any(path.startswith(other + b"/") for other in tree)
    }
)

Model = dict[bytes, tuple[bytes, int] | Reason]


class Objects:
    """Git objects in memory."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}

    def put(self, kind: bytes, content: bytes) -> bytes:
        id = object_id(kind, content)
        self.content[id] = content
        return id

    def tree(self, leaves: dict[bytes, tuple[int, bytes]]) -> bytes:
        """A tree of these paths."""
        folders: dict[bytes, dict[bytes, tuple[int, bytes]]] = {}
        entries = []
        for path, (mode, id) in leaves.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                folders.setdefault(name, {})[rest] = (mode, id)
            else:
                entries.append((name, mode, id))
        entries += [(name, 0o40000, self.tree(below)) for name, below in folders.items()]
        return self.put(TREE, encode_tree(entries))

    def snapshot(self, model: Model) -> Snapshot:
        """A snapshot of a model."""
        files, notes = {}, {}
        for path, held in model.items():
            if isinstance(held, Reason):
                notes[path] = (0o100644, self.put(BLOB, held.encode()))
                continue
            content, bits = held
            git_mode = 0o100755 if bits & 0o100 else 0o100644
            files[path] = (git_mode, self.put(BLOB, content))
            if bits not in (0o644, 0o755):
                notes[path] = (0o100644, self.put(BLOB, b"mode %o" % bits))
        return Snapshot(id=self.tree(files).hex(), notes=self.tree(notes).hex())


def expected(model: Model, path: bytes) -> Present | Absent | Uncovered:
    """What the model says of a path."""
    for end in [i for i, byte in enumerate(path) if byte == ord("/")] + [len(path)]:
        held = model.get(path[:end])
        if isinstance(held, Reason):
            return Uncovered(held)
    held = model.get(path)
    if held is None or isinstance(held, Reason):
        return Absent()
    return Present(object_id(BLOB, held[0]).hex(), stat.S_IFREG | held[1])


@given(trees, paths)
def test_a_view_says_what_was_there(model: Model, path: bytes) -> None:
    """Of every path: its content and bits, that it was absent, or that nothing is known."""
    objects = Objects()
    view = View(objects.content.__getitem__, objects.snapshot(model))
    for each in (path, *model):
        assert view.state(each) == expected(model, each)


@given(trees, trees)
def test_changes_are_the_paths_that_differ(old: Model, new: Model) -> None:
    """Exactly the paths that one side holds and whose states are not the same, sorted."""
    objects = Objects()
    before, after = objects.snapshot(old), objects.snapshot(new)
    found = changes(objects.content.__getitem__, before, after)
    differing = {
        path
        for path in old.keys() | new.keys()
        if expected(old, path) != expected(new, path)
        and any(isinstance(expected(side, path), Present) for side in (old, new))
    }
    assert [change.path for change in found] == sorted(differing)
    for change in found:
        assert change.before == expected(old, change.path)
        assert change.after == expected(new, change.path)
        sides = (change.before, change.after)
        assert change.is_covered is not any(isinstance(side, Uncovered) for side in sides)
