"""Copies blobs out of the packs of a user's repository, checked, while other work continues.

The first snapshot of a repository takes blobs from its index instead of reading the files. They are
in the user's own packs then, where the next command may delete, rewrite or damage them. So git
copies them into a pack of the store, in which every object was hashed. The caller reads from the
files what cannot be copied: loose objects (reading the file is as fast), objects that are missing,
damaged or of another size, and everything for which git takes too long, which a hostile repository
can cause.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from kedge.snapshot.objects import git_cli
from kedge.snapshot.objects.durable import make_folder
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.gc import CollectionPause
from kedge.snapshot.objects.git_cli import PackingFailed
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import Packs, publish
from kedge.snapshot.repository.signatures import read_small

SMALLEST_CHUNK, LARGEST_CHUNK = 5_000, 25_000
"""Blobs per pack."""
CHUNKS = 8
"""Packs per snapshot: git begins early and has little left to do at the end."""

# Far more than was ever measured, and little compared with reading as many files.
_PATIENCE = 3.0
_PATIENCE_PER_BLOB = 0.0002
_MOST_FOLDERS = 20
_LONGEST_LIST = 1 << 20


def object_folders(objects_folder: bytes) -> list[bytes]:
    """The object folder and its alternates; none if they cannot be opened safely."""
    waiting, seen = [objects_folder], dict[bytes, None]()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen[folder] = None
        if len(seen) > _MOST_FOLDERS:
            return []
        path = folder + b"/info/alternates"
        if not os.path.lexists(path):
            continue
        content = read_small(path, _LONGEST_LIST)
        if content is None:
            return []
        lines = [line for line in content.split(b"\n") if line and not line.startswith(b"#")]
        waiting += [os.path.normpath(os.path.join(folder, line)) for line in lines]
    return list(seen)


class BlobCopy:
    """Blobs on their way into the store; `add` and `finish` are called by one thread at a time.

    Copied blobs are safe from collections until `close`; by then something must hold them.
    """

    def __init__(
        self,
        git: str,
        layout: Layout,
        folders: Iterable[bytes],
        *,
        expected: int,
        pause: CollectionPause,
    ) -> None:
        self._git = git
        self._layout = layout
        self._pause = pause
        self._workshop = layout.workshops / secrets.token_hex(8)
        self._has_packs = any(layout.packs.glob("*.idx"))
        self._asked: dict[bytes, int] = {}
        self._disputed = set[bytes]()
        self._next: dict[bytes, int] = {}
        self._enough = max(SMALLEST_CHUNK, min(expected // CHUNKS, LARGEST_CHUNK))
        self._chunks: list[Future[None]] = []
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="kedge-copy")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._prepare(folders)
        self.copied = set[bytes]()
        """Blobs that are in the store's own packs."""

    def _prepare(self, folders: Iterable[bytes]) -> None:
        """Make an object folder in which git finds the packs of others, and nothing else."""
        make_folder(self._objects / "info")
        make_folder(self._objects / "pack")
        make_folder(self._nothing)
        lines = []
        for number, folder in enumerate(folders):
            lender = self._workshop / f"lender{number}"
            lender.mkdir()
            os.symlink(folder + b"/pack", bytes(lender / "pack"))
            lines.append(f"../{lender.name}\n")
        (self._objects / "info/alternates").write_text("".join(lines))

    @property
    def _objects(self) -> Path:
        return self._workshop / "objects"

    @property
    def _nothing(self) -> Path:
        return self._workshop / "nothing"

    def add(self, blobs: Iterable[bytes], sizes: Iterable[int]) -> None:
        """Request copies of blobs with these expected sizes.

        A blob that is requested with two sizes is lacking: it cannot stand for both files.
        """
        for blob, size in zip(blobs, sizes, strict=True):
            asked = self._asked.get(blob)
            if asked is None:
                self._asked[blob] = self._next[blob] = size
            elif asked != size:
                self._disputed.add(blob)
        if len(self._next) >= self._enough:
            self._begin()

    def _begin(self) -> None:
        chunk, self._next = self._next, {}
        self._chunks.append(self._copier.submit(self._copy, chunk))

    def finish(self, seconds: float) -> set[bytes]:
        """Wait for the copying, up to this many seconds; returns what is not in the store's
        packs."""
        if self._next:
            self._begin()
        patience = min(seconds, _patience(len(self._asked)))
        done, late = wait(self._chunks, max(0.0, patience))
        if late:
            self._stop()
        for chunk in done:
            error = chunk.exception()
            # The caller reads what git could not copy; if the disk is full, it will notice.
            if error is not None and not isinstance(error, PackingFailed | OSError):
                raise error
        return self.lacking()

    def lacking(self) -> set[bytes]:
        """Requested blobs that are not, or not yet, in the store's own packs with their size."""
        return self._asked.keys() - self.copied | self._disputed

    def close(self) -> None:
        """Stop what still runs, and release everything."""
        self._stop()
        shutil.rmtree(self._workshop, ignore_errors=True)
        self._pause.end()

    def _stop(self) -> None:
        self._is_stopped = True
        if self._process is not None:
            self._process.kill()
        self._copier.shutdown(cancel_futures=True)

    # In the thread

    def _copy(self, chunk: dict[bytes, int]) -> None:
        own = self._own(chunk)
        self.copied |= own
        blobs = self._packed({blob: size for blob, size in chunk.items() if blob not in own})
        if not blobs:
            return
        try:
            self._pack(blobs)
        except BaseException:
            # If the disk is full, the leftovers of git would be in the way of reading the files.
            self._empty()
            raise
        self.copied.update(blobs)

    def _pack(self, blobs: list[bytes]) -> None:
        base = self._objects / f"pack/chunk{len(self.copied)}"
        name = git_cli.pack_objects(self._run, base, blobs, "--window=0")
        pack = base.with_name(f"{base.name}-{name}.pack")
        index = git_cli.index_pack(self._run_alone, pack, blobs)
        publish(pack, index, self._layout.packs, name)

    def _empty(self) -> None:
        """Remove what a failed git left; nothing else runs in this workshop."""
        for folder in (self._objects / "pack", self._nothing):
            for left in folder.rglob("*"):
                if not left.is_dir():
                    left.unlink()

    def _own(self, chunk: dict[bytes, int]) -> set[bytes]:
        """The blobs that the store has with the expected sizes: nothing that it has now is
        collected before `close`."""
        if not self._has_packs:
            return set()
        packs = Packs(self._layout.objects)
        return {blob for blob, size in chunk.items() if _has(packs, blob, size)}

    def _packed(self, chunk: dict[bytes, int]) -> list[bytes]:
        """The blobs that are in the user's packs with the expected sizes."""
        if not chunk:
            return []
        asked = ["cat-file", "--buffer", "--batch-check=%(objecttype) %(objectsize)"]
        given = self._run(asked, git_cli.as_lines(chunk))
        expected = "".join([f"blob {size}\n" for size in chunk.values()]).encode()
        if given == expected:
            return list(chunk)
        pairs = zip(chunk, given.split(b"\n"), expected.split(b"\n"), strict=False)
        return [blob for blob, line, right in pairs if line == right]

    def _run(self, arguments: list[str], given: bytes) -> bytes:
        return self._run_on(self._objects, arguments, given)

    def _run_alone(self, arguments: list[str], given: bytes) -> bytes:
        # With the user's packs visible, git would compare each object with theirs.
        return self._run_on(self._nothing, arguments, given)

    def _run_on(self, objects: Path, arguments: list[str], given: bytes) -> bytes:
        return git_cli.run_git(
            [self._git, "--git-dir", str(self._layout.root), *arguments],
            given,
            patience=_patience(len(self._asked)),
            started=self._note_process,
            variables={"GIT_OBJECT_DIRECTORY": str(objects)},
        )

    def _note_process(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self._is_stopped:
            process.kill()


def _has(packs: Packs, blob: bytes, size: int) -> bool:
    found = packs.read(blob)
    return found is not None and found[0] == BLOB and len(found[1]) == size


def _patience(blobs: int) -> float:
    return _PATIENCE + blobs * _PATIENCE_PER_BLOB
