"""The locks of the files that a revert writes: as many of them as can be had."""

import os
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from kedge.domain.errors import FileBusy
from kedge.snapshot.files.locking import FileLocks

PATIENCE = 2.0
"""Seconds that a revert waits for calls that are writing the same files."""


async def lock_files(
    stack: AsyncExitStack, locks: FileLocks, root: str, paths: Iterable[bytes]
) -> set[bytes]:
    """Keep others from writing these files until the stack ends; gives those that somebody else
    keeps writing."""
    top = os.fsencode(root).rstrip(b"/") + b"/"
    wanted = sorted(paths)
    if await _lock(stack, locks, [top + path for path in wanted], PATIENCE):
        return set()
    return {path.removeprefix(top) for path in await _busy(stack, locks, top, wanted)}


async def _busy(
    stack: AsyncExitStack, locks: FileLocks, top: bytes, paths: Sequence[bytes]
) -> list[bytes]:
    """Halve what cannot be had as a whole, until it is known which ones are busy.

    Nobody is waited for any more, so that nobody waits in a circle.
    """
    busy: list[bytes] = []
    pieces = [[top + path for path in paths]]
    while pieces:
        piece = pieces.pop()
        if await _lock(stack, locks, piece, 0):
            continue
        if len(piece) == 1:
            busy += piece
        else:
            middle = len(piece) // 2
            pieces += [piece[:middle], piece[middle:]]
    return busy


async def _lock(
    stack: AsyncExitStack, locks: FileLocks, paths: Sequence[bytes], patience: float
) -> bool:
    try:
        await stack.enter_async_context(locks.locked(paths, patience))
    except FileBusy:
        return False
    return True
