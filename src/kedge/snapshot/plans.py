"""What is about to be written into a worktree, on disk before the first file is touched.

If the process dies in the middle, the next one puts in order what it left. A plan is carried out,
and cleaned up after, only under the root's lock: so one that is found under the lock is a dead
process's.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kedge.snapshot.files.opening import Root
from kedge.snapshot.files.recovering import clean_up
from kedge.snapshot.files.steps import Step
from kedge.snapshot.objects.durable import disk_errors, make_folder, replace_file
from kedge.snapshot.values import Absent, Present, State

_DAMAGED = ".damaged"


class _Written(msgspec.Struct, array_like=True, frozen=True):
    """A step as it is written down; no blob stands for nothing at the path."""

    number: int
    path: bytes
    expect_blob: str
    expect_mode: int
    want_blob: str
    want_mode: int


class Plans:
    """The unfinished plans of one worktree, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def carried_out(self, steps: list[Step]) -> Iterator[str]:
        """Write steps down for as long as the block lasts; yields the tag of their files."""
        tag = uuid.uuid4().hex[:12]
        path = self._folder / f"{tag}.plan"
        with disk_errors("writing down what is about to be put back"):
            make_folder(self._folder)
            content = msgspec.msgpack.encode([_written(step) for step in steps])
            replace_file(path, content, beside=f"{tag}.new")
        yield tag
        # Left behind if the block raised: then something may have to be put in order.
        path.unlink()

    def clean_up(self, root: Root) -> None:
        """Put in order what dead processes left; the caller holds the root's lock."""
        for path in sorted(self._folder.glob("*.plan")):
            try:
                steps = msgspec.msgpack.decode(path.read_bytes(), type=list[_Written])
            except msgspec.DecodeError:
                # What it was about may be the only copy of somebody's bytes: both stay.
                path.rename(path.with_suffix(_DAMAGED))
                continue
            clean_up(root, [_step(step) for step in steps], tag=path.stem)
            path.unlink()
        for path in self._folder.glob("*.new"):
            path.unlink()

    def are_there(self) -> bool:
        """Whether anything is to be cleaned up; costs one look into a folder."""
        return any(not name.endswith(_DAMAGED) for name in self._names())

    def damaged(self) -> str:
        """What cannot be put in order, in words; empty if nothing."""
        tags = [name.removesuffix(_DAMAGED) for name in self._names() if name.endswith(_DAMAGED)]
        if not tags:
            return ""
        return (
            f"what a restore left behind cannot be put in order: look at the files named"
            f" .kedge-{tags[0]}-* in the worktree, then remove {self._folder / tags[0]}{_DAMAGED}"
        )

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []


def _written(step: Step) -> _Written:
    return _Written(step.number, step.path, *_parts(step.expect), *_parts(step.want))


def _parts(state: State) -> tuple[str, int]:
    return (state.blob, state.mode) if isinstance(state, Present) else ("", 0)


def _step(written: _Written) -> Step:
    return Step(
        number=written.number,
        path=written.path,
        expect=_state(written.expect_blob, written.expect_mode),
        want=_state(written.want_blob, written.want_mode),
    )


def _state(blob: str, mode: int) -> State:
    return Present(blob, mode) if blob else Absent()
