"""Operations on whole folders, and floods that overflow the queue of inotify."""

import os
import shutil

from tests.snapshot_fuzz.operations.contents import overwrite_with
from tests.snapshot_fuzz.world import World

FLOOD_FILES = 6_000
_FLOOD_TOUCHES = 9_000
_DEEP = 40


def make_folder(world: World) -> str:
    path = world.place()
    os.mkdir(world.path(path))
    return f"mkdir {path!r}"


def make_tree(world: World) -> str:
    """Files in new folders in new folders, as fast as they come."""
    top = world.place()
    os.mkdir(world.path(top))
    for _ in range(world.random.randrange(1, 12)):
        folder = os.path.join(top, *(world.name() for _ in range(world.random.randrange(4))))
        _try_write(world, folder)
    return f"make tree {top!r}"


def make_deep(world: World) -> str:
    path = os.path.join(world.folder(), *([b"deep"] * world.random.randrange(1, _DEEP)))
    os.makedirs(world.path(path), exist_ok=True)
    overwrite_with(world.path(path) + b"/end", world.content())
    return f"make deep {path!r}"


def remove_tree(world: World) -> str:
    path = world.subfolder()
    # It may be a pipe by now, which `rmtree` would wait for.
    os.listdir(world.path(path))
    shutil.rmtree(world.path(path))
    return f"remove tree {path!r}"


def copy_tree(world: World) -> str:
    old, new = world.subfolder(), world.place()
    if (new + b"/").startswith(old + b"/"):
        return f"copy tree {old!r} {new!r}: into itself"
    _copy(world.path(old), world.path(new))
    return f"copy tree {old!r} {new!r}"


def move_out(world: World) -> str:
    path, outer = world.subfolder(), world.outer_name()
    os.rename(world.path(path), outer)
    return f"move out {path!r} {outer!r}"


def move_in(world: World) -> str:
    outer, path = world.outer(), world.place()
    os.rename(outer, world.path(path))
    return f"move in {outer!r} {path!r}"


def move_out_and_in(world: World) -> str:
    """A folder leaves, is changed while nobody looks, and comes back under another name."""
    old, new = world.subfolder(), world.place()
    outer = world.outer_name()
    os.rename(world.path(old), outer)
    if os.path.isdir(outer):
        overwrite_with(outer + b"/changed", world.content())
    os.rename(outer, world.path(new))
    return f"move out and in {old!r} {new!r}"


def prune(world: World) -> str:
    """Keep the worktree small: remove its largest folder but for a flood's."""
    sizes: dict[bytes, int] = {}
    for each in world.entries():
        top = each.path.split(b"/", 1)[0]
        sizes[top] = sizes.get(top, 0) + 1
    if sum(sizes.values()) < 500:
        return "prune: small enough"
    top = max(sizes, key=lambda path: (sizes[path], path))
    shutil.rmtree(world.path(top))
    return f"prune {top!r}"


def flood_with_files(world: World) -> str:
    """More events than the queue holds, of files that are there afterwards."""
    path = world.folder()
    for count in range(FLOOD_FILES):
        if count % 200 == 0:
            folder = os.path.join(path, b"flood%d" % (count // 200))
            os.makedirs(world.path(folder), exist_ok=True)
        overwrite_with(world.path(folder) + b"/%d" % count, b"%d" % count)
    return f"flood with files {path!r}"


def flood_with_touches(world: World) -> str:
    """More events than the queue holds, of few files, and changes that are lost among them."""
    one, two = world.path(b"flood1.txt"), world.path(b"flood2.txt")
    for _ in range(_FLOOD_TOUCHES):
        overwrite_with(one, b"")
        overwrite_with(two, b"")
    overwrite_with(one, world.content())
    _try_write(world, world.folder())
    return "flood with touches"


def clear_flood(world: World) -> str:
    """Remove what a flood left."""
    found = [each.path for each in world.entries() if each.is_folder]
    floods = [path for path in found if path.rsplit(b"/", 1)[-1].startswith(b"flood")]
    for path in floods:
        shutil.rmtree(world.path(path), ignore_errors=True)
    return f"clear {len(floods)} folders"


def _try_write(world: World, folder: bytes) -> None:
    try:
        os.makedirs(world.path(folder), exist_ok=True)
        overwrite_with(os.path.join(world.path(folder), world.name()), world.content())
    except OSError:
        return


def _copy(old: bytes, new: bytes) -> None:
    """Copy a folder; pipes and sockets are left out, as nothing can be read from them."""
    if os.path.realpath(new).startswith(os.path.realpath(old) + b"/"):
        # It would have no end.
        return

    def unreadable(folder: str, names: list[str]) -> list[str]:
        kinds = (os.path.islink, os.path.isfile, os.path.isdir)
        paths = {name: os.path.join(folder, name) for name in names}
        return [name for name, path in paths.items() if not any(kind(path) for kind in kinds)]

    shutil.copytree(os.fsdecode(old), os.fsdecode(new), symlinks=True, ignore=unreadable)


OPERATIONS = {
    make_folder: 6,
    make_tree: 6,
    make_deep: 1,
    remove_tree: 6,
    copy_tree: 4,
    move_out: 4,
    move_in: 6,
    move_out_and_in: 3,
    prune: 8,
}
