"""What of a command is allowed for good when a person allows it for good: its first words."""

import re
from collections.abc import Mapping

from kedge.agent.shells.parsing import Command

_TWO = (
    *("apt", "apt-get", "bash", "brew", "bun", "bundle", "cargo", "conda", "dash", "deno"),
    *("docker", "dotnet", "flutter", "gem", "gh", "git", "go", "gradle", "helm", "hg", "just"),
    *("ksh", "kubectl", "make", "mix", "mvn", "nix", "node", "npm", "npx", "nx", "pdm"),
    *("perl", "php", "pip", "pip3", "pipx", "pnpm", "podman", "poetry", "pulumi", "python"),
    *("python3", "rails", "rake", "ruby", "rustup", "sbt", "sh", "svn", "swift", "systemctl"),
    *("task", "terraform", "tofu", "turbo", "uv", "uvx", "yarn", "zsh"),
)
_THREE = ("aws", "az", "gcloud")
_RUNNERS: Mapping[str, int] = {
    **dict.fromkeys(_TWO, 2),
    **dict.fromkeys(_THREE, 3),
    "bun run": 3,
    "bundle exec": 3,
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
    "npm run": 3,
    "nx run": 3,
    "pnpm run": 3,
    "poetry run": 3,
    "uv pip": 3,
    "uv run": 3,
    "yarn run": 3,
}
"""How many words say what a command does, where the first alone says too little."""
_INTERPRETERS = re.compile(
    r"(?:ba|da|a|k|z)?sh|(?:python|pypy|node|nodejs|perl|ruby|php|lua|tclsh|Rscript)[\d.]*|awk|bc|bun"
    r"|deno|ghci|irb|julia|mysql|osascript|psql|pwsh|R|sqlite3|ssh"
)
"""Programs that do whatever they are given to read."""


def prefix(command: Command) -> str | None:
    """The pattern that means this command with any arguments; the command itself where its first
    words do not tell what it does; None where that says too little or would mean others, too."""
    if command.is_fed or (_INTERPRETERS.fullmatch(command.name) and _is_told_later(command)):
        return None
    name = command.words[0].shown if command.words else ""
    two = " ".join(word.shown for word in command.words[:2])
    size = _RUNNERS.get(two) or _RUNNERS.get(name, 1)
    words = command.words[:size]
    # What is assigned says nothing of what may follow, nor does an option.
    is_telling = len(words) == size and "=" not in name
    is_telling &= not any(word.value.startswith("-") for word in words)
    if not is_telling or not all(word.is_fixed and not word.is_pattern for word in words):
        return _unless_wild(command.text)
    begin = " ".join([*filter(None, [command.assigned]), *(word.shown for word in words)])
    return None if _unless_wild(begin) is None else f"{begin} *"


def _is_told_later(command: Command) -> bool:
    """Whether a program gets what it does from elsewhere than from its arguments."""
    rest = command.values[1:]
    return command.is_piped or not any(each and not each.startswith("-") for each in rest)


def _unless_wild(text: str) -> str | None:
    # As a pattern it would mean other commands.
    return None if "*" in text or "?" in text else text
