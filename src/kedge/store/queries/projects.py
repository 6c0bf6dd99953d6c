"""Projects: which project a folder belongs to, and every identity the project ever had.

The folder decides first: a known folder keeps its sessions in one list whatever happens to its git
history.
"""

from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvariantBroken
from kedge.domain.events import ProjectUpdated
from kedge.domain.projects import Project, ProjectCommands, ProjectIcon, ProjectTime
from kedge.store.queries.sessions import move_worktree_sessions
from kedge.store.transaction import Emit, Script, row, rows, run


@dataclass(frozen=True, slots=True)
class KnownWorktree:
    """What was found out about a worktree when it was last inspected."""

    project_id: str
    fingerprint: str
    identity: str


def place_worktree(
    path: str,
    identity: str,
    vcs: str | None,
    now: int,
    *,
    fingerprint: str = "",
    related: bool = True,
) -> Script[Project]:
    """The project of a worktree, given its current identity.

    An identity that is new becomes another name of the folder's project if it is `related` to the
    one before, as when history was rewritten; otherwise another repository has taken its place. If
    the identity is that of another project, the folder and its sessions move there, and a related
    project without a folder left passes its names on.
    """
    yield from row("project_lock")
    known = yield from row("worktree_get", path=path)
    named = yield from row("project_by_alias", alias=identity)
    home = {"path": path, "fingerprint": fingerprint, "identity": identity, "now": now}
    id = named[0] if named else identity
    if known is not None and named is None and related:
        id = known[0]
    elif known is not None and known[0] != id:
        yield from run("worktree_put", project_id=id, **home)
        yield from _move(path, known[0], id, related)
    yield from run("alias_add", alias=identity, project_id=id)
    yield from run("worktree_put", project_id=id, **home)
    return (yield from _record(id, path, vcs, now))


def known_worktree(path: str) -> Script[KnownWorktree | None]:
    """What is known of a worktree."""
    found = yield from row("worktree_get", path=path)
    return KnownWorktree(*found) if found else None


def project_of(worktree: str) -> Script[Project | None]:
    """The project a worktree is known to belong to."""
    known = yield from known_worktree(worktree)
    return None if known is None else (yield from get_project(known.project_id))


def get_project(id: str) -> Script[Project]:
    """A project by its id."""
    found = yield from row("project_get", id=id)
    if found is None:
        raise InvariantBroken(f"project {id} has no row")
    return wire.decode(found[0], Project)


def find_project(id: str) -> Script[Project | None]:
    """A project by any name that it ever had."""
    found = yield from row("project_by_alias", alias=id)
    return None if found is None else (yield from get_project(found[0]))


def update_project(
    id: str,
    now: int,
    *,
    name: str | None = None,
    icon: ProjectIcon | None = None,
    commands: ProjectCommands | None = None,
    initialized: int | None = None,
) -> Script[Project | None]:
    """Change a project's user settings; a None leaves the field as it is."""
    yield from row("project_lock")
    before = yield from find_project(id)
    if before is None:
        return None
    said = {"name": name, "icon": icon, "commands": commands}
    project = msgspec.structs.replace(
        before, **{key: value for key, value in said.items() if value is not None}
    )
    if project != before or initialized is not None:
        since = before.time.initialized if initialized is None else initialized
        time = msgspec.structs.replace(project.time, updated=now, initialized=since)
        project = msgspec.structs.replace(project, time=time)
        yield from _save(project)
    return project


def all_projects(after: str, limit: int) -> Script[list[Project]]:
    """Projects by id."""
    found = yield from rows("project_all", after=after, limit=limit)
    return [wire.decode(data, Project) for (data,) in found]


def project_aliases(id: str) -> Script[list[str]]:
    """Every identity the project ever had."""
    return [alias for (alias,) in (yield from rows("alias_list", project_id=id))]


def _move(path: str, from_project: str, to_project: str, related: bool) -> Script[None]:
    # The folder has moved already, and so is locked: sessions made until then are seen here, later
    # ones see the move.
    yield from move_worktree_sessions(path, from_project, to_project)
    left = yield from rows("worktree_list", project_id=from_project)
    if left:
        old = yield from get_project(from_project)
        yield from _save(_with_worktrees(old, [path for (path,) in left]))
    elif related:
        yield from run("alias_hand_on", from_project=from_project, to_project=to_project)


def _record(id: str, path: str, vcs: str | None, now: int) -> Script[Project]:
    worktrees = [each for (each,) in (yield from rows("worktree_list", project_id=id))]
    found = yield from row("project_get", id=id)
    if found is None:
        time = ProjectTime(created=now, updated=now)
        before = None
        project = Project(id=id, worktree=path, vcs=vcs, time=time, sandboxes=[])
    else:
        before = wire.decode(found[0], Project)
        project = msgspec.structs.replace(before, vcs=vcs or before.vcs)
    project = _with_worktrees(project, worktrees)
    if project != before:
        time = msgspec.structs.replace(project.time, updated=now)
        project = msgspec.structs.replace(project, time=time)
        yield from _save(project)
    return project


def _with_worktrees(project: Project, worktrees: list[str]) -> Project:
    main = project.worktree if project.worktree in worktrees else worktrees[0]
    others = [each for each in worktrees if each != main]
    return msgspec.structs.replace(project, worktree=main, sandboxes=others)


def _save(project: Project) -> Script[None]:
    yield from run("project_put", id=project.id, data=wire.encode(project))
    event = ProjectUpdated(**{name: getattr(project, name) for name in project.__struct_fields__})
    entity = f"project:{project.id}"
    yield Emit(event.type, wire.encode(event), entity, None, project.id, project.worktree)
