"""What the tests of the object store share: plain git on a store, and small snapshots."""

import subprocess
from pathlib import Path

from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, encode_tree, parse_tree
from kedge.snapshot.objects.store import ObjectStore

FILE = 0o100644


def git(store: Path, *arguments: str, stdin: bytes = b"", also_errors: bool = False) -> str:
    """What git says of a store; fails if git does."""
    command = ["git", "--git-dir", str(store), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return (done.stdout + (done.stderr if also_errors else b"")).decode()


def check(store: Path) -> None:
    """Git finds nothing wrong with a store, and nothing is left unfinished in it."""
    complaints = git(store, "fsck", "--full", "--strict", "--no-dangling")
    assert complaints == ""
    assert list((store / "journals").iterdir()) == []
    assert [path for path in store.rglob("tmp_*") if path.is_file()] == []


def put_files(store: ObjectStore, files: dict[bytes, bytes]) -> bytes:
    """Put a flat tree with these files."""
    return store.put(
        TREE, encode_tree([(name, FILE, store.put(BLOB, each)) for name, each in files.items()])
    )


def keep_files(store: ObjectStore, session: str | None, files: dict[bytes, bytes]) -> bytes:
    """Put and keep a flat tree; gives the tree's id."""
    tree = put_files(store, files)
    store.keep(session, files=tree, notes=EMPTY_TREE, base=store.put(BLOB, b"644 755"))
    return tree


def read_files(store: ObjectStore, tree: bytes) -> dict[bytes, bytes]:
    """What a flat tree holds."""
    return {name: store.read(id)[1] for name, _, id in parse_tree(store.read(tree)[1])}
