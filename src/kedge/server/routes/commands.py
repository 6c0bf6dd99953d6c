"""Routes that run commands: named prompts with arguments."""

from functools import partial

import msgspec

from kedge.agent.commands import INIT
from kedge.domain.errors import TooLarge
from kedge.domain.messages import Answer, MessageModel, MessageWithParts
from kedge.domain.values import plain
from kedge.server.requests import NoQuery, Request, checked_id
from kedge.server.responses import TRUE, Response, json
from kedge.server.router import Routes, always
from kedge.server.routes.turns import MOST_PARTS, FileInput

routes = Routes()


class CommandBody(msgspec.Struct, frozen=True, kw_only=True):
    """A command and its arguments."""

    command: str
    arguments: str
    agent: str | None = None
    model: str | None = None
    """The model, as `provider/model`."""
    variant: str | None = None
    messageID: str | None = None
    parts: list[FileInput] = []


class InitBody(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers the command `init`, and the id of its prompt."""

    modelID: str
    providerID: str
    messageID: str


@routes.post(
    "/session/{sessionID}/command",
    "session.command",
    body=CommandBody,
    answer=MessageWithParts,
    grants=always,
)
async def command(request: Request[NoQuery, CommandBody]) -> Response:
    """Run a command and wait for the answer."""
    body, backend = request.body, request.backend
    session = await request.session()
    if len(body.parts) > MOST_PARTS:
        raise TooLarge(f"a prompt may have at most {MOST_PARTS} parts")
    for at, part in enumerate(body.parts):
        if part.id is not None:
            checked_id("prt", part.id, "parts", at, "id")
    id = body.messageID
    answer: Answer = await backend.agent.command(
        session,
        body.command,
        body.arguments,
        parts=[plain(part) for part in body.parts],
        may_attach=partial(backend.settings.check_attachment, directory=session.info.directory),
        agent=body.agent,
        model=body.model,
        variant=body.variant,
        message_id=None if id is None else checked_id("msg", id, "messageID"),
    )
    await backend.streams.flushed()
    return json(answer)


@routes.post("/session/{sessionID}/init", "session.init", body=InitBody, answer=bool, grants=always)
async def init(request: Request[NoQuery, InitBody]) -> Response:
    """Write the instructions for agents in the project, and wait until that is done."""
    body = request.body
    await request.backend.agent.command(
        await request.session(),
        INIT,
        model=MessageModel(providerID=body.providerID, modelID=body.modelID),
        message_id=checked_id("msg", body.messageID, "messageID"),
    )
    await request.backend.streams.flushed()
    return TRUE
