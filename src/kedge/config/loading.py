"""The configuration of a directory, from all its files."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kedge.config.files import (
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
from kedge.config.notices import notices
from kedge.config.rules import rules
from kedge.config.values import AgentConfig, Config, Instruction
from kedge.domain.errors import ConfigInvalid

Json = dict[str, Any]

_NOT_WRITTEN = {
    *("permission", "restrictions", "agent", "instructions", "notices", "files", "raw"),
    "key_variables",
}
"""Fields that are made here, whatever a file may have under their names."""
_OF_AGENTS = {field.name for field in msgspec.structs.fields(AgentConfig)}
_ONLY_SHOWN = {"mode", "hidden", "color"}


def load_config(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    is_trusted: TrustCheck = nobody,
) -> Config:
    """The configuration of a directory. Reads files: a coroutine calls it in a thread."""
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
    """As `load_config`, of the files that can be read; the notices tell of the others.

    To be shown, not to work by: a file that is left out may forbid something.
    """

    def files(complain: Complain) -> list[LoadedFile]:
        return load_files(
            directory, worktree, environ=environ, is_trusted=is_trusted, complain=complain
        )

    return _readable(files, home_of(environ))


def load_own_config(environ: Mapping[str, str]) -> Config:
    """What the user's own files say, of those that can be read; to be shown, not to work by."""

    def files(complain: Complain) -> list[LoadedFile]:
        return load_own_files(environ=environ, complain=complain)

    return _readable(files, home_of(environ))


def _readable(files: Callable[[Complain], list[LoadedFile]], home: str) -> Config:
    problems: list[ConfigInvalid] = []
    config = config_of(files(problems.append), home)
    told = (f"{problem}: the whole file is ignored" for problem in problems)
    return msgspec.structs.replace(config, notices=(*config.notices, *told))


def config_of(files: list[LoadedFile], home: str) -> Config:
    """What files come to together."""
    raw = merged(files)
    known = {name: value for name, value in raw.items() if name not in _NOT_WRITTEN}
    return msgspec.structs.replace(
        msgspec.convert(known, Config),
        permission=rules(raw.get("permission", {}), home),
        restrictions=tuple(rules(file.permission, home) for file in files if file.permission),
        agent=_agents(raw.get("agent", {}), files, home),
        instructions=_instructions(files, home),
        key_variables=tuple(dict.fromkeys(name for file in files for name in file.key_variables)),
        notices=tuple(notice for file in files for notice in notices(file)),
        files=tuple(file.path for file in files if file.was_read),
        raw=raw,
    )


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
    # What an agent has no name for is meant for its model.
    more = {key: value for key, value in given.items() if key not in _OF_AGENTS | _ONLY_SHOWN}
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
    """Where a pattern of a file may lead.

    Trust in the words of a project's file is no trust in links that come with the next pull; but
    who trusts words that lead elsewhere wants that.
    """
    if file.root is None or not file.trusted:
        return file.reach
    return file.root if stays_inside(pattern, file.root) else None
