"""Loads the configuration of a directory from all its files."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kedge.config.display import dotted, printable
from kedge.config.files import (
    SKILL,
    Complain,
    LoadedFile,
    TrustCheck,
    home_of,
    load_files,
    load_own_files,
    merged,
    nobody,
)
from kedge.config.instructions import stays_inside
from kedge.config.values import (
    AgentConfig,
    Config,
    Instruction,
    Ruleset,
    SkillConfig,
    UntrustedSetting,
)
from kedge.domain.errors import ConfigInvalid
from kedge.domain.permissions import PermissionRule


def rules(permission: Mapping[str, Any], home: str) -> Ruleset:
    """The rules in order of precedence: the last that matches wins.

    They keep the order of the file, except that names with wildcards come first: a rule for one
    permission wins over a rule for many, whichever file each is in.
    """
    ordered = sorted(permission.items(), key=lambda item: not set("*?") & set(item[0]))
    return tuple(
        PermissionRule(permission=name, pattern=_expand(pattern, home), action=action)
        for name, given in ordered
        for pattern, action in (given if isinstance(given, dict) else {"*": given}).items()
    )


def _expand(pattern: str, home: str) -> str:
    """The pattern with a leading home directory expanded."""
    for short in ("~", "$HOME"):
        if pattern == short or pattern.startswith(f"{short}/"):
            return home + pattern.removeprefix(short)
    return pattern


_MOST = 20
_MOST_OF_ALL = 60
_TO_TRUST = "until you have looked at the file and run `kedge trust`"


def notices(file: LoadedFile) -> list[str]:
    """The notices of a file, one line each."""
    path = printable(file.path)
    if file.strays:
        return [f"{path} is ignored: it is a link out of the project; put a copy in its place"]
    if file.problem:
        until = [f"the agent {name} asks before each call until then" for name in file.agents or ()]
        return ["; ".join([f"{path} is ignored: {printable(file.problem)}", *until])]
    if file.irregular:
        return [f"{path} is ignored: it is not a regular file"]
    odd = [f"{dotted(key)} is ignored: kedge does not know its value" for key in file.odd]
    if file.value.get("skills", {}).get("urls"):
        odd.append("skills.urls is ignored: kedge reads skills from folders; put a copy in one")
    found = [*(each.notice for each in untrusted(file)), *(f"{path}: {line}" for line in odd)]
    if len(found) > _MOST:
        found = [*found[:_MOST], f"{path}: and {len(found) - _MOST} more like these"]
    return found


def untrusted(file: LoadedFile) -> list[UntrustedSetting]:
    """The settings of a file that do not count, or not fully, until it is trusted."""
    path = printable(file.path)
    exception = "only makes an exception from the file's own rules"
    found = [(key, "is ignored") for key in dict.fromkeys(file.ignored)]
    found += [(key, exception) for key in file.allowing]
    return [
        UntrustedSetting(key=key, notice=f"{path}: {dotted(key)} {what} {_TO_TRUST}")
        for key, what in found
    ]


Json = dict[str, Any]

_NOT_WRITTEN = {
    *("permission", "restrictions", "agent", "instructions", "notices", "files", "raw"),
    *("key_variables", "untrusted", SKILL),
}
"""Fields that are computed here, even if a file has keys with their names."""
_OF_AGENTS = {field.name for field in msgspec.structs.fields(AgentConfig)}
_OF_NO_MODEL = {"name"}
"""Keys of agents that have no effect, and are no options for a model either."""


def load_config(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    is_trusted: TrustCheck = nobody,
) -> Config:
    """The configuration of a directory. It reads files, so call it in a thread from a coroutine."""
    variables = os.environ if environ is None else environ
    files = load_files(directory, worktree, environ=variables, is_trusted=is_trusted)
    return config_of(files, home_of(variables))


def load_readable_config(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    environ: Mapping[str, str],
    is_trusted: TrustCheck = nobody,
) -> Config:
    """Like `load_config`, but only with the files that can be read; notices report the others.

    For display only, not to work by: a file that is left out may forbid something.
    """

    def files(complain: Complain) -> list[LoadedFile]:
        return load_files(
            directory, worktree, environ=environ, is_trusted=is_trusted, complain=complain
        )

    return _readable(files, home_of(environ))


def load_own_config(environ: Mapping[str, str]) -> Config:
    """The configuration in the user's own files that can be read; for display only."""

    def files(complain: Complain) -> list[LoadedFile]:
        return load_own_files(environ=environ, complain=complain)

    return _readable(files, home_of(environ))


def _readable(files: Callable[[Complain], list[LoadedFile]], home: str) -> Config:
    problems: list[ConfigInvalid] = []
    config = config_of(files(problems.append), home)
    told = tuple(map(str, problems))
    ignored = (f"{problem}: the whole file is ignored" for problem in told)
    return msgspec.structs.replace(config, notices=(*config.notices, *ignored), problems=told)


def config_of(files: list[LoadedFile], home: str) -> Config:
    """The configuration that files add up to."""
    raw = merged(files)
    raw.pop(SKILL, None)
    known = {name: value for name, value in raw.items() if name not in _NOT_WRITTEN}
    return msgspec.structs.replace(
        msgspec.convert(known, Config),
        permission=rules(raw.get("permission", {}), home),
        restrictions=tuple(rules(file.permission, home) for file in files if file.permission),
        agent=_agents(raw.get("agent", {}), files, home),
        skill={
            name: msgspec.convert(value, SkillConfig)
            for file in files
            for name, value in file.value.get(SKILL, {}).items()
        },
        instructions=_instructions(files, home),
        key_variables=tuple(dict.fromkeys(name for file in files for name in file.key_variables)),
        notices=_notices(files),
        untrusted=tuple(each for file in files for each in untrusted(file)),
        files=tuple(file.path for file in files if file.was_read),
        raw=raw,
    )


def _notices(files: list[LoadedFile]) -> tuple[str, ...]:
    told = [notice for file in files for notice in notices(file)]
    left = len(told) - _MOST_OF_ALL
    if left <= 0:
        return tuple(told)
    return (*told[:_MOST_OF_ALL], f"and {left} more like these: `kedge trust` shows all")


def _agents(raw: Json, files: list[LoadedFile], home: str) -> dict[str, AgentConfig]:
    limits = [file.agents for file in files if file.agents]
    names = dict.fromkeys([*raw, *(name for agents in limits for name in agents)])
    restrictions = {
        name: tuple(rules(agents[name], home) for agents in limits if name in agents)
        for name in names
    }
    return {name: _agent(raw.get(name, {}), restrictions[name], home) for name in names}


def _agent(raw: Json, restrictions: tuple[Any, ...], home: str) -> AgentConfig:
    given = {name: value for name, value in raw.items() if name not in _NOT_WRITTEN}
    # Keys that kedge does not know for an agent are meant for its model.
    more = {key: value for key, value in given.items() if key not in _OF_AGENTS | _OF_NO_MODEL}
    return msgspec.structs.replace(
        msgspec.convert(given, AgentConfig),
        permission=rules(raw.get("permission", {}), home),
        restrictions=restrictions,
        options={**more, **given.get("options", {})},
    )


def _instructions(files: list[LoadedFile], home: str) -> tuple[Instruction, ...]:
    made: dict[str, Instruction] = {}
    for file in files:
        for given in file.value.get("instructions", []):
            pattern = home + given[1:] if given.startswith("~/") else given
            found = Instruction(pattern=pattern, root=_root(file, given), trusted=file.trusted)
            if pattern not in made or (file.trusted and made[pattern].root is not None):
                made[pattern] = found
    return tuple(made.values())


def _root(file: LoadedFile, pattern: str) -> str | None:
    """The folder that a pattern of a file must not leave; None if it may lead anywhere.

    Trusting the text of a project's file does not mean trusting links that come with the next
    pull; but a user who trusts a pattern that leads elsewhere wants that.
    """
    if file.root is None or not file.trusted:
        return file.reach
    return file.root if stays_inside(pattern, file.root) else None
