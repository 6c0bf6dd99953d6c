"""Routes for projects: the folders that sessions worked in, and their names and icons."""

import msgspec

from kedge.domain.errors import ProjectNotFound
from kedge.domain.projects import Project, ProjectCommands, ProjectIcon
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes, always

routes = Routes()


class ProjectPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a project; absent fields stay unchanged."""

    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


class ProjectDirectory(msgspec.Struct, frozen=True):
    """A checkout of a project."""

    directory: str


@routes.get("/project", "project.list", answer=list[Project])
async def list_projects(request: Request[NoQuery, NoBody]) -> Response:
    """All projects in which a session has worked."""
    settings = request.backend.settings
    found = await request.backend.engine.projects.list()
    return json([each for each in found if settings.allows(each.worktree)])


@routes.get("/project/current", "project.current", answer=Project)
async def current_project(request: Request[NoQuery, NoBody]) -> Response:
    """The project of the directory."""
    return json((await request.known_place()).project)


@routes.patch(
    "/project/{projectID}", "project.update", body=ProjectPatch, answer=Project, grants=always
)
async def update_project(request: Request[NoQuery, ProjectPatch]) -> Response:
    """Change a project's name, icon and start command."""
    said, projects = request.body, request.backend.engine.projects
    project = await projects.get(request.path["projectID"])
    request.backend.settings.check_root(project.worktree)
    changed = await projects.update(
        project.id, name=said.name, icon=said.icon, commands=said.commands
    )
    return json(changed)


@routes.get(
    "/project/{projectID}/directories", "project.directories", answer=list[ProjectDirectory]
)
async def project_directories(request: Request[NoQuery, NoBody]) -> Response:
    """The checkouts of a project, the main one first; empty if there is no such project."""
    try:
        project = await request.backend.engine.projects.get(request.path["projectID"])
    except ProjectNotFound:
        return json([])
    every = (project.worktree, *project.sandboxes)
    settings = request.backend.settings
    return json([ProjectDirectory(each) for each in every if settings.allows(each)])
