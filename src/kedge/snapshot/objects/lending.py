"""Whether borrowed blobs are what they are taken for, asked of git while other work goes on.

A user's index may name a blob that is not there (a partial clone, a repository being tidied), or
one that is not the bytes on disk (a conversion that is no longer configured). Git is asked for the
sizes of all of them, in a process of its own; it reads objects only. What a hostile repository has
in their place may keep git waiting for ever, so it has limited time.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable
from typing import IO

from kedge.snapshot.objects.formats import ID_LENGTH
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.plumbing import environment
from kedge.snapshot.repository.reading import read_small

# Far more than was ever measured, and little against reading as many files.
_PATIENCE = 3.0
_PATIENCE_PER_BLOB = 0.0002
_MOST_FOLDERS = 20
_LONGEST_LIST = 1 << 20


def is_lender(objects_folder: bytes) -> bool:
    """Whether the object folder, and those it names itself, can be opened without a surprise."""
    waiting, seen = [objects_folder], set[bytes]()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        if len(seen) > _MOST_FOLDERS:
            return False
        path = folder + b"/info/alternates"
        if not os.path.lexists(path):
            continue
        content = read_small(path, _LONGEST_LIST)
        if content is None:
            return False
        lines = [line for line in content.split(b"\n") if line and not line.startswith(b"#")]
        waiting += [os.path.normpath(os.path.join(folder, line)) for line in lines]
    return True


class LentCheck:
    """Blobs with the sizes they should have; collected, looked up, and judged."""

    def __init__(self, git: str, layout: Layout) -> None:
        self._command = [git, "--git-dir", str(layout.root), "cat-file", "--buffer"]
        self._command.append("--batch-check=%(objecttype) %(objectsize)")
        self._blobs: list[bytes] = []
        self._sizes: list[int] = []
        self._answers: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.gave_up = False
        """Git did not answer: nothing of this repository can be borrowed."""

    def add(self, blobs: Iterable[bytes], sizes: Iterable[int]) -> None:
        """Take note of blobs that should have these sizes."""
        self._blobs += blobs
        self._sizes += sizes

    def start(self) -> None:
        """Have all of them looked up."""
        self._answers = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `wrong`
        with tempfile.TemporaryFile() as asked:
            asked.write(b"".join(self._blobs).hex("\n", ID_LENGTH).encode() + b"\n")
            asked.seek(0)
            self._process = subprocess.Popen(
                self._command,
                stdin=asked,
                stdout=self._answers,
                stderr=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
            )

    def wrong(self) -> set[bytes]:
        """Those that are not there, or are something else; all of them if git cannot tell."""
        assert self._process is not None
        assert self._answers is not None
        with self._answers as answers, self._process as process:
            try:
                process.wait(_PATIENCE + len(self._blobs) * _PATIENCE_PER_BLOB)
            except subprocess.TimeoutExpired:
                process.kill()
                self.gave_up = True
                return set(self._blobs)
            answers.seek(0)
            given = answers.read()
        return self._judge(given)

    def _judge(self, given: bytes) -> set[bytes]:
        expected = "".join([f"blob {size}\n" for size in self._sizes]).encode()
        if given == expected:
            return set()
        lines = given.split(b"\n")
        if len(lines) != len(self._blobs) + 1:
            self.gave_up = True
            return set(self._blobs)
        pairs = zip(self._blobs, lines, expected.split(b"\n"), strict=False)
        return {blob for blob, line, right in pairs if line != right}
