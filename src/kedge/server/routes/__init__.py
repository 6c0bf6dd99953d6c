"""All routes of the server, by area."""

from kedge.server.router import Route
from kedge.server.routes import (
    agents,
    asks,
    commands,
    events,
    files,
    history,
    instance,
    messages,
    models,
    not_implemented,
    overview,
    projects,
    reverts,
    session_lists,
    sessions,
    turns,
    v2,
    vcs,
)

_AREAS = (
    overview,
    sessions,
    session_lists,
    messages,
    history,
    turns,
    commands,
    reverts,
    asks,
    events,
    files,
    vcs,
    models,
    agents,
    instance,
    projects,
    v2,
    not_implemented,
)
ALL: list[Route] = [route for area in _AREAS for route in area.routes.all]
