"""Routes for permission requests and questions that runs wait for, and the users' replies."""

from typing import Any

import msgspec

from kedge.domain.errors import NotFound
from kedge.domain.permissions import AllowedPermission, PermissionReply, PermissionRequest
from kedge.domain.questions import QuestionRequest
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import TRUE, Response, json
from kedge.server.router import Routes, always

routes = Routes()


class ReplyBody(msgspec.Struct, frozen=True, kw_only=True):
    """A reply to a permission request."""

    reply: PermissionReply
    message: str | None = None
    """With a rejection: what the agent should do instead."""
    lasting: bool = False
    """With `always`: whether it lasts until it is revoked, instead of until the server stops."""


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A reply to a permission request, in the form of the older route."""

    response: PermissionReply
    lasting: bool = False
    """As in the other route."""


class AnswersBody(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen labels for each question, in the order of the questions."""

    answers: list[list[str]]


@routes.get("/permission", "permission.list", answer=list[PermissionRequest])
async def permissions(request: Request[NoQuery, NoBody]) -> Response:
    """The permission requests that sessions of a directory wait for, oldest first."""
    asks = request.backend.engine.asks
    return json(await asks.permissions(directory=request.directory))


@routes.post(
    "/permission/{requestID}/reply", "permission.reply", body=ReplyBody, answer=bool, grants=always
)
async def reply_permission(request: Request[NoQuery, ReplyBody]) -> Response:
    """Allow a request once or always, or reject it."""
    asks, body, id = request.backend.engine.asks, request.body, await _id(request, "per")
    await asks.reply_permission(id, body.reply, body.message, lasting=body.lasting)
    return TRUE


@routes.post(
    "/session/{sessionID}/permissions/{permissionID}",
    "permission.respond",
    body=ResponseBody,
    answer=bool,
    grants=always,
)
async def respond_permission(request: Request[NoQuery, ResponseBody]) -> Response:
    """Reply to a permission request: the older route."""
    id = request.id("per", "permissionID")
    session = await request.session()
    asks, body = request.backend.engine.asks, request.body
    await asks.reply_permission(id, body.response, session_id=session.id, lasting=body.lasting)
    return TRUE


@routes.get("/permission/allowed", "kedge.permission.allowed", answer=list[AllowedPermission])
async def allowed_permissions(request: Request[NoQuery, NoBody]) -> Response:
    """What was allowed with `always` in the project of the directory, and for how long."""
    project = (await request.known_place()).project
    return json(await request.backend.engine.asks.allowed(project.id))


@routes.delete(
    "/permission/allowed/{ruleID}", "kedge.permission.forget", answer=bool, grants=always
)
async def forget_permission(request: Request[NoQuery, NoBody]) -> Response:
    """Revoke a permission that was given with `always`."""
    id, project = request.path["ruleID"], (await request.known_place()).project
    if not await request.backend.engine.asks.forget_allowed(project.id, id=id):
        raise NotFound("Permission rule", id)
    return TRUE


@routes.get("/question", "question.list", answer=list[QuestionRequest])
async def questions(request: Request[NoQuery, NoBody]) -> Response:
    """The questions that sessions of a directory wait for, oldest first."""
    asks = request.backend.engine.asks
    return json(await asks.questions(directory=request.directory))


@routes.post(
    "/question/{requestID}/reply", "question.reply", body=AnswersBody, answer=bool, grants=always
)
async def reply_question(request: Request[NoQuery, AnswersBody]) -> Response:
    """Answer questions."""
    asks = request.backend.engine.asks
    await asks.reply_question(await _id(request, "que"), request.body.answers)
    return TRUE


@routes.post("/question/{requestID}/reject", "question.reject", answer=bool, grants=always)
async def reject_question(request: Request[NoQuery, NoBody]) -> Response:
    """Reject questions, which ends the turn."""
    await request.backend.engine.asks.reject_question(await _id(request, "que"))
    return TRUE


async def _id(request: Request[NoQuery, Any], prefix: str) -> str:
    """The id from the path, if clients may use its session."""
    id = request.id(prefix, "requestID")
    settings = request.backend.settings
    if settings.root is not None:
        place = await request.backend.engine.asks.directory_of(id)
        if place is not None:
            settings.check_root(place)
    return id
