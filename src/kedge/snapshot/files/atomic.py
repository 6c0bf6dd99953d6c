"""Creates, replaces or deletes one name of an open folder atomically, so that no bytes are ever
lost.

The present content of the name is first moved, in one system call, to a name of kedge's own
(*aside*) and compared there, where no other program writes. It is unlinked only if it is what the
step expects or what the step itself wrote: both are in the object store. Anything else was saved by
another program at the last moment and is put back; if that program saved again meanwhile, the newer
version stays in place and the older one is kept beside it under a visible name. One case is not
protected: a program that opened the file for writing before and writes into it after the comparison
writes into a file without a name.

Where the file system cannot swap two names, a replaced file has no name while it is compared. Owner
and group are kept where the system allows it; extended attributes, access control lists and time
stamps are not.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import TypeVar

from kedge._failpoints import reach
from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Outcome, Present
from kedge.snapshot.files import steps
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.steps import CannotWrite, Spot
from kedge.snapshot.values import Result

# The same two values on Linux (`renameat2`) ...
_NOT_OVER, _SWAP = 1, 2
# ... and on macOS (`renameatx_np`).
_MACOS = {_NOT_OVER: 4, _SWAP: 2}

_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
# The errors of file systems without hard links, or without those to folders or symlinks.
_NO_LINK = {*_UNSUPPORTED, errno.EPERM, errno.EMLINK}

_Rename = Callable[[int, bytes, int, bytes, int], int]


class SwapUnsupported(Exception):
    """This file system or operating system cannot swap two names."""


def swap(dir_fd: int, one: bytes, two: bytes) -> None:
    """Swap two names of a folder atomically; both must exist."""
    if not _rename_with(dir_fd, one, two, _SWAP):
        raise SwapUnsupported


def place(dir_fd: int, name: bytes, free: bytes) -> None:
    """Rename, but raise `FileExistsError` if the new name is taken.

    Where neither the system call nor hard links exist, it checks first and then renames: what
    another program creates in between is replaced.
    """
    if _rename_with(dir_fd, name, free, _NOT_OVER):
        return
    try:
        os.link(name, free, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    else:
        os.unlink(name, dir_fd=dir_fd)
        return
    if exists(dir_fd, free):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), free)
    os.rename(name, free, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def exists(dir_fd: int, name: bytes) -> bool:
    """Whether a name exists, including a dangling symlink."""
    try:
        os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    return True


def _rename_with(dir_fd: int, name: bytes, new: bytes, flag: int) -> bool:
    """Rename with a flag; False if the flag is not supported here."""
    rename = _system_call()
    if rename is None:
        return False
    if rename(dir_fd, name, dir_fd, new, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), name)


@cache
def _system_call() -> _Rename | None:
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameatx_np" if sys.platform == "darwin" else "renameat2", None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if sys.platform == "darwin":
        return lambda a, b, c, d, flag: int(call(a, b, c, d, _MACOS[flag]))
    return lambda a, b, c, d, flag: int(call(a, b, c, d, flag))


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHANGED = "it was changed at the last moment"
_DELETED = "it was deleted at the last moment"


def write_temporary(spot: Spot, want: Present, data: bytes) -> int | None:
    """Write the wanted content beside its place; returns a descriptor to sync and close, if any.

    The present file's owner and group are taken over where that is allowed.
    """
    if want.is_link:
        os.symlink(data, spot.temporary, dir_fd=spot.dir_fd)
        return None
    fd = os.open(spot.temporary, _CREATE, 0o600, dir_fd=spot.dir_fd)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        _take_over(spot, fd, stat.S_IMODE(want.mode))
    except BaseException:
        os.close(fd)
        spot.discard(spot.temporary)
        raise
    return fd


def create(spot: Spot) -> Result:
    """Move the temporary file to a name that does not exist."""
    reach("before-create")
    try:
        place(spot.dir_fd, spot.temporary, spot.name)
    except FileExistsError:
        spot.discard(spot.temporary)
        return spot.result(Outcome.CONFLICT, "it was created at the last moment")
    reach("after-create")
    return spot.result(Outcome.RECREATED)


def replace(spot: Spot) -> Result:
    """Replace what the step expects with the temporary file."""
    # From here on the name shows that this may be the only copy of a user's bytes.
    spot.move(spot.temporary, spot.aside)
    reach("before-exchange")
    try:
        swap(spot.dir_fd, spot.aside, spot.name)
    except SwapUnsupported:
        spot.move(spot.aside, spot.temporary)
        return _replace_in_two_moves(spot)
    except FileNotFoundError:
        spot.discard(spot.aside)
        return spot.result(Outcome.CONFLICT, _DELETED)
    except OSError:
        spot.discard(spot.aside)
        raise
    reach("after-exchange")
    if not spot.holds(spot.aside, spot.step.expect):
        return _swap_back(spot)
    reach("after-compare")
    spot.leave(spot.aside)
    reach("after-replace")
    return spot.result(Outcome.RESTORED)


def delete(spot: Spot) -> Result:
    """Remove the name if it has what the step expects."""
    refused = _take_aside(spot)
    if refused is not None:
        return refused
    spot.leave(spot.aside)
    reach("after-delete")
    return spot.result(Outcome.DELETED)


def settle(spot: Spot) -> Result | None:
    """Undo or finish what a crash interrupted; returns a result if the bytes were another
    program's."""
    spot.discard(spot.temporary)
    aside = _identity(spot, spot.aside)
    if aside is None:
        return None
    here, expected = _identity(spot, spot.name), spot.holds(spot.aside, spot.step.expect)
    if here == aside or spot.holds(spot.aside, spot.step.want):
        spot.discard(spot.aside)
        return None
    if here is None:
        result = _give_back(spot)
        return None if expected and result.outcome is not Outcome.SKIPPED else result
    if not expected:
        return _return_to_owner(spot)
    if spot.has_what_is_expected():
        spot.discard(spot.aside)
        return None
    return _undo_swap(spot)


def _take_over(spot: Spot, fd: int, bits: int) -> None:
    """Set owner, group and permission bits, in this order: changing the owner clears some bits."""
    with suppress(FileNotFoundError):
        old, new = os.lstat(spot.name, dir_fd=spot.dir_fd), os.fstat(fd)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            try:
                os.fchown(fd, old.st_uid, old.st_gid)
            except PermissionError as error:
                # The same bits would run the program as another user.
                if bits & (stat.S_ISUID | stat.S_ISGID):
                    raise CannotWrite("its owner and group cannot be kept") from error
    os.fchmod(fd, bits)
    if stat.S_IMODE(os.fstat(fd).st_mode) != bits:
        raise CannotWrite(f"the permission bits {bits:o} cannot be set here")


def _replace_in_two_moves(spot: Spot) -> Result:
    refused = _take_aside(spot)
    if refused is not None:
        spot.discard(spot.temporary)
        return refused
    try:
        place(spot.dir_fd, spot.temporary, spot.name)
    except FileExistsError:
        spot.discard(spot.temporary)
        spot.discard(spot.aside)
        return spot.result(Outcome.CONFLICT, _CHANGED)
    except OSError:
        returned = _give_back(spot)
        if returned.outcome is Outcome.SKIPPED:
            return returned
        raise
    spot.leave(spot.aside)
    return spot.result(Outcome.RESTORED)


def _take_aside(spot: Spot) -> Result | None:
    """Move the present content aside; returns a result if it was not what the step expects."""
    reach("before-set-aside")
    try:
        spot.move(spot.name, spot.aside)
    except FileNotFoundError:
        return spot.result(Outcome.CONFLICT, _DELETED)
    reach("after-set-aside")
    return None if spot.holds(spot.aside, spot.step.expect) else _give_back(spot)


def _give_back(spot: Spot) -> Result:
    """Put back what is aside, unless something newer is in place; skipped if all attempts fail."""
    try:
        _return(spot)
    except FileExistsError:
        return _dispose(spot)
    except OSError:
        shown = spot.aside.decode("utf-8", "backslashreplace")
        return spot.result(Outcome.SKIPPED, f"it could not be put back, and is kept as {shown}")
    return spot.result(Outcome.CONFLICT, _CHANGED)


def _return(spot: Spot) -> None:
    try:
        place(spot.dir_fd, spot.aside, spot.name)
    except FileExistsError:
        raise
    except OSError:
        # A folder has room for a name that just left it: a rename needs no more than that.
        if exists(spot.dir_fd, spot.name):
            raise FileExistsError from None
        spot.move(spot.aside, spot.name)


def _swap_back(spot: Spot) -> Result:
    """Undo a swap that moved aside something that the step did not expect."""
    try:
        swap(spot.dir_fd, spot.aside, spot.name)
        if not spot.holds(spot.aside, spot.step.want):
            # The other program saved again, over kedge's file: the newer version belongs in place.
            swap(spot.dir_fd, spot.aside, spot.name)
    except FileNotFoundError:
        return _give_back(spot)
    return _dispose(spot)


def _dispose(spot: Spot) -> Result:
    """Unlink what is aside if the store has it; otherwise keep it where its owner sees it."""
    step = spot.step
    replaced = spot.has_what_is_expected() and spot.holds(spot.aside, step.expect)
    if replaced or spot.holds(spot.aside, step.want):
        spot.discard(spot.aside)
        return spot.result(Outcome.CONFLICT, _CHANGED)
    kept = steps.kept_name(spot.name, spot.tag, step.number)
    try:
        place(spot.dir_fd, spot.aside, kept)
    except OSError:
        # It is safe where it is, just harder to find.
        kept = spot.aside
    shown = kept.decode("utf-8", "backslashreplace")
    return spot.result(
        Outcome.CONFLICT, f"it was changed twice at the last moment; one version is kept as {shown}"
    )


def _return_to_owner(spot: Spot) -> Result:
    if spot.holds(spot.name, spot.step.want):
        with suppress(SwapUnsupported):
            return _swap_back(spot)
    return _dispose(spot)


def _undo_swap(spot: Spot) -> Result | None:
    """Put back what the step replaced and is stored nowhere else; returns a result if that was not
    all."""
    if not spot.holds(spot.name, spot.step.want):
        return _dispose(spot)
    try:
        swap(spot.dir_fd, spot.aside, spot.name)
    except (SwapUnsupported, FileNotFoundError):
        return _dispose(spot)
    if spot.holds(spot.aside, spot.step.want):
        spot.discard(spot.aside)
        return None
    # Another program saved over kedge's file: the newer version belongs in place.
    swap(spot.dir_fd, spot.aside, spot.name)
    return _dispose(spot)


def _identity(spot: Spot, name: bytes) -> tuple[int, int] | None:
    """The identity of the file at a name, if there is one."""
    try:
        status = os.lstat(name, dir_fd=spot.dir_fd)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


_AT_ONCE = 8
"""When syncing together, the file system commits its journal, and the disk flushes its cache, less
often."""

T = TypeVar("T")
R = TypeVar("R")


def in_shares(
    work: Callable[[Sequence[T]], list[R]], things: Sequence[T], *, least: int = 1
) -> list[R]:
    """The results of `work` for each thing, in order; each thread gets a share of at least `least`.

    If a share raises, all others have ended or will never begin when this raises.
    """
    threads = min(_AT_ONCE, len(things) // least)
    if threads < 2:
        return work(things)
    with ThreadPoolExecutor(threads) as pool:
        # Submitting things one by one would take longer than most of the work.
        shares = list(pool.map(work, [things[first::threads] for first in range(threads)]))
    return [shares[number % threads][number // threads] for number in range(len(things))]


def sync_files(fds: Iterable[int | None]) -> dict[int, OSError]:
    """Sync open files; returns the errors of those that failed."""
    files = [fd for fd in fds if fd is not None]
    _begin(files)
    failures = in_shares(_sync_each, files)
    return {fd: error for fd, error in zip(files, failures, strict=True) if error}


def _begin(fds: Iterable[int]) -> None:
    """Have the file system allocate space for all of them first, and start writing.

    Then a single commit of its journal contains them all. Otherwise each sync allocates for its own
    file, and waits for its own commit.
    """
    if sys.platform == "linux":
        for fd in fds:
            # A file that does not support advice can still be synced.
            with suppress(OSError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_each(fds: Sequence[int]) -> list[OSError | None]:
    return [_sync(fd) for fd in fds]


def _sync(fd: int) -> OSError | None:
    try:
        os.fsync(fd)
    except OSError as error:
        return error
    return None


def sync_folders(root: Root, paths: Iterable[bytes]) -> None:
    """Make renames in these folders survive a power cut."""
    in_shares(partial(_sync_each_folder, root), sorted(paths))


def _sync_each_folder(root: Root, paths: Sequence[bytes]) -> list[None]:
    for path in paths:
        _sync_folder(root, path)
    return [None] * len(paths)


def _sync_folder(root: Root, path: bytes) -> None:
    try:
        with root.folder(path) as dir_fd:
            os.fsync(dir_fd)
    except (FolderAbsent, FolderBlocked):
        # Removed since, by a later step or by another program; nothing in it needs syncing.
        return
    except PermissionError:
        # Somebody closed it to us since, which must not end a revert of other folders.
        os.sync()
    except OSError as error:
        # Some network file systems cannot sync folders, and need not.
        if error.errno != errno.EINVAL:
            raise SnapshotError(f"{path!r} cannot be synced: {error.strerror}") from error
