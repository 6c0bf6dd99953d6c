"""What git says of a checkout: its branch, and what is in the folder but not in a commit.

git is asked through a folder of kedge's own, which borrows the repository's index and objects and
nothing else. What the repository configures (hooks, filters, a file system monitor, programs that
make diffs) therefore never runs, and nothing is written there.
"""

import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import msgspec

from kedge.domain.child_limits import MIB
from kedge.domain.errors import OperatorError
from kedge.engine.worktrees import find_worktree
from kedge.snapshot.repository.asking import LIMITS, ask_git, without_configuration
from kedge.snapshot.repository.config import read_config
from kedge.snapshot.repository.finding import Repository
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.repository.reading import LARGEST_RULES, read_small

Status = Literal["added", "deleted", "modified"]
Mode = Literal["git", "branch"]

_PATIENCE = 20.0
_LARGEST_INDEX = 512 * 1024 * 1024
_MOST_PATCHES = 4 * 1024 * 1024
_EMPTY_TREES = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_STATUSES: Mapping[bytes, Status] = {b"A": "added", b"D": "deleted"}
_BRANCHES = "refs/heads/"
_ORIGIN = "refs/remotes/origin/"
_SHORTLY = ("--untracked-files=normal", "--ignore-submodules=all")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")


class Branches(msgspec.Struct, frozen=True):
    """Where a checkout stands."""

    branch: str | None = None
    default_branch: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a file differs from what was committed."""

    file: str
    """From the root of the worktree."""
    additions: int
    deletions: int
    status: Status
    patch: str | None = None
    """Absent if nobody asked for it, or if there is too much of it."""


def branches(directory: str) -> Branches:
    """The branch of a directory's worktree, and the one that others begin with."""
    repository = find_worktree(directory).repository
    if repository is None:
        return Branches()
    found = _default(repository)
    return Branches(_branch(read_head(repository).ref), found.name if found else None)


def changes(directory: str) -> list[Change]:
    """What differs from the last commit in a directory and below it, without the patches."""
    with _borrowed(directory) as checkout:
        return [] if checkout is None else checkout.changes(checkout.head)


def patches(directory: str, mode: Mode, context: int) -> list[Change]:
    """What differs from the last commit, or from where the branch began, with patches."""
    with _borrowed(directory) as checkout:
        if checkout is None:
            return []
        since = checkout.head if mode == "git" else checkout.beginning()
        return [] if since is None else checkout.with_patches(since, context)


def raw_patch(directory: str) -> bytes:
    """What differs from the last commit as one patch, as git writes it."""
    with _borrowed(directory) as checkout:
        if checkout is None:
            return b""
        patch = checkout.ask(*_DIFF, "--binary", checkout.head, "--", checkout.below)
        return _said(patch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a checkout stands, in a few lines."""

    branch: str | None
    """None if no branch is checked out."""
    commit: str | None
    """The last commit; None before there is one."""
    changes: list[str]
    """The first files that differ from it, each behind two letters as `git status --short` has
    them."""
    more: int
    """How many others there are."""


def standing(directory: str, *, most: int, patience: float) -> Standing | None:
    """What git says of a directory's worktree, with so many changes; None where there is none.

    `patience` is how many seconds one question to git may take.
    """
    with _lent(directory, patience) as checkout:
        if checkout is None:
            return None
        listed = _said(checkout.ask("status", "--porcelain", "-z", "--no-renames", *_SHORTLY))
        head = read_head(checkout.repository)
        changes = [each.decode(errors="replace") for each in listed.split(b"\0") if each]
        return Standing(
            branch=_branch(head.ref),
            commit=head.commit,
            changes=changes[:most],
            more=max(0, len(changes) - most),
        )


@dataclass(frozen=True, slots=True)
class _Default:
    name: str
    ref: str


def _branch(ref: str | None) -> str | None:
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


def _ask(repository: Repository, *words: str) -> str | None:
    """What only the repository's refs can tell."""
    environment = without_configuration()
    said = ask_git(repository.git_folder, *words, environment=environment, patience=_PATIENCE)
    return None if said is None else said.decode(errors="replace").strip()


def _said(answer: bytes | None) -> bytes:
    if answer is None:
        raise OperatorError(
            f"git could not say what changed: not at all, or not within {_PATIENCE:.0f} s and"
            f" {LIMITS.memory // MIB} MiB"
        )
    return answer


@dataclass(frozen=True, slots=True)
class _Checkout:
    repository: Repository
    folder: bytes
    """kedge's own git folder for it."""
    head: str
    """The last commit; before there is one, a tree with nothing in it."""
    below: str
    """The part of the worktree that is asked about."""
    patience: float

    def ask(self, *words: str) -> bytes | None:
        return ask_git(
            self.folder,
            f"--work-tree={os.fsdecode(self.repository.root)}",
            *words,
            environment=without_configuration() | {"GIT_LITERAL_PATHSPECS": "1"},
            patience=self.patience,
        )

    def beginning(self) -> str | None:
        """Where the branch left the default one; None if it is that."""
        default = _default(self.repository)
        ref = read_head(self.repository).ref
        if default is None or ref == f"{_BRANCHES}{default.name}":
            return None
        commit = _ask(
            self.repository, "rev-parse", "--verify", "--quiet", f"{default.ref}^{{commit}}"
        )
        found = self.ask("merge-base", commit, self.head) if commit else None
        return found.decode().strip() if found else None

    def changes(self, since: str) -> list[Change]:
        listed = _said(self.ask(*_DIFF, "--raw", "--numstat", "-z", since, "--", self.below))
        return list(_changes(listed))

    def with_patches(self, since: str, context: int) -> list[Change]:
        found = self.changes(since)
        text = self.ask(*_DIFF, f"--unified={context}", since, "--", self.below)
        pieces = (b"\n" + text).split(b"\ndiff --git ")[1:] if text else []
        if len(pieces) != len(found):
            # There is too much of it, or somebody saves at this very moment.
            return found
        room = _MOST_PATCHES
        filled: list[Change] = []
        for change, piece in zip(found, pieces, strict=True):
            room -= len(piece)
            patch = f"diff --git {piece.decode(errors='replace')}"
            whole = patch if patch.endswith("\n") else patch + "\n"
            filled.append(msgspec.structs.replace(change, patch=whole) if room > 0 else change)
        return filled


def _changes(listed: bytes) -> Iterator[Change]:
    """First come the kinds of changes, then, in the same order, the numbers of lines."""
    words = iter(listed.split(b"\0"))
    statuses: dict[bytes, Status] = {}
    for word in words:
        if word.startswith(b":"):
            statuses[next(words)] = _STATUSES.get(word[-1:], "modified")
        elif word:
            added, deleted, path = word.split(b"\t", 2)
            yield Change(
                file=path.decode(errors="replace"),
                # Of what is not text git counts no lines.
                additions=int(added) if added != b"-" else 0,
                deletions=int(deleted) if deleted != b"-" else 0,
                status=statuses[path],
            )


@contextmanager
def _borrowed(directory: str) -> Iterator[_Checkout | None]:
    """As `_lent`, and new files count as added."""
    with _lent(directory, _PATIENCE) as checkout:
        if checkout is not None:
            _count_new_files(checkout)
        yield checkout


@contextmanager
def _lent(directory: str, patience: float) -> Iterator[_Checkout | None]:
    """A git folder of our own with the repository's index and objects; None where there is no
    repository."""
    worktree = find_worktree(directory)
    repository = worktree.repository
    if repository is None:
        yield None
        return
    _check_rules(worktree.root)
    with tempfile.TemporaryDirectory(prefix="kedge-") as made:
        config = read_config(repository)
        head = read_head(repository).commit
        _furnish(made, repository, config.object_format, config.excludes_file, head)
        checkout = _Checkout(
            repository=repository,
            folder=os.fsencode(made),
            head=head or _EMPTY_TREES.get(config.object_format, ""),
            below=os.path.relpath(directory, worktree.root),
            patience=patience,
        )
        yield checkout


def _check_rules(root: str) -> None:
    """Raise if git would wait for a pipe in the place of its rules."""
    for name in (".gitignore", ".gitattributes"):
        path = os.path.join(root, name)
        with suppress(OSError):
            # It follows no links here.
            if stat.S_ISFIFO(os.lstat(path).st_mode):
                raise OperatorError(f"{path} is not a regular file: remove it and try again")


def _furnish(
    folder: str,
    repository: Repository,
    object_format: str,
    excludes_file: bytes | None,
    head: str | None,
) -> None:
    for name in ("refs", "objects/info", "info"):
        os.makedirs(os.path.join(folder, name))
    own_excludes = os.path.join(folder, "excludes")
    config = ["[core]", "repositoryformatversion = 1", "bare = false", "quotePath = false"]
    config.append(f"excludesFile = {_quoted(os.fsencode(own_excludes))}")
    config += ["[extensions]", f"objectFormat = {object_format}"]
    files = {
        "HEAD": os.fsencode(head or "ref: refs/heads/none") + b"\n",
        "config": os.fsencode("\n".join(config)) + b"\n",
        # Copied, as a repository can name a pipe here, and git would wait for it.
        "excludes": read_small(excludes_file or b"", LARGEST_RULES) or b"",
        "info/exclude": read_small(repository.excludes_file, LARGEST_RULES) or b"",
        "objects/info/alternates": os.fsencode(_quoted(repository.objects_folder)) + b"\n",
    }
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    room = _LARGEST_INDEX
    for index in _indexes(repository):
        room -= os.path.getsize(index)
        if room < 0:
            raise OperatorError("the index of the repository is too large to look at")
        shutil.copy(index, os.fsencode(folder))


def _indexes(repository: Repository) -> list[bytes]:
    """The index; if it is split, with the half that is a file of its own."""
    if not os.path.isfile(repository.index_file):
        return []
    shared = glob.glob(b"sharedindex.*", root_dir=repository.git_folder)
    paths = [os.path.join(repository.git_folder, name) for name in shared]
    return [repository.index_file, *filter(os.path.isfile, paths)]


def _quoted(path: bytes) -> str:
    text = os.fsdecode(path)
    for letter, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(letter, escaped)
    return f'"{text}"'


def _count_new_files(checkout: _Checkout) -> None:
    listed = checkout.ask("ls-files", "-z", "--others", "--exclude-standard", "--", checkout.below)
    # One that ends with a slash is a repository of its own.
    new = [name for name in _said(listed).split(b"\0") if name and not name.endswith(b"/")]
    if not new:
        return
    names = os.path.join(os.fsdecode(checkout.folder), "new")
    with open(names, "wb") as file:
        file.write(b"\0".join(new))
    intent = ("add", "--intent-to-add", f"--pathspec-from-file={names}", "--pathspec-file-nul")
    _said(checkout.ask(*intent))
