"""Operations on what a file holds and how its times and bits look, in every way bytes get there."""

import mmap
import os
from typing import BinaryIO

from tests.snapshot_fuzz.world import World

# No link is followed, and a pipe does not make the mutator wait for its reader.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODES = (0o644, 0o755, 0o600, 0o700, 0o664, 0o775, 0o444, 0o640, 0o4755, 0o000)


def write(world: World) -> str:
    path = world.place()
    overwrite_with(world.path(path), content := world.content())
    return f"write {path!r} {len(content)}"


def overwrite(world: World) -> str:
    path = world.file()
    overwrite_with(world.path(path), content := world.content())
    return f"overwrite {path!r} {len(content)}"


def append(world: World) -> str:
    path = world.file()
    with _existing(world.path(path), os.O_APPEND) as file:
        file.write(b"more\n")
    return f"append {path!r}"


def truncate(world: World) -> str:
    path = world.file()
    with _existing(world.path(path)) as file:
        size = file.seek(0, os.SEEK_END)
        os.ftruncate(file.fileno(), cut := world.random.randrange(size + 1))
    return f"truncate {path!r} {cut}"


def same_size(world: World) -> str:
    path = world.file()
    change_byte(world, world.path(path))
    return f"same size {path!r}"


def same_size_and_time(world: World) -> str:
    """As `touch -r` would hide it."""
    path = world.file()
    full = world.path(path)
    before = os.lstat(full)
    change_byte(world, full)
    os.utime(full, ns=(before.st_atime_ns, before.st_mtime_ns), follow_symlinks=False)
    return f"same size and time {path!r}"


def through_mapping(world: World) -> str:
    path = world.file()
    with _existing(world.path(path)) as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[world.random.randrange(len(mapped))] = world.random.randrange(256)
        mapped.flush()
    return f"mmap {path!r}"


def beside_and_over(world: World) -> str:
    """As editors save."""
    path = world.file()
    aside = world.path(path) + b".swp" if len(path) < 200 else world.path(b"saved.swp")
    overwrite_with(aside, world.content())
    os.replace(aside, world.path(path))
    return f"save {path!r}"


def change_mode(world: World) -> str:
    path = world.file()
    mode = world.random.choice(_MODES)
    # Of the file itself: `chmod` follows links, out of the worktree too.
    if os.path.islink(world.path(path)):
        return f"chmod {path!r}: a link"
    os.chmod(world.path(path), mode)
    return f"chmod {path!r} {mode:o}"


def back_in_time(world: World) -> str:
    path = world.file()
    seconds = world.random.choice((0, 1, 1_000_000_000, 4_000_000_000))
    os.utime(world.path(path), (seconds, seconds), follow_symlinks=False)
    return f"utime {path!r} {seconds}"


def rapid(world: World) -> str:
    path = world.place()
    full = world.path(path)
    count = world.random.randrange(2, 30)
    for turn in range(count):
        overwrite_with(full, b"%d" % turn)
        os.unlink(full)
    if stays := world.random.random() < 0.5:
        overwrite_with(full, b"stays")
    return f"rapid {path!r} {count} {stays}"


def attributes(world: World) -> str:
    """Rules that make git convert; a snapshot must not."""
    path = os.path.join(world.folder(), b".gitattributes")
    rule = world.random.choice((b"* text=auto eol=crlf\n", b"*.txt ident\n", b"* filter=x\n", b""))
    overwrite_with(world.path(path), rule)
    return f"attributes {path!r} {rule!r}"


OPERATIONS = {
    write: 24,
    overwrite: 10,
    append: 5,
    truncate: 4,
    same_size: 6,
    same_size_and_time: 6,
    through_mapping: 3,
    beside_and_over: 6,
    change_mode: 5,
    back_in_time: 2,
    rapid: 4,
    attributes: 1,
}


def overwrite_with(full: bytes, content: bytes) -> None:
    """Write a file in place; never through a link, so that only what is named is written."""
    with open(os.open(full, _PLAIN | os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as file:
        file.write(content)


def change_byte(world: World, full: bytes) -> None:
    """Write a file in place so that its size stays the same."""
    with _existing(full) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(world.random.randrange(max(size, 1)))
        if size:
            file.write(b"%c" % world.random.randrange(256))


def _existing(full: bytes, *flags: int) -> BinaryIO:
    return open(os.open(full, sum(flags, _PLAIN | os.O_RDWR)), "rb+", buffering=0)
