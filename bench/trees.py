"""Worktrees to take snapshots of: small text files in nested folders, committed once.

They are made in the scratch folder of a run, each once, and changed by the benchmarks as they go.
"""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.opencode_git import git
from bench.scratch import Scratch

_PER_FOLDER = 12
_IGNORED_PER_FOLDER = 100
_RULES = "node_modules/\n*.pyc\n"


@dataclass(slots=True)
class Tree:
    """A worktree, and where the next change to it goes."""

    root: Path
    files: list[str]
    """The committed ones, relative to the root."""
    turns: Iterator[int] = field(default_factory=count)

    @property
    def size(self) -> str:
        """How figures name the tree."""
        return f"{len(self.files):,} files"

    def change(self, number: int) -> None:
        """Give some files new content: others each time, and never all in one folder."""
        for title, file in self._some(number):
            file.write_text(title + "an edited line\n" * 20)

    def edit(self, number: int) -> None:
        """Give some files another first line, and leave the rest of them."""
        for title, file in self._some(number):
            lines = file.read_text().splitlines(keepends=True)
            file.write_text(title + "".join(lines[1:]))

    def _some(self, number: int) -> Iterator[tuple[str, Path]]:
        """Files, each with a line that no file had before."""
        turn, apart = next(self.turns), len(self.files) // number
        for at in range(number):
            file = self.root / self.files[(at * apart + turn * 7) % len(self.files)]
            yield f"# turn {turn}, file {at}\n", file

    def add(self) -> None:
        """Make a file that was not there before."""
        turn = next(self.turns)
        folder = (self.root / self.files[turn * 7 % len(self.files)]).parent
        (folder / f"new{turn}.py").write_text(f"# turn {turn}\n")


@dataclass(frozen=True, slots=True)
class Size:
    """How large a tree is to be."""

    name: str
    files: int
    ignored: int


def sizes(scratch: Scratch) -> tuple[Size, Size, Size]:
    """The small, the middle and the large tree."""
    ignored = scratch.size(50_000, 200)
    return (
        Size("S", scratch.size(1_000, 60), 0),
        Size("M", scratch.size(20_000, 120), ignored),
        Size("L", scratch.size(100_000, 240), ignored),
    )


def committed(scratch: Scratch, size: Size) -> Tree:
    """A tree of that size, just as it was committed."""
    root = scratch.filled.get(size.name)
    if root is None:
        scratch.say(f"making a tree of {size.files:,} files and {size.ignored:,} ignored ones")
        root = scratch.filled[size.name] = scratch.path(f"tree-{size.name}")
        _commit(root, size.files)
        _ignore(root, size.ignored)
    else:
        git("reset", "--quiet", "--hard", folder=root)
        git("clean", "--quiet", "-d", "--force", folder=root)
    _write_out(scratch)
    return Tree(root, list(_names(size.files)))


def loosened(scratch: Scratch, size: Size) -> Tree:
    """A committed tree whose objects are in files of their own, as they are before git packs."""
    name = f"{size.name} loose"
    if name not in scratch.filled:
        scratch.say(f"making a tree of {size.files:,} files with loose objects")
        root = scratch.filled[name] = scratch.path(f"loose-{size.name}")
        _commit(root, size.files)
        packs, aside = root / ".git/objects/pack", root / ".git/aside"
        packs.rename(aside)
        for pack in aside.glob("*.pack"):
            git("unpack-objects", "-q", folder=root, given=pack.read_bytes())
        shutil.rmtree(aside)
        git("reset", "--quiet", "--hard", folder=root)
    _write_out(scratch)
    return Tree(scratch.filled[name], list(_names(size.files)))


def uncommitted(scratch: Scratch, size: Size) -> Path:
    """The files of a committed tree in a folder that git knows nothing of."""
    root = scratch.path(f"folder-{size.name}")
    for name, text in _contents(size.files):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    _write_out(scratch)
    return root


def _write_out(scratch: Scratch) -> None:
    """What the disk still has to write would be paid for by whoever is timed next."""
    if not scratch.quick:
        os.sync()


def _commit(root: Path, files: int) -> None:
    """Through one pack, as a clone has it: adding 100,000 loose objects takes a minute."""
    root.mkdir()
    git("init", "--quiet", "--initial-branch=main", folder=root)
    git("fast-import", "--quiet", folder=root, given=b"".join(_stream(files)))
    git("reset", "--quiet", "--hard", folder=root)


def _stream(files: int) -> Iterator[bytes]:
    yield b"commit refs/heads/main\ncommitter bench <bench@example.org> 0 +0000\ndata 0\n"
    for name, text in (*_contents(files), (".gitignore", _RULES.encode())):
        yield b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text)


def _contents(files: int) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(1)
    for number, name in enumerate(_names(files)):
        lines = (f"line {chance.random()}\n" for _ in range(chance.randint(5, 40)))
        yield name, f"# {number}\n{''.join(lines)}".encode()


def _names(files: int) -> Iterator[str]:
    for number in range(files):
        folder, place = divmod(number, _PER_FOLDER)
        above = f"pkg{folder % 20:02d}/mod{folder // 20 % 21:02d}/sub{folder // 420:03d}"
        yield f"{above}/file{place:02d}.py"


def _ignore(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"node_modules/p{number // _IGNORED_PER_FOLDER}"
        if number % _IGNORED_PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"f{number}.js").write_text("x")
