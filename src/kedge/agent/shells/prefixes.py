"""What of a command is allowed for good when a person allows it for good: its first words."""

import os
import re
from collections.abc import Mapping

from kedge.agent.shells.edits import written
from kedge.agent.shells.parsing import Command
from kedge.agent.shells.programs import does_more
from kedge.domain.permission_rules import EXACTLY

_TWO = (
    *("apt", "apt-get", "bash", "brew", "bun", "bundle", "cargo", "conda", "dash", "deno"),
    *("docker", "dotnet", "flutter", "gem", "gh", "git", "go", "gradle", "helm", "hg", "just"),
    *("ksh", "kubectl", "make", "mix", "mvn", "nix", "node", "npm", "npx", "nx", "pdm"),
    *("perl", "php", "pip", "pip3", "pipx", "pnpm", "podman", "poetry", "pulumi", "python"),
    *("python3", "rails", "rake", "ruby", "rustup", "sbt", "sh", "svn", "swift", "systemctl"),
    *("task", "terraform", "tofu", "turbo", "uv", "uvx", "yarn", "zsh"),
    # What they run is asked for besides, but not everything should be run with their help.
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
"""How many words say what a command does, where the first alone says too little."""
_INTERPRETERS = re.compile(
    r"(?:ba|da|a|fi|k|z)?sh|(?:python|pypy|node|nodejs|perl|ruby|php|lua|tclsh|Rscript)[\d.]*|bc|bun"
    r"|deno|ghci|irb|java|ssh|julia|mysql|osascript|psql|pwsh|R|sqlite3|ts-node|tsx"
)
"""Programs that do whatever they are given to read."""
_WHOLE = re.compile(
    r"\.|ansible|builtin|command|conda|eval|exec|nix-shell|scp|sftp|source|ssh|su"
    r"|trap|watch|zip"
)
"""Programs whose first words say nothing of what they do."""


_AWK = re.compile(r"[gmn]?awk")
_SCRIPTED = re.compile(r"[gmn]?awk|[gs]?sed")
"""Programs whose scripts are read, unless another program starts them."""


def prefix(command: Command) -> str | None:
    """The pattern that means this command with any arguments; the command itself where its first
    words do not tell what it does; None where that says too little."""
    is_given = _INTERPRETERS.fullmatch(command.name) or _AWK.fullmatch(command.name)
    if command.is_fed or (is_given and _is_told_later(command)):
        return None
    if command.name == "command" and command.values[1:2] in (("-v",), ("-V",)):
        return f"{command.name} {command.values[1]} *"
    size = _size(command)
    words = command.words[:size]
    # What is assigned says nothing of what may follow, nor does an option.
    is_telling = len(words) == size and not any("=" in word.value for word in words)
    is_telling &= not any(word.value.startswith("-") for word in words)
    is_telling &= not _WHOLE.fullmatch(command.name) and not does_more(command)
    is_telling &= not (_SCRIPTED.fullmatch(command.name) and written(command))
    if not is_telling or not all(word.is_fixed and not word.is_pattern for word in words):
        return _exactly(command.text)
    begin = " ".join([*filter(None, [command.assigned]), *(word.shown for word in words)])
    # As a pattern it would mean other commands.
    return f"{begin} *" if _exactly(begin) == begin else _exactly(command.text)


def _size(command: Command) -> int:
    """How many words say what a command does."""
    names = [os.path.basename(word.value) for word in command.words]
    size = _RUNNERS.get(" ".join(names[:2])) or _RUNNERS.get(command.name, 1)
    # An interpreter says nothing without what it is to run, whoever starts it.
    while size <= len(names) and (
        _INTERPRETERS.fullmatch(names[size - 1])
        or (size > 1 and _SCRIPTED.fullmatch(names[size - 1]))
    ):
        size += 1
    return size


def _is_told_later(command: Command) -> bool:
    """Whether a program gets what it does from elsewhere than from its arguments."""
    rest = command.values[1:]
    return command.is_piped or not any(each and not each.startswith("-") for each in rest)


def _exactly(text: str) -> str:
    return EXACTLY + text if "*" in text or "?" in text else text
