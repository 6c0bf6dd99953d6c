"""Sessions: make, find, change and remove them."""

from kedge.domain.sessions import SessionInfo
from kedge.server.answers import Answer, json
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.routing import Routes

routes = Routes()


@routes.get("/session/{sessionID}", "session.get", answer=SessionInfo)
async def get_session(request: Request[NoQuery, NoBody]) -> Answer:
    """One session."""
    return json((await request.session()).info)
