"""The store's refs as files in git's form: one per session, one per journal's own chain."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from kedge.snapshot.objects.durable import only_one, replace_file, sync_folder
from kedge.snapshot.objects.layout import Layout

SESSION = "refs/kedge/session/"
TAKEN = "refs/kedge/taken/"

_ODD = re.compile(rb"[^A-Za-z0-9_-]")
_LONGEST_NAME = 200
_ID = re.compile(r"[0-9a-f]{40}")


def session_ref(session: str) -> str:
    """The ref of a session; characters that git or a file system may not accept become %XX."""
    encoded = _ODD.sub(lambda odd: b"%%%02X" % odd[0][0], session.encode("utf-8", "surrogatepass"))
    if not 0 < len(encoded) <= _LONGEST_NAME:
        raise ValueError(f"no name for a ref: {session[:_LONGEST_NAME]!r}")
    return SESSION + encoded.decode()


def taken_ref(unique: str) -> str:
    """The ref of the snapshots that one journal kept without a session."""
    return TAKEN + unique


class Refs:
    """The ref files, and the lock under which they are compared and written."""

    def __init__(self, layout: Layout) -> None:
        self._root = layout.root
        self._lock = layout.refs_lock

    def locked(self) -> AbstractContextManager[None]:
        """Wait for the lock on refs and hold it.

        Never call it with the store's own lock held: the holder of this one may be waiting for
        that.
        """
        return only_one(self._lock)

    def read(self, name: str) -> bytes | None:
        """The commit of a ref."""
        try:
            return _commit((self._root / name).read_text())
        except FileNotFoundError:
            return self._packed().get(name)

    def all(self) -> dict[str, bytes]:
        """All of kedge's refs with their commits."""
        found = self._packed()
        for name in self._files():
            commit = self.read(name)
            if commit is not None:
                found[name] = commit
        return found

    def _files(self) -> Iterator[str]:
        for group in (SESSION, TAKEN):
            for entry in os.scandir(self._root / group):
                if not entry.name.endswith(".lock"):
                    yield group + entry.name

    def _packed(self) -> dict[str, bytes]:
        # kedge never writes this file, but a user's `git gc` or `git pack-refs` in the store does.
        try:
            lines = (self._root / "packed-refs").read_text().splitlines()
        except FileNotFoundError:
            return {}
        pairs = (line.split(" ", 1) for line in lines if _ID.match(line))
        return {name: bytes.fromhex(id) for id, name in pairs if name.startswith((SESSION, TAKEN))}

    def write(self, name: str, commit: bytes) -> None:
        """Move a ref; only under the lock. Its temporary name is one that git ignores."""
        path = self._root / name
        replace_file(path, commit.hex().encode() + b"\n", beside=f"{path.name}.lock")

    def remove(self, name: str) -> None:
        """Remove a ref; only under the lock. One that a user's git has packed stays."""
        path: Path = self._root / name
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def _commit(text: str) -> bytes | None:
    # A crash of the machine cannot leave half a ref, but a user's editor can.
    return bytes.fromhex(text.strip()) if _ID.fullmatch(text.strip()) else None
