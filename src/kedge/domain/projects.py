"""Projects as on the wire; which project a directory belongs to is decided elsewhere."""

from kedge.domain.values import Value


class ProjectIcon(Value, frozen=True, kw_only=True):
    """A project's icon in clients."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectCommands(Value, frozen=True, kw_only=True):
    """Commands that clients may run in a project."""

    start: str | None = None


class ProjectTime(Value, frozen=True, kw_only=True):
    """Timestamps of a project, in milliseconds since the epoch."""

    created: int
    updated: int
    initialized: int | None = None


class Project(Value, frozen=True, kw_only=True):
    """A root folder, git or not, with a stable id."""

    id: str
    worktree: str
    vcs: str | None = None
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None
    time: ProjectTime
    sandboxes: list[str]
