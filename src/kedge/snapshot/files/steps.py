"""Steps over files: their states, temporary names, and the reasons why one could not be done."""

import errno
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.errors import InvariantBroken, PathRefused
from kedge.domain.file_states import FileStep, Outcome, Present, State
from kedge.snapshot.files.reader import is_same, look_at
from kedge.snapshot.values import Result

_log = logging.getLogger(__name__)

_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")
# The limit of file systems on Linux and macOS.
_LONGEST = 255


def is_own_name(name: bytes) -> bool:
    """Whether this is a name that kedge gives to files of its own."""
    return name.startswith(b".kedge-") and name.endswith(b"~")


def temporary_name(tag: str, number: int) -> bytes:
    """The name for new content; after a crash the file is of no value."""
    return f".kedge-{_checked(tag)}-{number}~".encode()


def aside_name(tag: str, number: int) -> bytes:
    """The name for replaced content that is yet to be compared; it may be the only copy."""
    return f".kedge-{_checked(tag)}-{number}-old~".encode()


def kept_name(name: bytes, tag: str, number: int) -> bytes:
    """The name for a user's bytes that cannot go back in place: beside it and visible."""
    suffix = f".kedge-{_checked(tag)}-{number}".encode()
    return name[: _LONGEST - len(suffix)] + suffix


def _checked(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise InvariantBroken(f"not usable in a file name: {tag!r}")
    return tag


IN_THE_WAY = "a temporary file of an interrupted run is in the way"

_WORDS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "it may not be changed",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "there is no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it is too large for the file system",
    errno.EEXIST: IN_THE_WAY,
    errno.ENOENT: "its folder or a temporary file was removed at the last moment",
    errno.EIO: "the disk failed",
    errno.EBUSY: "it is in use",
    errno.EISDIR: "there is a folder",
    errno.EXDEV: "it cannot be moved on this file system",
    errno.ENAMETOOLONG: "its name is too long for the file system",
    errno.EILSEQ: "the file system does not allow its name",
}


_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}

MayWrite: TypeAlias = Callable[[], None]
"""Raises if nothing may be written any more."""


def always() -> None:
    """A `MayWrite` that always allows writing."""


class CannotWrite(Exception):
    """The path cannot be written as required; the message says why."""


@dataclass(frozen=True, slots=True)
class RootedStep:
    """A step anywhere in the file system: its path is relative to this folder."""

    root: bytes
    step: FileStep

    @property
    def real(self) -> bytes:
        """The absolute path."""
        return os.path.join(self.root, self.step.path)

    def path_in(self, folder: bytes) -> bytes | None:
        """The path relative to a folder; None if it is not below it."""
        top = folder.rstrip(b"/") + b"/"
        return self.real.removeprefix(top) if self.real.startswith(top) else None

    def taken_back(self, number: int) -> "RootedStep":
        """The step that undoes this one."""
        step = self.step
        back = FileStep(number=number, path=step.path, expect=step.want, want=step.expect)
        return RootedStep(self.root, back)


@dataclass(slots=True, kw_only=True)
class FileWork:
    """The writes of a tool call, step by step."""

    steps: tuple[RootedStep, ...]
    contents: Mapping[str, bytes]
    """By blob; also the present contents, in case they must be restored."""
    is_done: bool = False
    """Whether each step was carried out, even if another program changed the files since."""


def taking_back(steps: Sequence[RootedStep]) -> list[RootedStep]:
    """The steps that undo others, in reverse order, with numbers that continue theirs."""
    return [each.taken_back(each.step.number + len(steps)) for each in reversed(steps)]


def _is_anywhere(blob: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a step: a name in an open folder, and kedge's own names beside it."""

    step: FileStep
    dir_fd: int
    tag: str
    is_stored: Callable[[str], bool] = _is_anywhere
    """Whether a blob can be read without the file that holds it."""

    @property
    def name(self) -> bytes:
        return self.step.path.rpartition(b"/")[2]

    @property
    def temporary(self) -> bytes:
        return temporary_name(self.tag, self.step.number)

    @property
    def aside(self) -> bytes:
        return aside_name(self.tag, self.step.number)

    def holds(self, name: bytes, state: State) -> bool:
        """Whether a name of the folder has exactly this state now."""
        return is_same(look_at(self.dir_fd, name), state)

    def has_what_is_expected(self) -> bool:
        """Whether the content that the step expects is safe without the file that holds it."""
        expect = self.step.expect
        return not isinstance(expect, Present) or self.is_stored(expect.blob)

    def move(self, name: bytes, new: bytes) -> None:
        os.rename(name, new, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)

    def discard(self, name: bytes) -> None:
        """Unlink one of kedge's own names; another program cleaning up may have done so."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.dir_fd)

    def leave(self, name: bytes) -> None:
        """Unlink one of kedge's own names that nobody needs any more; if the folder was closed to
        kedge meanwhile, the name stays in it, and what was done stays done."""
        try:
            self.discard(name)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            _log.warning("%r stays beside %r: %s", name, self.step.path, error.strerror)

    def result(self, outcome: Outcome, reason: str = "") -> Result:
        return Result(self.step.path, outcome, reason)


def skipped(step: FileStep, error: PathRefused | CannotWrite | OSError) -> Result:
    """The result for a path that the system does not allow to be written; other errors are
    raised."""
    if not isinstance(error, OSError):
        return Result(step.path, Outcome.SKIPPED, str(error))
    if error.errno not in _WORDS:
        raise error
    return Result(step.path, Outcome.SKIPPED, _WORDS[error.errno])
