"""Every route of the server, by area."""

from kedge.server.routes import (
    asks,
    events,
    files,
    health,
    history,
    later,
    listing,
    messages,
    reverting,
    sessions,
    listing,
    messages,
    history,
    turns,
    vcs,
)
from kedge.server.routing import Route

_AREAS = (
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
    later,
)
ALL: list[Route] = [route for area in _AREAS for route in area.routes.all]
