"""A project as on the wire; finding out which project a directory belongs to is not done here."""

from kedge.domain.values import Value


class ProjectIcon(Value, frozen=True, kw_only=True):
    """How clients draw a project."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectCommands(Value, frozen=True, kw_only=True):
    """Commands that clients may run in a project."""

    start: str | None = None


class ProjectTime(Value, frozen=True, kw_only=True):
    """When things happened to a project, in milliseconds since the epoch."""

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
