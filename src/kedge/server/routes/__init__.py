"""Every route of the server, by area."""

from kedge.server.routes import (
    agents,
    api,
    asks,
    config,
    events,
    files,
    health,
    history,
    instance,
    later,
    listing,
    messages,
    models,
    overview,
    projects,
    reverting,
    sessions,
    turns,
    vcs,
)
from kedge.server.routing import Route

_AREAS = (
    overview,
    health,
    sessions,
    listing,
    messages,
    history,
    turns,
    reverting,
    asks,
    events,
    files,
    vcs,
    config,
    models,
    agents,
    instance,
    projects,
    api,
    later,
)
ALL: list[Route] = [route for area in _AREAS for route in area.routes.all]
