"""What the mutator's operations share: the folders it may change and seeded choices in them."""

import os
from dataclasses import dataclass, field
from random import Random

from tests.snapshot_fuzz.disk import Entry, walk

NAMES = (
    *(b"a b c d x.o y.o keep.o x.txt y.txt z.md build dist log A B X.TXT".split()),
    b".hidden",
    b".gitmodules",
    b".kedge-plan-1~",
    b"\xff\xfe",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"new\nline",
    b"tab\there",
    b"trail ",
    b" lead",
    b"-dash",
    b":colon",
    b"*star*",
    b"[b]",
    b"#hash",
    b"!bang",
    b"back\\slash",
    b'quo"te',
    b"n" * 255,
)
"""Few enough that they meet again and again; the usual ones first."""

_USUAL = 15
_REFRESH_EVERY = 4


@dataclass(slots=True)
class World:
    """The worktree under test, a folder outside of it, and the dice."""

    root: bytes
    outside: bytes
    limit: int
    random: Random = field(default_factory=Random)
    links: dict[int, int] = field(default_factory=dict)
    """The most names that a file had in this round, by its inode."""
    _entries: list[Entry] = field(default_factory=list)
    _age: int = _REFRESH_EVERY

    def path(self, relative: bytes) -> bytes:
        """A path of the worktree in full."""
        return os.path.join(self.root, relative) if relative else self.root

    def begin(self, seed: str) -> None:
        """Throw the dice anew, so that every round can be repeated without those before it."""
        self.random.seed(seed)
        self.links = {}
        self._age = _REFRESH_EVERY

    def entries(self) -> list[Entry]:
        """What the worktree holds, git's own folders left out; a few operations old at most."""
        self._age += 1
        if self._age > _REFRESH_EVERY:
            self._entries = [each for each in walk(self.root) if not _is_git(each.path)]
            for each in self._entries:
                if each.links > 1 and not each.is_folder:
                    self.note_links(self.path(each.path))
            self._age = 0
        return self._entries

    def file(self) -> bytes:
        """A file, link or other thing that is no folder; raises LookupError if there is none."""
        return self._one([each.path for each in self.entries() if not each.is_folder])

    def folder(self) -> bytes:
        """A folder, maybe the root."""
        return self._one([b"", *(each.path for each in self.entries() if each.is_folder)])

    def subfolder(self) -> bytes:
        """A folder other than the root."""
        return self._one([each.path for each in self.entries() if each.is_folder])

    def any_path(self) -> bytes:
        """Anything that exists."""
        return self._one([each.path for each in self.entries()])

    def note_links(self, full: bytes) -> None:
        """A file got one more name."""
        status = os.lstat(full)
        self.links[status.st_ino] = max(status.st_nlink, self.links.get(status.st_ino, 1))

    def outer(self) -> bytes:
        """Something in the folder outside, in full."""
        return self._one(
            [os.path.join(self.outside, name) for name in sorted(os.listdir(self.outside))]
        )

    def outer_name(self) -> bytes:
        """A place in the folder outside where nothing is yet, in full."""
        taken = set(os.listdir(self.outside))
        count = next(n for n in range(len(taken) + 1) if b"%d" % n not in taken)
        return os.path.join(self.outside, b"%d" % count)

    def name(self) -> bytes:
        """A name, mostly a usual one."""
        usual = self.random.random() < 0.7
        return self.random.choice(NAMES[:_USUAL] if usual else NAMES)

    def place(self) -> bytes:
        """A path in an existing folder, where something may be already."""
        return os.path.join(self.folder(), self.name())

    def movable(self) -> bytes:
        """Anything that exists and has a name that means nothing to git.

        git itself waits for ever for a pipe that is called `.gitignore`.
        """
        return self._one([each.path for each in self.entries() if b"/.git" not in b"/" + each.path])

    def content(self) -> bytes:
        """What to write: mostly a line or two, sometimes nothing, sometimes around the limit."""
        roll = self.random.random()
        if roll < 0.08:
            return b""
        if roll < 0.12:
            return b"L" * (self.limit + self.random.choice((-1, 0, 1, 1000)))
        if roll < 0.2:
            return self.random.randbytes(self.random.randrange(1, 400))
        lines = self.random.randrange(1, 6)
        ends = self.random.choice((b"\n", b"\n", b"\r\n"))
        return b"".join(b"%d%s" % (self.random.randrange(1000), ends) for _ in range(lines))

    def _one(self, found: list[bytes]) -> bytes:
        if not found:
            raise LookupError("nothing to choose from")
        return self.random.choice(found)


def _is_git(path: bytes) -> bool:
    return path.rsplit(b"/", 1)[-1] == b".git"
