"""A program that edits files and takes, restores and collects snapshots until it is killed.

Its lines, in JSON: `doing` verb, before each; `kept` session id states, when a snapshot was
acknowledged; `captured` blob content, likewise; `released` session, when that begins; `restoring`
old new, the states before and the wanted ones; `restored`.

A state says of a file which version it holds and its mode, or that it is torn. Every edit of the
program is one rename, so that only kedge can tear a file.
"""

import json
import os
import random
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from kedge.snapshot import Present, Snapshots
from kedge.snapshot.objects import gc, journals, store, user_packs
from kedge.snapshot.worktree import seed as seeding

FILES = [f"folder{n % 3}/{n}" for n in range(12)] + ["top", "link"]
SESSIONS = ["ses_0", "ses_1", "ses_2"]
IGNORED = "ignored.log"
LINES = 400
PLAIN = 0o100644
VERBS = {
    "track": {"edit": 4, "track": 6, "capture": 1, "verify": 1, "restore": 1},
    "restore": {"edit": 6, "track": 2, "restore": 6, "verify": 1},
    "collect": {"edit": 4, "track": 5, "collect": 5, "release": 1, "restore": 1, "capture": 1},
}

States = dict[str, str]


def content(version: int) -> bytes:
    """What a file holds, in many lines that are the same."""
    return b"version %d\n" % version * LINES


def state(mode: int, found: bytes) -> str:
    """What is said of a file or a link."""
    if stat.S_ISLNK(mode):
        return f"-> {found.decode()}"
    lines = set(found.splitlines())
    if len(lines) != 1 or len(found.splitlines()) != LINES:
        return "torn"
    return f"{lines.pop().decode()} {0o755 if mode & stat.S_IXUSR else 0o644:o}"


def states(root: Path) -> States:
    """What is said of every covered file of the worktree."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (Path(folder, name) for name in names if name not in (IGNORED, ".gitignore")):
            mode = path.lstat().st_mode
            held = os.readlink(bytes(path)) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = state(mode, held)
    return found


def report(*line: object) -> None:
    """Say something; when this returns it is in the pipe, where a kill cannot reach it."""
    remaining = memoryview(json.dumps(line).encode() + b"\n")
    while remaining:
        remaining = remaining[os.write(sys.stdout.fileno(), remaining) :]


class Keeper:
    """One process at work in a worktree."""

    def __init__(self, root: Path, snapshots: Snapshots, seed: int) -> None:
        self._root = root
        self._snapshots = snapshots
        self._random = random.Random(seed)
        self._version = seed * 100_000
        self._taken: list[tuple[str, States]] = []

    def work(self, weights: Mapping[str, int]) -> None:
        """Do one thing after another, for ever."""
        self._do("track")
        while True:
            self._do(*self._random.choices(list(weights), list(weights.values())))

    def _do(self, verb: str) -> None:
        report("doing", verb)
        getattr(self, verb)()

    def edit(self) -> None:
        for name in self._random.sample(FILES, self._random.randint(1, len(FILES))):
            self._version += 1
            path = self._root / name
            if self._random.random() < 0.2:
                path.unlink(missing_ok=True)
            else:
                self._write(path)
        self._place(self._root / IGNORED, content(self._version))

    def _write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        if path.name == "link" and self._random.random() < 0.5:
            beside = self._root.with_name("beside")
            beside.unlink(missing_ok=True)
            beside.symlink_to(f"nowhere/{self._version}")
            beside.rename(path)
        else:
            self._place(path, content(self._version))

    def _place(self, path: Path, held: bytes) -> None:
        beside = self._root.with_name("beside")
        beside.unlink(missing_ok=True)
        beside.write_bytes(held)
        beside.chmod(self._random.choice((0o644, 0o755)))
        beside.rename(path)

    def track(self) -> None:
        session = self._random.choice(SESSIONS)
        taken = self._snapshots.track(session=session)
        found = states(self._root)
        self._taken.append((taken.id, found))
        report("kept", session, taken.id, found)

    def capture(self) -> None:
        session = self._random.choice(SESSIONS)
        (found,) = self._snapshots.capture([IGNORED.encode()], session=session).values()
        if isinstance(found, Present):
            held = (self._root / IGNORED).read_bytes()
            report("captured", session, found.blob, state(PLAIN, held))

    def verify(self) -> None:
        assert self._snapshots.verify() == []

    def restore(self) -> None:
        if self._taken:
            id, wanted = self._random.choice(self._taken)
            report("restoring", states(self._root), wanted)
            self._snapshots.restore(id)
            assert states(self._root) == wanted
            report("restored")

    def collect(self) -> None:
        self._snapshots._store.collect(keep_taken_for=0)

    def release(self) -> None:
        session = self._random.choice(SESSIONS)
        report("released", session)
        self._snapshots.release(session)
        # Which of the snapshots taken before are still held is for others to know.
        self._taken.clear()


def make_small() -> None:
    """Let everything that happens after a while happen all the time."""
    journals.SEAL_BYTES, journals.SEAL_OBJECTS, journals.BUFFER_BYTES = 64 << 10, 40, 8 << 10
    gc.MANY_PACKS, gc.DEAD_SHARE, gc.RELEASED_SECONDS = 2, 0.05, 0
    seeding.FEWEST_FILES, seeding.LARGEST_BLOB = 0, 1 << 20
    user_packs.SMALLEST_CHUNK = 5
    store.UNCHANGED_SECONDS = 0


if __name__ == "__main__":
    make_small()
    folder, role, seed = sys.argv[1:]
    report("opening")
    with Snapshots.open(Path(folder, "root"), data=Path(folder, "data"), project="prj") as opened:
        Keeper(Path(folder, "root"), opened, int(seed)).work(VERBS[role])
