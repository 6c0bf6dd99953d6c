"""Operations on names: renames, links, swaps of kind, and things that are no files at all."""

import os
import shutil
import socket
import stat

from tests.snapshot_fuzz.operations.contents import change_byte, overwrite_with
from tests.snapshot_fuzz.world import World


def rename(world: World) -> str:
    old, new = world.any_path(), world.place()
    os.rename(world.path(old), world.path(new))
    return f"rename {old!r} {new!r}"


def rename_over(world: World) -> str:
    old, new = world.movable(), world.movable()
    os.rename(world.path(old), world.path(new))
    return f"rename over {old!r} {new!r}"


def rename_folder_over(world: World) -> str:
    """Also over one that is not empty, which takes two steps."""
    old, new = world.subfolder(), world.subfolder()
    if (new + b"/").startswith(old + b"/") or (old + b"/").startswith(new + b"/"):
        return f"rename folder {old!r} {new!r}: one is in the other"
    shutil.rmtree(world.path(new))
    os.rename(world.path(old), world.path(new))
    return f"rename folder {old!r} {new!r}"


def exchange(world: World) -> str:
    """Two paths change places."""
    one, two = world.movable(), world.movable()
    aside = world.outer_name()
    os.rename(world.path(one), aside)
    try:
        os.rename(world.path(two), world.path(one))
        os.rename(aside, world.path(two))
    except OSError:
        if not os.path.lexists(world.path(one)):
            os.rename(aside, world.path(one))
        raise
    return f"exchange {one!r} {two!r}"


def rename_case(world: World) -> str:
    old = world.any_path()
    folder, name = os.path.split(old)
    new = os.path.join(folder, name.swapcase())
    os.rename(world.path(old), world.path(new))
    return f"rename case {old!r} {new!r}"


def hard_link(world: World) -> str:
    old, new = world.file(), world.place()
    os.link(world.path(old), world.path(new), follow_symlinks=False)
    world.note_links(world.path(new))
    return f"link {old!r} {new!r}"


def link_in(world: World) -> str:
    """A file from outside gets a name in the worktree."""
    old, new = world.outer(), world.place()
    os.link(old, world.path(new), follow_symlinks=False)
    world.note_links(world.path(new))
    return f"link in {old!r} {new!r}"


def link_out(world: World) -> str:
    """A file of the worktree gets a name outside, which nobody who watches folders can see."""
    old, new = world.file(), world.outer_name()
    os.link(world.path(old), new, follow_symlinks=False)
    world.note_links(new)
    return f"link out {old!r} {new!r}"


def write_outside(world: World) -> str:
    """Write to a file by its name outside; it may have one in the worktree too."""
    path = world.outer()
    change_byte(world, path)
    return f"write outside {path!r}"


def create_outside(world: World) -> str:
    path = world.outer_name()
    overwrite_with(path, world.content())
    return f"create outside {path!r}"


def symlink(world: World) -> str:
    """To something that exists, to nothing, or out of the worktree."""
    path = world.place()
    targets = (b"a", b"../a", b".", b"nowhere", b"/etc/passwd", b"../outside", world.any_path())
    target = world.random.choice(targets)
    os.symlink(target, world.path(path))
    return f"symlink {path!r} {target!r}"


def swap_kind(world: World) -> str:
    """A file becomes a folder, a folder a link, a link a file."""
    path = world.any_path()
    full = world.path(path)
    mode = os.lstat(full).st_mode
    _remove(full)
    if stat.S_ISREG(mode):
        os.mkdir(full)
        overwrite_with(full + b"/inside", world.content())
    elif stat.S_ISDIR(mode):
        os.symlink(world.random.choice((b"a", b"b", b".")), full)
    else:
        overwrite_with(full, world.content())
    return f"swap kind {path!r}"


def special(world: World) -> str:
    path = os.path.join(world.folder(), world.random.choice((b"pipe", b"a", b"x.o", b"\xff")))
    if world.random.random() < 0.5:
        os.mkfifo(world.path(path))
        return f"fifo {path!r}"
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's address is short, so it is bound by a short name and moved.
        listener.bind(aside := world.outside + b"/s")
        os.rename(aside, world.path(path))
    return f"socket {path!r}"


def delete(world: World) -> str:
    path = world.file()
    os.unlink(world.path(path))
    return f"delete {path!r}"


def _remove(full: bytes) -> None:
    if stat.S_ISDIR(os.lstat(full).st_mode):
        shutil.rmtree(full)
    else:
        os.unlink(full)


OPERATIONS = {
    rename: 10,
    rename_over: 6,
    rename_folder_over: 4,
    exchange: 3,
    rename_case: 3,
    hard_link: 4,
    link_in: 1,
    link_out: 1,
    write_outside: 1,
    create_outside: 1,
    symlink: 5,
    swap_kind: 5,
    special: 1,
    delete: 14,
}
