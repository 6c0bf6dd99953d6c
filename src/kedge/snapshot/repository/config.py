"""The settings of the user's git configuration that decide which files count and what bytes they
have.

git itself reads the configuration, with all its files, includes and conditions; nothing that is
configured is executed.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.git_cli import ask_git, with_configuration
from kedge.snapshot.repository.signatures import Signature, is_settled, signature

_GIT_PATIENCE = 5.0
# More than any real configuration has; a hostile one with a million must not slow down each check.
_MOST_ORIGINS = 250
_NO_REPOSITORY = os.fsencode(os.devnull)
_SYSTEM_FOLDER = b"/etc"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitConfig:
    """The settings that matter for snapshots, and the means to notice when they may have
    changed."""

    excludes_file: bytes | None = None
    """The user's own ignore rules; the path need not exist, nor be a file."""
    attributes_file: bytes | None = None
    system_attributes_file: bytes = _SYSTEM_FOLDER + b"/gitattributes"
    converts: bool = True
    """Whether git may convert a file to other bytes of the same length, despite its attributes."""
    ignore_case: bool = False
    comparing: tuple[str, ...] = ()
    """The settings by which git tells whether a file differs from its object, as lines for the
    section `core`. None of them runs a program."""
    object_format: str = "sha1"
    origins: tuple[tuple[bytes, Signature | None], ...] = ()
    """The files that were read, or would be if they existed, with their signatures."""
    settled: bool = False
    """Whether any later change of an origin shows in its signature."""

    @property
    def hash_length(self) -> int:
        return 32 if self.object_format == "sha256" else 20

    def is_current(self) -> bool:
        """Whether reading again would give the same; costs one `stat` for each origin."""
        return self.settled and all(signature(path) == seen for path, seen in self.origins)


@dataclass(frozen=True, slots=True)
class _Setting:
    scope: bytes
    origin: bytes | None
    key: bytes
    value: bytes | None
    """None for a key without `=`, which git treats as true."""


def read_config(repository: Repository | None) -> GitConfig:
    """The configuration as git sees it in this repository, or outside of any repository."""
    started = time.time_ns()
    # Before git reads them: a change meanwhile then differs from this.
    known = _signatures(_usual_files(repository))
    listed = _ask(repository, "--list", "--show-origin", "--show-scope", "--includes")
    settings = list(_parse(listed)) if listed is not None else []
    named = islice(dict.fromkeys(_named_files(repository, settings)), _MOST_ORIGINS)
    known = _signatures(named) | known
    last = {setting.key: setting for setting in settings}
    understood = listed is not None and (repository is None or _is_heard(settings))
    return GitConfig(
        excludes_file=_path(repository, last.get(b"core.excludesfile"), b"ignore"),
        attributes_file=_path(repository, last.get(b"core.attributesfile"), b"attributes"),
        system_attributes_file=_system_folder(settings) + b"/gitattributes",
        # Attributes from a tree are not read here. Line ends (`core.autocrlf`, `core.eol`) do not
        # matter: see `kedge.snapshot.ignore.attributes`.
        converts=not understood or b"attr.tree" in last,
        ignore_case=_is_true(last.get(b"core.ignorecase")),
        comparing=tuple(_comparing(last)),
        object_format=_object_format(last.get(b"extensions.objectformat")),
        origins=tuple(known.items()),
        settled=all(is_settled(seen, started) for seen in known.values()),
    )


def _ask(repository: Repository | None, *words: str) -> bytes | None:
    git_folder = repository.git_folder if repository else _NO_REPOSITORY
    return ask_git(
        git_folder,
        # git must not go to the worktree that the repository names.
        "--work-tree=/",
        "config",
        "-z",
        *words,
        environment=with_configuration(),
        patience=_GIT_PATIENCE,
    )


def _parse(listed: bytes) -> Iterator[_Setting]:
    words = iter(listed.split(b"\0"))
    # Three words each; the last NUL ends the last setting and begins none.
    for scope, origin, setting in zip(words, words, words, strict=False):
        key, equals, value = setting.partition(b"\n")
        kind, _, name = origin.partition(b":")
        yield _Setting(
            scope,
            os.path.join(b"/", name) if kind == b"file" else None,
            key,
            value if equals else None,
        )


def _is_heard(settings: Iterable[_Setting]) -> bool:
    # git silently ignores a repository that it does not understand.
    return any(setting.scope == b"local" for setting in settings)


def _signatures(paths: Iterable[bytes]) -> dict[bytes, Signature | None]:
    return {path: signature(path) for path in paths}


def _usual_files(repository: Repository | None) -> Iterator[bytes]:
    yield _SYSTEM_FOLDER + b"/gitconfig"
    for name in (b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM"):
        if named := os.environb.get(name):
            yield named
    if home := os.environb.get(b"HOME"):
        yield home + b"/.gitconfig"
    if personal := _personal(b"config"):
        yield personal
    if repository:
        yield repository.common_folder + b"/config"
        yield repository.git_folder + b"/config.worktree"


def _named_files(repository: Repository | None, settings: Iterable[_Setting]) -> Iterator[bytes]:
    for setting in settings:
        if setting.origin is None:
            continue
        yield setting.origin
        if not setting.key.startswith((b"include.", b"includeif.")):
            continue
        # Also files that are not included now: they may appear, or the condition become true.
        if setting.value:
            expanded = os.path.expanduser(setting.value)
            yield os.path.join(os.path.dirname(setting.origin), expanded)
        if repository and setting.key.startswith(b"includeif.onbranch:"):
            yield repository.git_folder + b"/HEAD"


def _personal(name: bytes) -> bytes | None:
    if folder := os.environb.get(b"XDG_CONFIG_HOME"):
        return folder + b"/git/" + name
    if home := os.environb.get(b"HOME"):
        return home + b"/.config/git/" + name
    return None


def _path(repository: Repository | None, setting: _Setting | None, usual: bytes) -> bytes | None:
    if setting is None:
        return _personal(usual)
    # git knows best what `~`, `~user` and `%(prefix)` mean.
    named = _ask(repository, "--type=path", "--get", os.fsdecode(setting.key))
    if not named or named == b"\0":
        return None
    path = named.removesuffix(b"\0")
    if repository is None:
        return path if os.path.isabs(path) else None
    return os.path.join(repository.root, path)


def _system_folder(settings: Iterable[_Setting]) -> bytes:
    for setting in settings:
        if setting.scope == b"system" and setting.origin:
            return os.path.dirname(setting.origin)
    return _SYSTEM_FOLDER


def _is_false(setting: _Setting | None) -> bool:
    if setting is None:
        return True
    return setting.value is not None and setting.value.lower() in (
        b"false",
        b"no",
        b"off",
        b"0",
        b"",
    )


def _is_true(setting: _Setting | None) -> bool:
    return not _is_false(setting)


_SWITCHES = ("fileMode", "symlinks", "ignoreCase", "precomposeUnicode", "autocrlf")
_WORDS = {"autocrlf": (b"input",), "eol": (b"lf", b"crlf", b"native")}


def _comparing(settings: Mapping[bytes, _Setting]) -> Iterator[str]:
    for name in (*_SWITCHES, "eol"):
        setting = settings.get(b"core." + name.lower().encode())
        if setting is None:
            continue
        word = (setting.value or b"").lower()
        if word in _WORDS.get(name, ()):
            yield f"{name} = {word.decode()}"
        elif name in _SWITCHES:
            yield f"{name} = {str(_is_true(setting)).lower()}"


def _object_format(setting: _Setting | None) -> str:
    return (setting.value or b"").decode("ascii", "replace") if setting else "sha1"
