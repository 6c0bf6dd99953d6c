"""Reads HEAD from the repository's files alone; fast enough for every snapshot.

A repository that stores its refs in another form is read through git, and only when that form
changed.
"""

import os
import re
import stat
import time
from functools import lru_cache

from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.git_cli import ask_git, without_configuration
from kedge.snapshot.repository.signatures import (
    Signature,
    is_settled,
    read_regular,
    read_small,
    signature,
    signature_of,
)
from kedge.snapshot.values import Head

_LONGEST_REF = 4096
_LONGEST_PACKED = 512 * 1024 * 1024
_MOST_HOPS = 5
_GIT_PATIENCE = 5.0
_KEPT_ELSEWHERE = b"refs/heads/.invalid"
_OF_ONE_WORKTREE = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")
_REF = re.compile(rb"refs/[^\x00-\x20\x7f]+")
_COMMIT = re.compile(rb"([0-9a-f]{64}|[0-9a-f]{40})(?:\s|\Z)")


def read_head(repository: Repository) -> Head:
    """The branch and the commit of HEAD, as far as they are known."""
    name = b"HEAD"
    for _ in range(_MOST_HOPS):
        text = _loose(repository, name)
        if text is None:
            return Head(ref=_shown(name), commit=_packed(repository, name))
        if not text.startswith(b"ref:"):
            found = _COMMIT.match(text)
            return Head(ref=_shown(name), commit=found[1].decode() if found else None)
        name = text.removeprefix(b"ref:").strip()
        if name == _KEPT_ELSEWHERE:
            return _ask(repository)
        if not _REF.fullmatch(name) or b".." in name:
            return Head()
    return Head()


def _loose(repository: Repository, name: bytes) -> bytes | None:
    alone = name == b"HEAD" or name.startswith(_OF_ONE_WORKTREE)
    path = (repository.git_folder if alone else repository.common_folder) + b"/" + name
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return _linked(path)
        seen = signature_of(found)
        if is_settled(seen, time.time_ns()):
            return _read_once(path, seen)
    except OSError:
        return None
    return read_small(path, _LONGEST_REF)


@lru_cache(maxsize=256)
def _read_once(path: bytes, seen: Signature) -> bytes | None:
    # An error is not cached: the next attempt may succeed.
    found = read_regular(path, _LONGEST_REF)
    return found[0] if found else None


def _linked(path: bytes) -> bytes | None:
    # A link to another ref is git's old form of `ref: `; git follows any other link.
    named = os.readlink(path)
    return b"ref: " + named if named.startswith(b"refs/") else read_small(path, _LONGEST_REF)


def _shown(name: bytes) -> str | None:
    # A name that is not UTF-8 must not keep its record from being stored or sent.
    return None if name == b"HEAD" else name.decode("utf-8", "backslashreplace")


def _packed(repository: Repository, name: bytes) -> str | None:
    path = repository.common_folder + b"/packed-refs"
    seen = signature(path)
    if seen is None:
        return None
    if not is_settled(seen, time.time_ns()):
        return _search(path, name)
    return _search_once(path, seen, name)


@lru_cache(maxsize=256)
def _search_once(path: bytes, seen: Signature, name: bytes) -> str | None:
    return _search(path, name)


def _search(path: bytes, name: bytes) -> str | None:
    # Read, not mapped: if another program truncates a mapped file, the process dies.
    content = read_small(path, _LONGEST_PACKED)
    if content is None:
        return None
    place = content.find(b" " + name + b"\n")
    line = content[content.rfind(b"\n", 0, max(place, 0)) + 1 : max(place, 0)]
    found = _COMMIT.fullmatch(line)
    return found[1].decode() if found else None


def _ask(repository: Repository) -> Head:
    tables = [
        signature(folder + b"/reftable/tables.list")
        for folder in (repository.git_folder, repository.common_folder)
    ]
    now = time.time_ns()
    if all(is_settled(seen, now) for seen in tables):
        return _ask_once(repository, *tables)
    return _ask_git(repository.git_folder)


@lru_cache(maxsize=256)
def _ask_once(repository: Repository, own: Signature | None, shared: Signature | None) -> Head:
    return _ask_git(repository.git_folder)


def _ask_git(git_folder: bytes) -> Head:
    ref, commit = (
        ask_git(git_folder, *words, environment=without_configuration(), patience=_GIT_PATIENCE)
        for words in (
            ("symbolic-ref", "--quiet", "HEAD"),
            ("rev-parse", "--quiet", "--verify", "HEAD^{commit}"),
        )
    )
    return Head(
        ref=_shown(ref.strip()) if ref else None,
        commit=commit.decode("ascii", "replace").strip() if commit else None,
    )
