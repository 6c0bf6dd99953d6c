"""Operations on what git ignores and tracks, and on repositories inside the worktree."""

import os
import shutil

from tests.snapshot_fuzz.git import ask_git
from tests.snapshot_fuzz.operations.contents import overwrite_with
from tests.snapshot_fuzz.world import World

_RULES = (
    b"*.o", b"build/", b"/dist", b"!keep.o", b"**/log", b"a/", b"/a/b", b"b/**", b"!b/keep.o",
    b"x.*", b"!x.txt", b"c/*", b"!c/d/", b"\\#hash", b"trail\\ ", b"[ab].txt", b"deep/deep",
    b"nnn*", b"caf*", b"# nothing", b"", b"*", b"!*/", b"!.gitignore", b"\xff*",
)  # fmt: skip
_QUIET = (b"-c", b"gc.auto=0", b"-c", b"core.hooksPath=/dev/null")


def ignore_here(world: World) -> str:
    path = os.path.join(world.folder(), b".gitignore")
    overwrite_with(world.path(path), rules := _some_rules(world))
    return f"ignore {path!r} {rules!r}"


def ignore_more(world: World) -> str:
    path = os.path.join(world.folder(), b".gitignore")
    with open(world.path(path), "ab") as file:
        file.write(rules := _some_rules(world))
    return f"ignore more {path!r} {rules!r}"


def ignore_nothing(world: World) -> str:
    found = [each.path for each in world.entries() if each.path.endswith(b".gitignore")]
    path = world.random.choice(found or [b".gitignore"])
    os.unlink(world.path(path))
    return f"ignore nothing {path!r}"


def ignore_privately(world: World) -> str:
    """In `info/exclude`, which is no file of the worktree."""
    repository = _repository(world)
    info = world.path(repository) + b"/.git/info"
    os.makedirs(info, exist_ok=True)
    overwrite_with(info + b"/exclude", rules := _some_rules(world))
    return f"exclude {repository!r} {rules!r}"


def add_forced(world: World) -> str:
    return _git(world, b"add", b"-f", b"--", world.file())


def untrack(world: World) -> str:
    return _git(world, b"rm", b"-r", b"-q", b"--cached", b"--", world.any_path())


def add_all(world: World) -> str:
    return _git(world, b"add", b"-A")


def commit(world: World) -> str:
    return _git(world, b"commit", b"-q", b"--allow-empty", b"-m", b"fuzz")


def reset(world: World) -> str:
    """git itself writes to the worktree."""
    return _git(world, b"reset", b"-q", b"--hard")


def make_repository(world: World) -> str:
    path = world.folder()
    ask_git([b"init", b"-q", b"--template="], folder=world.path(path))
    return f"init {path!r}"


def make_repository_elsewhere(world: World) -> str:
    """Its `.git` is a file that names a folder, as a submodule's or a linked worktree's is."""
    path, outer = world.subfolder(), world.outer_name()
    ask_git([b"init", b"-q", b"--template=", b"--separate-git-dir", outer], folder=world.path(path))
    return f"init {path!r} {outer!r}"


def make_broken_repository(world: World) -> str:
    """Something called `.git` that is none; to git it is not even there."""
    path = os.path.join(world.subfolder(), b".git")
    if world.random.random() < 0.5:
        os.mkdir(world.path(path))
    elif not os.path.lexists(world.path(path)):
        overwrite_with(world.path(path), b"gitdir: nowhere\n")
    return f"broken {path!r}"


def unmake_repository(world: World) -> str:
    path = _repository(world)
    if not path:
        return "unmake: only the root"
    git = world.path(path) + b"/.git"
    if os.path.isdir(git):
        shutil.rmtree(git)
    else:
        os.unlink(git)
    return f"unmake {path!r}"


def _repository(world: World) -> bytes:
    """A folder with something called `.git`."""
    folders = [b"", *(each.path for each in world.entries() if each.is_folder)]
    found = [path for path in folders if os.path.lexists(world.path(path) + b"/.git")]
    if not found:
        raise LookupError("no repository")
    return world.random.choice(found)


def _git(world: World, *arguments: bytes) -> str:
    folder = _repository(world) if world.random.random() < 0.3 else b""
    if not os.path.lexists(world.path(folder) + b"/.git"):
        raise LookupError("no repository")
    ask_git([*_QUIET, *arguments], folder=world.path(folder))
    return f"git in {folder!r}: {b' '.join(arguments)!r}"


def _some_rules(world: World) -> bytes:
    lines = world.random.sample(_RULES, world.random.randrange(4))
    return b"".join(line + b"\n" for line in lines)


OPERATIONS = {
    ignore_here: 4,
    ignore_more: 1,
    ignore_nothing: 3,
    ignore_privately: 2,
    add_forced: 2,
    untrack: 1,
    add_all: 1,
    commit: 1,
    reset: 0.3,
    make_repository: 1,
    make_repository_elsewhere: 0.5,
    make_broken_repository: 0.3,
    unmake_repository: 1.5,
}
