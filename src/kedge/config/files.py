"""The configuration files of a directory: finds them, reads what counts of each, and merges
them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kedge.config.definitions import Definition, DefinitionFolder, definitions
from kedge.config.display import dotted
from kedge.config.file_reader import is_irregular, lies_below
from kedge.config.jsonc import KeyPath
from kedge.config.sources import Candidate, ConfigSource, open_source
from kedge.config.untrusted import AllowedConfig, limited
from kedge.config.validate import Mistake, check, check_models
from kedge.config.variables import Substitution
from kedge.domain.errors import ConfigInvalid

Json = dict[str, Any]

_EDITING = ("write", "edit", "patch", "multiedit", "apply_patch")


def normal(value: Json) -> Json:
    """A file's value in its current form: older spellings are rewritten."""
    made = dict(value)
    if modes := made.pop("mode", None):
        made["agent"] = merge(modes, made.get("agent", {}))
    if made.pop("autoshare", False) and "share" not in made:
        made["share"] = "auto"
    if "agent" in made:
        made["agent"] = {name: _normal_agent(agent) for name, agent in made["agent"].items()}
    return _with_tools(made)


def _normal_agent(value: Json) -> Json:
    made = dict(value)
    if (steps := made.pop("maxSteps", None)) is not None:
        made.setdefault("steps", steps)
    return _with_tools(made)


def _with_tools(value: Json) -> Json:
    """Switched tools become permissions; permissions that are written out take precedence."""
    if "tools" not in value and "permission" not in value:
        return value
    switched = {
        "edit" if tool in _EDITING else tool: "allow" if on else "deny"
        for tool, on in value.get("tools", {}).items()
    }
    written = value.get("permission", {})
    if isinstance(written, str):
        written = {"*": written}
    return {**value, "permission": merge(switched, written)}


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Merge two values: objects key by key, `instructions` appended; everything else is
    replaced."""
    made = dict(under)
    for key, value in over.items():
        below = made.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            made[key] = merge(below, value)
        elif key == "instructions" and isinstance(below, list) and isinstance(value, list):
            made[key] = list(dict.fromkeys([*below, *value]))
        else:
            made[key] = value
    return made


TrustCheck: TypeAlias = Callable[[str, str], bool]
"""Whether the file at a path is trusted with this digest of its content."""
Complain: TypeAlias = Callable[[ConfigInvalid], None]
"""Called for a file that cannot be read; unless it raises, the file is left out."""

_OF_THE_USER = (
    *("opencode/config.json", "opencode/opencode.json", "opencode/opencode.jsonc"),
    *("kedge/kedge.json", "kedge/kedge.jsonc"),
)
_OF_A_FOLDER = (
    *("opencode.json", "opencode.jsonc"),
    *(".opencode/opencode.json", ".opencode/opencode.jsonc"),
    *("kedge.json", "kedge.jsonc"),
)


SKILL = "skill"
"""The key of skills in the value of a file: they are read from Markdown files alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A configuration file, reduced to what counts of it."""

    path: str
    root: str | None
    """The worktree, for a file of a project; None for the user's own."""
    digest: str
    trusted: bool
    value: Json
    """In normal form."""
    written: Json
    """As it is in the file."""
    reach: str | None = None
    """The folder that a project's file applies to: untrusted, it can refer to files in it only."""
    strays: bool = False
    """It is a link out of its project and was not read."""
    problem: str | None = None
    """Why a Markdown file defines nothing."""
    irregular: bool = False
    """It is a pipe, a folder or a device and was not read: it contains no rules."""
    ignored: tuple[KeyPath, ...] = ()
    """Keys that count only if the file is trusted."""
    allowing: tuple[KeyPath, ...] = ()
    """Rules that allow something only if the file is trusted."""
    asking: tuple[KeyPath, ...] = ()
    """Rules that ask instead of denying only if the file is trusted."""
    odd: tuple[KeyPath, ...] = ()
    """Keys with a value that kedge does not know."""
    permission: Json | None = None
    """The permissions of an untrusted file, which are not in its value."""
    agents: Mapping[str, Json] | None = None
    """The permissions of its agents."""
    key_variables: tuple[str, ...] = ()
    """Variables from which its providers take values such as their key."""

    @property
    def was_read(self) -> bool:
        """Whether the path is a file of its project."""
        return not (self.strays or self.irregular or self.problem)


def nobody(path: str, digest: str) -> bool:
    """A `TrustCheck` that trusts no file."""
    return False


def refuse(problem: ConfigInvalid) -> None:
    """A `Complain` that raises every problem."""
    raise problem


def load_files(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    environ: Mapping[str, str],
    is_trusted: TrustCheck,
    complain: Complain = refuse,
) -> list[LoadedFile]:
    """The existing files in order of precedence: the last wins."""
    folder, root = os.path.realpath(directory), os.path.realpath(worktree)
    first = list(_loaded_of(candidates(folder, root, environ), environ, is_trusted, complain))
    trusted = merged(file for file in first if file.trusted)
    first += _skills_elsewhere(trusted, folder, root, environ, is_trusted)
    trusted = merged(file for file in first if file.trusted)
    return [file if file.trusted else _limited(file, trusted) for file in first]


def load_own_files(*, environ: Mapping[str, str], complain: Complain = refuse) -> list[LoadedFile]:
    """The user's own files, which apply to every directory."""
    places: list[ConfigPlace] = [Candidate(path, None) for path in own_places(environ)]
    places += own_folders(environ)
    return list(_loaded_of(places, environ, nobody, complain))


ConfigPlace: TypeAlias = Candidate | DefinitionFolder


def _loaded_of(
    places: Iterable[ConfigPlace],
    environ: Mapping[str, str],
    is_trusted: TrustCheck,
    complain: Complain,
) -> Iterator[LoadedFile]:
    for place in places:
        if isinstance(place, DefinitionFolder):
            yield from (_defined(found, environ, is_trusted) for found in definitions(place))
            continue
        try:
            file = _loaded(place, environ, is_trusted)
        except ConfigInvalid as problem:
            complain(problem)
        else:
            if file is not None:
                yield file


def merged(files: Iterable[LoadedFile]) -> Json:
    """The merged value of all files."""
    made: Json = {}
    for file in files:
        made = merge(made, file.value)
    return made


def home_of(environ: Mapping[str, str]) -> str:
    """The user's home directory."""
    return environ.get("HOME") or os.path.expanduser("~")


def config_home_of(environ: Mapping[str, str]) -> str:
    """The folder that contains the user's configuration folders."""
    named = environ.get("XDG_CONFIG_HOME", "")
    return named if os.path.isabs(named) else os.path.join(home_of(environ), ".config")


def own_places(environ: Mapping[str, str]) -> list[str]:
    """The possible paths of the user's own files, in order of precedence."""
    return [os.path.join(config_home_of(environ), name) for name in _OF_THE_USER]


def own_folders(environ: Mapping[str, str]) -> list[DefinitionFolder]:
    """The possible folders of the user's own definitions, in order of precedence."""
    home, config = home_of(environ), config_home_of(environ)
    named = environ.get("OPENCODE_CONFIG_DIR", "")
    places = [os.path.join(config, name) for name in ("opencode", "kedge")]
    places += [os.path.join(home, ".opencode"), *([named] if os.path.isabs(named) else [])]
    skills = [os.path.join(home, name, "skills") for name in _skill_folders(environ)]
    return [
        *(DefinitionFolder(path=path, is_of_skills=True) for path in skills),
        *(DefinitionFolder(path=path) for path in dict.fromkeys(places)),
    ]


def _skill_folders(environ: Mapping[str, str]) -> list[str]:
    """Folders of other programs whose skills count too."""

    def is_off(*names: str) -> bool:
        return any(environ.get(f"OPENCODE_DISABLE_{name}") in ("1", "true") for name in names)

    if is_off("EXTERNAL_SKILLS"):
        return []
    return [".agents"] if is_off("CLAUDE_CODE", "CLAUDE_CODE_SKILLS") else [".claude", ".agents"]


def candidates(directory: str, worktree: str, environ: Mapping[str, str]) -> Iterator[ConfigPlace]:
    """The possible paths of files, in order of precedence."""
    own = own_places(environ)
    yield from (Candidate(path, None) for path in own)
    own_definitions = own_folders(environ)
    yield from own_definitions
    known = {os.path.realpath(each.path) for each in own_definitions}
    folders = _folders(directory, worktree)
    for place in folders:
        skills = [os.path.join(place, name, "skills") for name in _skill_folders(environ)]
        for path in skills:
            if os.path.realpath(path) not in known:
                yield DefinitionFolder(path=path, root=folders[0], reach=place, is_of_skills=True)
        for name in _OF_A_FOLDER:
            path = os.path.join(place, name)
            # A user who works on their own configuration has it in both places.
            if path not in own:
                yield Candidate(path, folders[0], place)
        path = os.path.join(place, ".opencode")
        if os.path.realpath(path) not in known:
            yield DefinitionFolder(path=path, root=folders[0], reach=place)


def _skills_elsewhere(
    trusted: Json, directory: str, worktree: str, environ: Mapping[str, str], is_trusted: TrustCheck
) -> Iterator[LoadedFile]:
    """The skills in the folders that trusted files name."""
    for given in trusted.get("skills", {}).get("paths", []):
        path = home_of(environ) + given[1:] if given.startswith("~/") else given
        path = os.path.join(directory, path)
        is_inside = lies_below(path, worktree)
        root = worktree if is_inside else None
        folder = DefinitionFolder(path=path, root=root, reach=root, is_of_skills=True)
        yield from (_defined(found, environ, is_trusted) for found in definitions(folder))


def _folders(directory: str, worktree: str) -> list[str]:
    """The worktree, and every folder from there down to the directory."""
    folders = [directory]
    while folders[-1] != worktree and folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    # A directory outside of the worktree is unrelated to the folders above it.
    return folders[::-1] if folders[-1] == worktree else [directory]


def _loaded(
    place: Candidate, environ: Mapping[str, str], is_trusted: TrustCheck
) -> LoadedFile | None:
    if place.root is not None and os.path.lexists(place.path):
        strays = not lies_below(place.path, place.root)
        if strays or is_irregular(place.path):
            return LoadedFile(
                path=place.path,
                root=place.root,
                reach=place.reach,
                digest="",
                trusted=False,
                value={},
                written={},
                strays=strays,
                irregular=not strays,
            )
    source = open_source(place, home_of(environ))
    return None if source is None else _looked_at(source, environ, is_trusted)


def _looked_at(
    source: ConfigSource, environ: Mapping[str, str], is_trusted: TrustCheck
) -> LoadedFile:
    try:
        odd = check(source.value)
    except Mistake as mistake:
        raise source.invalid(mistake.path, mistake.why) from mistake
    digest = source.digest()
    trusted = source.root is None or is_trusted(source.path, digest)
    substitution = Substitution(source, environ, trusted=trusted)
    value = substitution.replaced(source.value)
    if left_out := {*substitution.ignored, *odd}:
        value = _without(value, left_out)
    try:
        check_models(value)
    except Mistake as mistake:
        raise source.invalid(mistake.path, mistake.why) from mistake
    return LoadedFile(
        path=source.path,
        root=source.root,
        reach=source.reach,
        digest=digest,
        trusted=trusted,
        value=_without(normal(value), {(SKILL,)}),
        written=source.value,
        ignored=tuple(substitution.ignored),
        odd=tuple(odd),
        key_variables=tuple(substitution.key_variables),
    )


def _defined(found: Definition, environ: Mapping[str, str], is_trusted: TrustCheck) -> LoadedFile:
    """A Markdown file, as a configuration file that says no more than it."""
    root = found.folder.root
    file = LoadedFile(
        path=found.path,
        root=root,
        reach=found.folder.reach,
        digest=found.digest,
        trusted=root is None,
        value={},
        written={},
        strays=found.strays,
        problem=found.problem,
    )
    value: Json = {found.kind: {found.name: found.value}}
    try:
        odd = () if found.problem else check(value)
        check_models(value)
    except Mistake as mistake:
        why = f"{dotted(mistake.path[2:])}: {mistake}" if mistake.path[2:] else str(mistake)
        file = replace(file, problem=why)
        odd = ()
    if file.problem:
        # It may have forbidden something, so its agent asks until it can be read.
        is_agent = found.kind == "agent" and found.name
        return replace(file, agents={found.name: {"*": "ask"}} if is_agent else None)
    return replace(
        file,
        trusted=root is None or is_trusted(found.path, found.digest),
        value=normal(_without(value, set(odd))),
        written=value,
        odd=tuple(odd),
    )


def _limited(file: LoadedFile, trusted: Json) -> LoadedFile:
    if file.problem or not file.was_read:
        return file
    assert file.reach is not None
    left: AllowedConfig = limited(file.value, trusted, file.reach)
    return replace(
        file,
        value=left.kept,
        ignored=(*file.ignored, *left.ignored),
        allowing=tuple(left.allowing),
        asking=tuple(left.asking),
        odd=(*file.odd, *left.odd),
        permission=left.permission,
        agents=left.agents,
    )


def _without(value: Any, paths: set[KeyPath], path: KeyPath = ()) -> Any:  # noqa: ANN401 - any JSON
    """A copy without some keys."""
    if isinstance(value, dict):
        items = [(key, (*path, key), item) for key, item in value.items()]
        return {key: _without(item, paths, at) for key, at, item in items if at not in paths}
    if isinstance(value, list):
        places = [((*path, n), item) for n, item in enumerate(value)]
        return [_without(item, paths, at) for at, item in places if at not in paths]
    return value
