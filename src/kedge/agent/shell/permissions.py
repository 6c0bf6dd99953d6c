"""The permissions that a command line needs: its commands, the prefixes that `always` allows, and
the paths it names."""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, filterfalse, takewhile
from pathlib import Path
from typing import NamedTuple

from kedge.agent.shell.expansion import SCRATCH
from kedge.agent.shell.options import has
from kedge.agent.shell.parser import CommandLine, SimpleCommand
from kedge.agent.shell.paths import MOVING, TOUCHING, carried, is_device, leads_away, named
from kedge.agent.shell.programs import does_more
from kedge.agent.shell.words import ShellWord
from kedge.agent.shell.wrappers import hinted
from kedge.agent.shell.written_files import AWK, SED, sed, written
from kedge.agent.shell.written_files import written as written_by
from kedge.domain.permissions import DOES_MORE, EXACTLY, UNCERTAIN

_TWO = (
    *("apt", "apt-get", "bash", "brew", "bun", "bundle", "cargo", "conda", "dash", "deno"),
    *("docker", "dotnet", "flutter", "gem", "gh", "git", "go", "gradle", "helm", "hg", "just"),
    *("ksh", "kubectl", "make", "mix", "mvn", "nix", "node", "npm", "npx", "nx", "pdm"),
    *("perl", "php", "pip", "pip3", "pipx", "pnpm", "podman", "poetry", "pulumi", "python"),
    *("python3", "rails", "rake", "ruby", "rustup", "sbt", "sh", "svn", "swift", "systemctl"),
    *("task", "terraform", "tofu", "turbo", "uv", "uvx", "yarn", "zsh"),
    # The commands they run need permission too, but a prefix must not allow running everything.
    *("bunx", "busybox", "doas", "env", "sudo", "xargs"),
)
_THREE = ("aws", "az", "gcloud")
_RUNNERS: Mapping[str, int] = {
    **dict.fromkeys(_TWO, 2),
    **dict.fromkeys(_THREE, 3),
    "bun run": 3,
    "bundle exec": 3,
    "deno run": 3,
    "deno task": 3,
    "docker compose": 3,
    "docker container": 3,
    "docker image": 3,
    "git bisect": 3,
    "git config": 3,
    "git remote": 3,
    "git stash": 3,
    "git submodule": 3,
    "git worktree": 3,
    "go run": 3,
    "npm run": 3,
    "nx run": 3,
    "pipx run": 3,
    "pnpm run": 3,
    "poetry run": 3,
    "uv pip": 3,
    "uv run": 3,
    "yarn run": 3,
}
"""How many words identify a command, where the first alone is not enough."""
_INTERPRETERS = re.compile(
    r"(?:ba|da|a|fi|k|z)?sh|(?:python|pypy|node|nodejs|perl|ruby|php|lua|tclsh|Rscript)[\d.]*|bc|bun"
    r"|deno|ghci|irb|java|ssh|julia|mysql|osascript|psql|pwsh|R|sqlite3|ts-node|tsx"
)
"""Programs that run whatever they read."""
_WHOLE = re.compile(
    r"\.|ansible|builtin|command|conda|eval|exec|nix-shell|scp|sftp|source|ssh|su"
    r"|trap|watch|zip"
)
"""Programs whose first words do not say what they do."""


_AWK = re.compile(r"[gmn]?awk")
_SCRIPTED = re.compile(r"[gmn]?awk|[gs]?sed")
"""Programs whose scripts are analysed, unless another program starts them."""


def prefix(command: SimpleCommand) -> str | None:
    """The pattern that matches this command with any arguments; the command itself where its first
    words do not say what it does; None where even that is not enough."""
    is_given = _INTERPRETERS.fullmatch(command.name) or _AWK.fullmatch(command.name)
    if command.is_fed or (is_given and _is_told_later(command)):
        return None
    if command.name == "command" and command.values[1:2] in (("-v",), ("-V",)):
        return f"{command.name} {command.values[1]} *"
    size = _size(command)
    words = command.words[:size]
    # Assignments and options do not say what may follow.
    is_telling = len(words) == size and not any("=" in word.value for word in words)
    is_telling &= not any(word.value.startswith("-") for word in words)
    is_telling &= not _WHOLE.fullmatch(command.name) and not does_more(command)
    is_telling &= not (_SCRIPTED.fullmatch(command.name) and written(command))
    if not is_telling or not all(word.is_fixed and not word.is_pattern for word in words):
        return _exactly(command.text)
    begin = " ".join([*filter(None, [command.assigned]), *(word.shown for word in words)])
    # As a pattern it would match other commands.
    return f"{begin} *" if _exactly(begin) == begin else _exactly(command.text)


def _size(command: SimpleCommand) -> int:
    """How many words identify a command."""
    names = [os.path.basename(word.value) for word in command.words]
    size = _RUNNERS.get(" ".join(names[:2])) or _RUNNERS.get(command.name, 1)
    # An interpreter says nothing without its program, also when another program starts it.
    while size <= len(names) and (
        _INTERPRETERS.fullmatch(names[size - 1])
        or (size > 1 and _SCRIPTED.fullmatch(names[size - 1]))
    ):
        size += 1
    return size


def _is_told_later(command: SimpleCommand) -> bool:
    """Whether a program gets its instructions from elsewhere than its arguments."""
    rest = command.values[1:]
    return command.is_piped or not any(each and not each.startswith("-") for each in rest)


def _exactly(text: str) -> str:
    return EXACTLY + text if "*" in text or "?" in text else text


_SEPARATORS = re.compile(r"[\n;&|(){}`]+")
_KEYWORDS = frozenset({"!", "coproc", "do", "elif", "else", "if", "then", "time", "until", "while"})


@dataclass(frozen=True, slots=True)
class AskedRules:
    """The permissions that a line needs."""

    patterns: tuple[str, ...]
    """Each of them must be allowed, and none may be denied."""
    always: tuple[str, ...]
    """What the reply `always` allows."""
    hints: tuple[str, ...] = ()
    """What rules may deny as well, though it is not asked about."""


def asked_of(line: str, parsed: CommandLine) -> AskedRules:
    """The permissions to request for a line."""
    named = [form for command in parsed.commands for form in _forms(command)]
    hints = _once(
        " ".join(word.shown for word in inner)
        for command in parsed.commands
        if command.words
        for inner in hinted(command.words)
    )
    patterns = [_marked(form) for form in named if form.text]
    if not parsed.is_certain or not patterns:
        # Allowing this line allows no other; what is denied stays denied.
        return AskedRules(_once([UNCERTAIN + line, *patterns, *_sketch(line)]), (), hints)
    named = [form for form in named if form.text]
    return AskedRules(_once(patterns), _once(filter(None, map(prefix, named))), hints)


def _marked(form: SimpleCommand) -> str:
    return DOES_MORE + form.text if does_more(form) else form.text


def _sketch(line: str) -> Iterable[str]:
    """Possible commands in a line that is not understood."""
    for piece in _SEPARATORS.split(line):
        words = " ".join(dropwhile(_KEYWORDS.__contains__, piece.split()))
        if words:
            yield words


def _forms(command: SimpleCommand) -> Iterable[SimpleCommand]:
    """The command as it is written, and as a rule may name it: without unneeded quotes, without
    assignments before it, without the folder of its program."""
    yield command
    if not command.words or not command.text:
        return
    bare = " ".join(word.shown for word in command.words)
    # Redirections stand after the words, and a rule for the command applies with them too.
    if not f"{command.text} ".startswith(f"{bare} "):
        yield replace(command, text=bare, assigned="")
    if command.is_declared:
        return
    first, *rest = command.words
    name = os.path.basename(first.value)
    if name not in ("", first.value):
        words = (first._replace(value=name, source=name), *rest)
        yield replace(
            command, text=" ".join(word.shown for word in words), words=words, assigned=""
        )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


_MOST_FOLDERS = 16
"""More folders than a sensible line works in."""
_MOST_LOOKS = 10_000
"""Paths that are looked up on the disk."""
_WILD = re.compile(r"[*?\[]")
_STRING = re.compile(r'"([^"\n]*)"')
_CHANGING_FOLDERS = frozenset({"find", "git", "mv", "rm"})
_LISTING = ("find", "ls")
_IN_STACK = re.compile(r"[-+]\d+")
_ODD_HOMES = ("~-", "~+", *(f"~{digit}" for digit in range(10)))


class Places(NamedTuple):
    """The places where the commands of a line work."""

    paths: list[Path]
    """The named paths, with symlinks resolved."""
    is_known: bool
    """Whether these are certainly all."""
    written: list[Path]
    """What they certainly write, as it is named."""
    written_in: list[Path]
    """Folders in which they write unknown files, at the top or below."""
    unplaced: list[str]
    """Commands that certainly write at an unknown place."""


def places(line: CommandLine, directory: Path) -> Places:
    """The places that the commands of a line name, when it starts in this directory."""
    seen = _Places(line, directory)
    for command in line.commands:
        seen.look_at(command)
    return Places(
        [path for path in dict.fromkeys(seen.found) if SCRATCH not in path.parts],
        seen.is_known,
        list(dict.fromkeys(seen.written)),
        list(dict.fromkeys(seen.written_in)),
        seen.unplaced,
    )


class _Places:
    """The places found so far."""

    def __init__(self, line: CommandLine, directory: Path) -> None:
        self.found: list[Path] = []
        self.is_known = True
        self.written: list[Path] = []
        self.written_in: list[Path] = []
        self.unplaced: list[str] = []
        self._listed: list[Path] = []
        """Folders whose files were listed, possibly for later commands."""
        self._programs = {command.words[0].value for command in line.commands if command.words}
        self._folders = [directory]
        self._left = _MOST_LOOKS

    def look_at(self, command: SimpleCommand) -> None:
        """Add a command."""
        is_moving = command.name in MOVING
        surely, perhaps = self._given(command)
        self._left -= len(self._folders) * (len(surely) + len(perhaps))
        if self._left < 0:
            self.is_known = False
            return
        for path in surely:
            # The system resolves links before it goes up; the shell's `cd` does not.
            self.found += [real(folder / path) for folder in self._folders]
            if is_moving:
                here = [Path(os.path.normpath(folder / path)) for folder in self._folders]
                self.found += [real(folder) for folder in here]
                # It may fail to get there, so later words may mean either folder.
                together = list(dict.fromkeys([*self._folders, *here]))
                self.is_known &= len(together) <= _MOST_FOLDERS
                self._folders = together[:_MOST_FOLDERS]
        is_touching = command.name in TOUCHING or command.name == "for"
        matching = [
            path for path in self._matching(command.words[1:]) if is_touching or "/" in path
        ]
        for path in (*perhaps, *matching, *self._matching(command.files)):
            self.found += self._existing(path)
        self._list(command)
        self._write(command)

    def _list(self, command: SimpleCommand) -> None:
        if command.name in _LISTING:
            words = list(_roots_of(command))
            given = (path for word in words for path, *_ in named(word, command.variables) if path)
            for path in (*given, *self._matching(words)):
                self._listed += [folder / path for folder in self._folders]
            self._left -= len(self._listed)

    def _matching(self, words: Sequence[ShellWord]) -> Iterator[str]:
        """The matches of patterns, as far as they go through links."""
        for word in words:
            if word.is_pattern and word.is_fixed:
                for folder in self._folders:
                    yield from self._globbed(folder, word.value.split("/"))

    def _globbed(self, folder: Path, names: Sequence[str], above: str = "") -> Iterator[str]:
        for at, name in enumerate(names):
            if _WILD.search(name):
                for entry in self._entries(folder / above):
                    is_meant = fnmatch.fnmatchcase(entry.name, name) and (
                        not entry.name.startswith(".") or name.startswith(".")
                    )
                    if is_meant and entry.is_symlink():
                        yield os.path.join(above, entry.name, *names[at + 1 :])
                    elif is_meant and entry.is_dir():
                        below = os.path.join(above, entry.name)
                        yield from self._globbed(folder, names[at + 1 :], below)
                return
            above = os.path.join(above, name) if above or name else "/"
        if above.split("/")[-1].lower() == ".git" or "/.git/" in f"/{above.lower()}/":
            yield above

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        self.is_known = False
                        return
                    yield entry
        except OSError:
            # The shell cannot read it either.
            return

    def _write(self, command: SimpleCommand) -> None:
        words = written_by(command)
        self.written += [
            folder / path for path in self._matching(words) for folder in self._folders
        ]
        for word in words:
            given = named(word, command.variables)
            is_told = all(each.is_known and each.is_exact for each in given)
            if word.is_filled or not is_told:
                self.unplaced.append(command.text or word.source)
                self.written_in += self._listed
            for path, _, is_exact, _ in given:
                if path and is_exact:
                    self.written += [folder / path for folder in self._folders]
                    self._write_below(command, path)
                elif path:
                    self.written_in += [folder / path for folder in self._folders]
        self._left -= len(self._folders) * len(command.words)

    def _write_below(self, command: SimpleCommand, path: str) -> None:
        """Commands that delete or move whole folders change files that they do not name."""
        if command.name in _CHANGING_FOLDERS and any(
            os.path.isdir(folder / path) for folder in self._folders
        ):
            self.unplaced.append(command.text)

    def _given(self, command: SimpleCommand) -> tuple[list[str], list[str]]:
        """What a command certainly names, and what may be the name of a file."""
        surely = list(_named_by(command, command.files))
        self.is_known &= _are_known(command, command.files)
        words: Sequence[ShellWord] = command.words[1:]
        if any(word.source.startswith(_ODD_HOMES) for word in words) or _reads_paths(command):
            self.is_known = False
        if command.name in MOVING:
            words = self._moved(command)
        if command.name in MOVING or command.name in TOUCHING:
            self.is_known &= _are_known(command, words)
            surely += _named_by(command, words)
            return surely, list(_carried_by(command))
        given = [path for path in _perhaps_named_by(command) if path not in self._programs]
        surely += filter(leads_away, given)
        perhaps = [path for path in given if not leads_away(path)]
        return surely, [*perhaps, *_carried_by(command)]

    def _moved(self, command: SimpleCommand) -> Sequence[ShellWord]:
        """The folder that the shell changes to."""
        words = [word for word in command.words[1:] if word.value not in ("-P", "-L", "-e", "--")]
        if not words and command.name == "cd":
            return [ShellWord(os.path.expanduser("~"), "~", True)]
        if [word.value for word in words] == ["-"]:
            # Back to the previous folder, if there was one.
            self.is_known &= len(self._folders) > 1
            return []
        if len(words) > 1:
            # The shell refuses that.
            self.is_known = False
            return []
        if any(_IN_STACK.fullmatch(word.value) for word in words):
            self.is_known = False
        has_paths = "CDPATH" in os.environ or "CDPATH" in command.variables.names
        if has_paths and not all(word.value.startswith(("/", "./", "../")) for word in words):
            self.is_known = False
        return words

    def _existing(self, path: str) -> Iterator[Path]:
        """Where a word leads that may be the name of a file, if it goes through links."""
        for folder in self._folders:
            leads_to = real(folder / path)
            as_written = Path(os.path.normpath(real(folder) / path))
            if (leads_away(path) or leads_to != as_written) and not _is_program(leads_to):
                yield leads_to


def real(path: Path) -> Path:
    """The path with symlinks resolved."""
    # There they lead elsewhere for each process.
    return path if path.is_relative_to("/proc") else Path(os.path.realpath(path))


def _roots_of(command: SimpleCommand) -> Iterator[ShellWord]:
    """The files and folders that a command lists; for `find` they stand before its conditions."""
    words = iter(command.words[1:])
    if command.name == "find":
        words = dropwhile(lambda word: word.value in ("-H", "-L", "-P"), words)
        return takewhile(lambda word: word.value[:1] not in ("-", "(", "!"), words)
    return (word for word in words if not word.value.startswith("-"))


def _reads_paths(command: SimpleCommand) -> bool:
    """Whether a command reads names of files from elsewhere, or changes what names mean."""
    words = command.words[1:]
    if command.name == "shopt":
        return any(word.value == "cdable_vars" for word in words)
    return command.name == "curl" and has(words, "K", "--config")


def _named_by(command: SimpleCommand, words: Sequence[ShellWord]) -> Iterator[str]:
    for word in words:
        for path, *_ in named(word, command.variables):
            if path:
                yield path


def _perhaps_named_by(command: SimpleCommand) -> Iterator[str]:
    """What the words of any program may name. Values of environment variables were not written
    here."""
    for word in command.words[1:]:
        for path, *_ in named(word, command.variables, with_environment=False):
            if path:
                yield path
    if SED.fullmatch(command.name):
        yield from filterfalse(is_device, sed(command.words[1:]).named)
    elif AWK.fullmatch(command.name):
        for word in command.words[1:]:
            yield from filterfalse(is_device, _STRING.findall(word.value))


def _carried_by(command: SimpleCommand) -> Iterator[str]:
    for word in command.words[1:]:
        for text, _ in command.variables.texts(word, with_environment=False):
            yield from carried(command.name, text)


def _are_known(command: SimpleCommand, words: Sequence[ShellWord]) -> bool:
    return all(each.is_known for word in words for each in named(word, command.variables))


def _is_program(path: Path) -> bool:
    """Whether it is a program, such as the Python that a virtual environment links to."""
    return path.parent.name == "bin" and os.path.isfile(path) and os.access(path, os.X_OK)
