"""Every route of the server, by area."""

from kedge.server.routes import health, sessions
from kedge.server.routing import Route

ALL: list[Route] = [route for area in (health, sessions) for route in area.routes.all]
