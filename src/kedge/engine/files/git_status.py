"""The git status of a checkout: its branch, and how its files differ from a commit.

Answers file by file. A file that cannot be compared (its committed content is missing, it cannot be
read, it is too large, the time is over) is marked, and does not affect the others.
"""

import base64
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from kedge.domain.child_processes import MIB
from kedge.domain.errors import OperatorError
from kedge.engine.files.private_git import LARGEST_TEXT, PrivateGit, private_git
from kedge.engine.worktrees import find_worktree
from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.git_cli import LIMITS, Heard, ask_git, without_configuration
from kedge.snapshot.repository.head import read_head

Status = Literal["added", "deleted", "modified"]
Mode = Literal["git", "branch"]
Uncounted = Literal["missing", "unreadable", "large", "late"]

_PATIENCE = 20.0
"""Seconds for all git calls of one request."""
_MOST_PATCHES = 4 * MIB
_MOST_LISTED = 64 * MIB
_MOST_FILES = 100_000
_MOST_NUMBERS = 32 * MIB
_MOST_ENTRIES = 1_000_000
"""In the folders of a commit that are read one by one. A small repository can have more entries
than fit into memory: the same folder may be in it a thousand times, and so on inside that."""
_BATCH_FILES = 4000
_BATCH_BYTES = 64 * MIB
_NO_ID = b"1"
"""The digits of made-up ids for contents that are only in the folder; git rejects zeros."""
_NOTHING = b"000000"
_FOLDER = b"40000"
_SUBMODULE = b"160000"
_STATUSES: Mapping[bytes, Status] = {b"A": "added", b"D": "deleted"}
_BRANCHES = "refs/heads/"
_ORIGIN = "refs/remotes/origin/"
_SHORTLY = ("--untracked-files=normal", "--ignore-submodules=all")
_COMPARE = (
    *("diff-index", "--no-ext-diff", "--no-textconv", "--no-renames"),
    "--ignore-submodules=dirty",
)


class Branches(msgspec.Struct, frozen=True):
    """The branch of a checkout, and the default branch."""

    branch: str | None = None
    default_branch: str | None = None


class CheckoutChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a file differs from the committed one."""

    file: str
    """Relative to the root of the worktree."""
    additions: int
    deletions: int
    status: Status
    patch: str | None = None
    """None if it was not asked for, or is too large."""
    uncounted: Uncounted | None = None
    """Why the lines could not be compared: the committed content is not in the repository, or one
    side cannot be read, is over 32 MiB, or was not reached in time."""
    path_base64: str | None = None
    """The bytes of a name that is not UTF-8."""


@dataclass(frozen=True, slots=True)
class CheckoutChanges:
    """The changes of a checkout, as far as they could be determined."""

    files: list[CheckoutChange] = field(default_factory=list)
    is_incomplete: bool = False
    """Whether a file is uncounted, or files may be missing."""


def branches(directory: str) -> Branches:
    """The branch of a directory's worktree, and the default branch."""
    repository = find_worktree(directory).repository
    if repository is None:
        return Branches()
    found = _default(repository)
    return Branches(branch_of(read_head(repository).ref), found.name if found else None)


def changes(directory: str) -> CheckoutChanges:
    """The changes since the last commit in a directory and below it, without patches."""
    with private_git(directory, _PATIENCE) as git:
        return CheckoutChanges() if git is None else _Comparison(git, git.head).changes()


def patches(directory: str, mode: Mode, context: int) -> CheckoutChanges:
    """The changes since the last commit, or since the branch began, with patches."""
    with private_git(directory, _PATIENCE) as git:
        if git is None:
            return CheckoutChanges()
        since = git.head if mode == "git" else _beginning(git)
        return CheckoutChanges() if since is None else _Comparison(git, since, context).changes()


def raw_patch(directory: str) -> tuple[bytes, bool]:
    """The changes since the last commit as one patch in git's format; and whether files that could
    not be compared are left out."""
    with private_git(directory, _PATIENCE) as git:
        if git is None:
            return b"", False
        return _Comparison(git, git.head).raw_patch()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutSummary:
    """The state of a checkout in a few lines."""

    branch: str | None
    """None if no branch is checked out."""
    commit: str | None
    """The last commit; None before the first one."""
    changes: list[str]
    """The first changed files, each after two letters as in `git status --short`."""
    more: int
    """The number of the other changed files."""


def summary(directory: str, *, most: int, patience: float) -> CheckoutSummary | None:
    """The state of a directory's worktree, with so many changes; None if there is no repository.

    `patience` is how many seconds git may take.
    """
    with private_git(directory, patience) as git:
        if git is None:
            return None
        listed = _said(git.ask("status", "--porcelain", "-z", "--no-renames", *_SHORTLY))
        head = read_head(git.repository)
        found = [each.decode(errors="replace") for each in listed.split(b"\0") if each]
        return CheckoutSummary(
            branch=branch_of(head.ref),
            commit=head.commit,
            changes=found[:most],
            more=max(0, len(found) - most),
        )


@dataclass(frozen=True, slots=True)
class _Default:
    name: str
    ref: str


def branch_of(ref: str | None) -> str | None:
    """The name of a branch, if that is what HEAD names."""
    return ref.removeprefix(_BRANCHES) if ref and ref.startswith(_BRANCHES) else None


def _default(repository: Repository) -> _Default | None:
    names = [f"{_ORIGIN}HEAD", f"{_BRANCHES}main", f"{_BRANCHES}master"]
    listed = _ask(repository, "for-each-ref", "--format=%(refname) %(symref)", *names)
    refs = dict(line.partition(" ")[::2] for line in (listed or "").splitlines())
    leads_to = refs.get(names[0], "")
    if leads_to.startswith(_ORIGIN):
        return _Default(leads_to.removeprefix(_ORIGIN), leads_to)
    found = next((name for name in names[1:] if name in refs), None)
    return None if found is None else _Default(found.removeprefix(_BRANCHES), found)


def _beginning(git: PrivateGit) -> str | None:
    """The commit at which the branch left the default one; None if it is that, or has no common
    commit."""
    default = _default(git.repository)
    ref = read_head(git.repository).ref
    if default is None or ref == f"{_BRANCHES}{default.name}":
        return None
    commit = _ask(git.repository, "rev-parse", "--verify", "--quiet", f"{default.ref}^{{commit}}")
    if not commit:
        return None
    found = git.ask("merge-base", commit, git.head)
    # Status 1 means that they have no common commit.
    return None if found.status == 1 else _said(found).decode().strip()


def _ask(repository: Repository, *words: str) -> str | None:
    """Run git where only the repository's refs have the answer."""
    environment = without_configuration()
    said = ask_git(repository.git_folder, *words, environment=environment, patience=_PATIENCE)
    return None if said is None else said.decode(errors="replace").strip()


def _said(answer: Heard) -> bytes:
    if answer.status != 0:
        raise _silence()
    return answer.said


def _silence() -> OperatorError:
    return OperatorError(
        f"git could not compare the files at all, or not within {_PATIENCE:.0f} s and"
        f" {LIMITS.memory // MIB} MiB"
    )


@dataclass(slots=True, kw_only=True)
class _Pair:
    """The two sides of a path that differs, and what is known of them."""

    path: bytes
    status: Status
    old_mode: bytes
    old_id: bytes
    new_mode: bytes
    new_id: bytes
    """Zeros for a content that is only in the folder."""
    size: int = 0
    """The size of the larger side."""
    additions: int = 0
    deletions: int = 0
    patch: bytes | None = None
    uncounted: Uncounted | None = None
    is_same: bool = False
    """Whether the sides turned out to be equal: git also lists files whose stat data it does not
    have."""

    @property
    def is_submodule(self) -> bool:
        return _SUBMODULE in (self.old_mode, self.new_mode)

    def objects(self) -> Iterator[bytes]:
        """The ids of the contents that git must have."""
        for mode, name in ((self.old_mode, self.old_id), (self.new_mode, self.new_id)):
            if mode not in (_NOTHING, _SUBMODULE) and name.strip(b"0"):
                yield name

    def old_entry(self) -> bytes:
        """A line of an index with the old side."""
        return b"" if self.old_mode == _NOTHING else _entry(self.old_mode, self.old_id, self.path)

    def new_entry(self) -> bytes:
        """A line of an index that makes git read the file: its stat data match no file."""
        if self.new_mode == _NOTHING:
            return b""
        return _entry(self.new_mode, _NO_ID * len(self.new_id), self.path)

    def change(self) -> CheckoutChange:
        file = self.path.decode(errors="replace")
        is_text = file.encode() == self.path
        return CheckoutChange(
            file=file,
            additions=self.additions,
            deletions=self.deletions,
            status=self.status,
            patch=None if self.patch is None else self.patch.decode(errors="replace"),
            uncounted=self.uncounted,
            path_base64=None if is_text else base64.b64encode(self.path).decode(),
        )


def _entry(mode: bytes, name: bytes, path: bytes) -> bytes:
    return b"%s %s\t%s\0" % (mode, name, path)


class _Comparison:
    """The worktree compared with a commit or tree."""

    def __init__(self, git: PrivateGit, since: str, context: int | None = None) -> None:
        self._git = git
        self._since = since
        self._context = context
        """Lines around each change of a patch; None for no patches."""
        self._room = _MOST_PATCHES
        self._is_incomplete = False
        self._no_id = _NO_ID * len(git.empty_tree)
        self._unknown: tuple[bytes, ...] = ()
        """Folders whose committed content is not in the repository."""
        self._entries = 0
        """How many entries of folders were read."""

    def changes(self) -> CheckoutChanges:
        pairs = self._counted()
        marked = any(pair.uncounted for pair in pairs)
        return CheckoutChanges([pair.change() for pair in pairs], marked or self._is_incomplete)

    def raw_patch(self) -> tuple[bytes, bool]:
        pairs = self._counted()
        whole = [pair for pair in pairs if pair.uncounted is None]
        patch = _said(self._compare(whole, "--binary", most=_MOST_LISTED))
        return patch, self._is_incomplete or len(whole) < len(pairs)

    def _counted(self) -> list[_Pair]:
        is_settled = self._refresh()
        self._add_new_files()
        pairs = list(_pairs(self._listed()))
        if len(pairs) > _MOST_FILES:
            self._is_incomplete = True
            del pairs[_MOST_FILES:]
        if not is_settled:
            # Whether they differ at all is not known.
            _mark_late(pairs)
            return pairs
        self._look(pairs)
        for batch in _batches([pair for pair in pairs if pair.uncounted is None]):
            self._count(batch)
        return [pair for pair in pairs if not pair.is_same]

    def _refresh(self) -> bool:
        """Have git read the files whose stat data do not match the index; return whether it
        finished in time. It needs no object for that."""
        words = ("update-index", "-q", "--unmerged", "--ignore-submodules", "--refresh")
        answer = self._git.ask(*words, share=0.5)
        # Left behind by git if it was killed.
        self._git.drop_index("index.lock")
        return not answer.is_late

    def _add_new_files(self) -> None:
        """Add the untracked files to our index, so that they count as added."""
        below = self._git.below
        listed = self._git.ask(
            *("ls-files", "-z", "--others", "--exclude-standard", "--", below), most=_MOST_LISTED
        )
        names = self._whole(listed)
        if len(names) > _MOST_FILES:
            self._is_incomplete = True
        # A name with a slash at the end is a repository of its own.
        new = (each for each in names[:_MOST_FILES] if not each.endswith(b"/"))
        entries = b"".join(_entry(b"100644", self._no_id, each) for each in new)
        if not self._git.write_index("index", entries):
            raise _silence()

    def _listed(self) -> list[bytes]:
        """The differences, in the format of `git diff-index --raw -z`."""
        words = (*_COMPARE, "--raw", "--no-abbrev", "-z")
        listed = self._git.ask(*words, self._since, "--", self._git.below, most=_MOST_LISTED)
        if listed.status not in (0, None):
            # A folder of the commit may be missing: it is taken from the index.
            known = self._known_tree()
            listed = self._git.ask(*words, known, "--", self._git.below, most=_MOST_LISTED)
        return self._whole(listed)

    def _whole(self, answer: Heard) -> list[bytes]:
        """The fields of an answer; if it was cut off, without the incomplete one."""
        is_cut = answer.status is None and not answer.is_late and len(answer.said) >= _MOST_LISTED
        self._is_incomplete |= is_cut
        said = answer.said if is_cut else _said(answer)
        return said.split(b"\0")[:-1]

    def _known_tree(self) -> str:
        """A tree with the known parts of the commit, and the index's entries for the rest."""
        self._is_incomplete = True
        files: list[bytes] = []
        unknown: list[bytes] = []
        folders = {b"": f"{self._since}^{{tree}}".encode()}
        while folders:
            below: dict[bytes, bytes] = {}
            trees = self._read_trees(list(folders.values()))
            for folder, tree in zip(folders, trees, strict=True):
                if tree is None:
                    unknown.append(folder)
                for mode, name, each in tree or ():
                    if mode == _FOLDER:
                        below[folder + each + b"/"] = name
                    else:
                        files.append(_entry(mode, name, folder + each))
            folders = below
        self._unknown = tuple(unknown)
        files += self._tracked_where_unknown()
        written = self._git.write_tree("known", b"".join(files))
        if written is None:
            raise _silence()
        return written

    def _tracked_where_unknown(self) -> Iterator[bytes]:
        listed = _said(self._git.ask("ls-files", "-z", "--stage", most=_MOST_LISTED))
        for line in listed.split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, name, stage = about.split(b" ")
            # The second stage of a conflict is the side of HEAD.
            if path.startswith(self._unknown) and stage in b"02" and name != self._no_id:
                yield _entry(mode, name, path)

    def _read_trees(self, names: Sequence[bytes]) -> "list[_Tree | None]":
        """The contents of trees; None for each that is missing or broken."""
        found: list[_Tree | None] = []
        while len(found) < len(names):
            asked = b"".join(each + b"\n" for each in names[len(found) :])
            answer = self._git.ask("cat-file", "--batch", said=asked)
            read = [_tree(each, len(self._no_id) // 2) for each in _objects(answer.said)]
            self._entries += sum(len(tree) for tree in read if tree is not None)
            if answer.is_late or self._entries > _MOST_ENTRIES:
                raise _silence()
            found += read
            if len(found) < len(names) and not (read and answer.status is None):
                # git stopped at a tree that is broken or larger than the limit.
                found.append(None)
        return found

    def _look(self, pairs: Sequence[_Pair]) -> None:
        """Mark what need not be tried: contents that are missing or are not files."""
        sizes = self._sizes(pairs)
        if sizes is None:
            _mark_late(pairs)
            return
        root = self._git.repository.root
        for pair in pairs:
            known = [sizes.get(name) for name in pair.objects()]
            if pair.path.startswith(self._unknown) or None in known:
                pair.uncounted = "missing"
            elif not pair.is_submodule and pair.new_mode != _NOTHING:
                size = _readable_size(os.path.join(root, pair.path))
                if size is None:
                    pair.uncounted = "unreadable"
                known.append(size)
            pair.size = max((size for size in known if size is not None), default=0)

    def _sizes(self, pairs: Sequence[_Pair]) -> dict[bytes, int] | None:
        """The sizes of the contents that git has; None if it does not answer in time."""
        names = dict.fromkeys(name for pair in pairs for name in pair.objects())
        if not names:
            return {}
        asked = b"".join(name + b"\n" for name in names)
        words = ("cat-file", "--batch-check=%(objectname) %(objectsize)")
        listed = self._git.ask(*words, said=asked)
        if listed.is_late:
            return None
        lines = (line.split(b" ") for line in _said(listed).splitlines())
        return {name: int(size) for name, size in lines if size != b"missing"}

    def _count(self, pairs: Sequence[_Pair]) -> None:
        """Compare the lines of a few files; if git fails, of fewer."""
        if self._git.is_late:
            _mark_late(pairs)
            return
        has_room = self._context is not None and self._room > 0
        words = (f"--unified={self._context}", "--patch") if has_room else ()
        most = _MOST_NUMBERS + max(0, self._room)
        answer = self._compare(pairs, "--numstat", "-z", *words, most=most)
        numbers, separator, text = answer.said.partition(b"\0\0")
        if answer.status == 0 or (answer.status is None and separator):
            # All numbers are there; only patches are cut off.
            self._note(pairs, numbers, _pieces(text, is_whole=answer.status == 0))
        elif answer.is_late:
            _mark_late(pairs)
        elif len(pairs) == 1:
            pairs[0].uncounted = "unreadable"
        else:
            half = len(pairs) // 2
            self._count(pairs[:half])
            self._count(pairs[half:])

    def _compare(self, pairs: Sequence[_Pair], *words: str, most: int) -> Heard:
        """git's comparison of just these files."""
        tree = self._git.write_tree("old", b"".join(pair.old_entry() for pair in pairs))
        self._git.drop_index("new")
        entries = b"".join(pair.new_entry() for pair in pairs)
        if tree is None or not self._git.write_index("new", entries):
            return Heard(b"", None, is_late=self._git.is_late)
        return self._git.ask(*_COMPARE, *words, tree, index="new", most=most)

    def _note(self, pairs: Sequence[_Pair], numbers: bytes, texts: Sequence[bytes]) -> None:
        counted: dict[bytes, tuple[bytes, bytes]] = {}
        for word in numbers.split(b"\0"):
            if word:
                added, deleted, path = word.split(b"\t", 2)
                counted[path] = (added, deleted)
        told = dict(zip(counted, texts, strict=False))
        for pair in pairs:
            if pair.path not in counted:
                pair.is_same = True
                continue
            added, deleted = counted[pair.path]
            if added == b"-":
                # git counts no lines of binary files, and treats large ones as binary.
                pair.uncounted = "large" if pair.size > LARGEST_TEXT else None
            else:
                pair.additions, pair.deletions = int(added), int(deleted)
            piece = told.get(pair.path)
            if piece is not None and pair.uncounted is None:
                self._room -= len(piece)
                pair.patch = piece if self._room > 0 else None


def _pairs(words: Iterable[bytes]) -> Iterator[_Pair]:
    seen: set[bytes] = set()
    each = iter(words)
    for about, path in zip(each, each, strict=False):
        if path in seen:
            continue
        seen.add(path)
        old_mode, new_mode, old_id, new_id, letter = about[1:].split(b" ")
        yield _Pair(
            path=path,
            status=_STATUSES.get(letter, "modified"),
            old_mode=old_mode,
            old_id=old_id,
            new_mode=new_mode,
            new_id=new_id,
        )


def _mark_late(pairs: Iterable[_Pair]) -> None:
    for pair in pairs:
        pair.uncounted = "late"


def _batches(pairs: Iterable[_Pair]) -> Iterator[list[_Pair]]:
    """The batches that git compares at once: when the time is over, a whole batch is lost."""
    batch: list[_Pair] = []
    size = 0
    for pair in pairs:
        if batch and (len(batch) >= _BATCH_FILES or size + pair.size > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(pair)
        size += pair.size
    if batch:
        yield batch


def _pieces(text: bytes, *, is_whole: bool) -> list[bytes]:
    """The patches of single files. A file that became a link has two in one."""
    pieces: list[bytes] = []
    titles: list[bytes] = []
    for piece in (b"\n" + text).split(b"\ndiff --git ")[1:]:
        title = piece.partition(b"\n")[0]
        whole = b"diff --git " + (piece if piece.endswith(b"\n") else piece + b"\n")
        if titles[-1:] == [title]:
            pieces[-1] += whole
        else:
            pieces.append(whole)
            titles.append(title)
    return pieces if is_whole else pieces[:-1]


def _readable_size(path: bytes) -> int | None:
    """The size of a file; None if it cannot be read, or is not a regular file, on which git could
    block."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return found.st_size
    is_readable = stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK)
    return found.st_size if is_readable else None


_Tree: TypeAlias = list[tuple[bytes, bytes, bytes]]
"""The modes, ids and names in a folder."""


def _objects(said: bytes) -> Iterator[bytes]:
    """The output of `git cat-file --batch` for trees, as far as it goes; None for what is not a
    tree."""
    at = 0
    while (end := said.find(b"\n", at)) >= 0:
        words = said[at:end].split(b" ")
        at = end + 1
        if words[-1] == b"missing":
            yield b"missing"
            continue
        size = int(words[-1])
        if at + size >= len(said):
            return
        yield said[at : at + size] if words[1] == b"tree" else b"no tree"
        at += size + 1


def _tree(content: bytes, length: int) -> _Tree | None:
    """The entries of a tree with ids of so many bytes; None if it is not one."""
    found: _Tree = []
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, space, each = content[at:end].partition(b" ")
        at = end + 1 + length
        if end < 0 or not space or at > len(content):
            return None
        found.append((mode, content[end + 1 : at].hex().encode(), each))
    return found
