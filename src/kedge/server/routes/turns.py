"""Routes for turns: prompts, a user's own shell commands, and aborting either."""

from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from kedge.agent import PromptOptions
from kedge.domain import wire
from kedge.domain.errors import SessionNotFound, TooLarge
from kedge.domain.messages import MessageModel, MessageWithParts, OutputFormat
from kedge.domain.parts import FilePartSource, PartTime, SourceText, SubtaskModel
from kedge.domain.values import Value, plain
from kedge.engine.session import Session
from kedge.server.requests import NoBody, NoQuery, Request, checked_id
from kedge.server.responses import NOTHING, TRUE, Response, json
from kedge.server.router import Routes, always

routes = Routes()

MOST_PARTS = 1000
"""How many parts a prompt may have: each is stored and sent as an event."""


class TextInput(Value, tag_field="type", tag="text", frozen=True, kw_only=True):
    """Text from the user."""

    id: str | None = None
    text: str
    synthetic: bool | None = None
    ignored: bool | None = None
    time: PartTime | None = None
    metadata: dict[str, Any] | None = None


class FileInput(Value, tag_field="type", tag="file", frozen=True, kw_only=True):
    """A file to attach: a `file:` or `data:` URL."""

    id: str | None = None
    mime: str
    filename: str | None = None
    url: str
    source: FilePartSource | None = None


class AgentInput(Value, tag_field="type", tag="agent", frozen=True, kw_only=True):
    """An agent that the prompt mentions."""

    id: str | None = None
    name: str
    source: SourceText | None = None


class SubtaskInput(Value, tag_field="type", tag="subtask", frozen=True, kw_only=True):
    """A task that runs in its own session."""

    id: str | None = None
    prompt: str
    description: str
    agent: str
    model: SubtaskModel | None = None
    command: str | None = None


class PromptBody(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt; the configuration provides what it leaves out."""

    EXAMPLE: ClassVar = {"parts": [{"type": "text", "text": "..."}]}
    """Shown to a client that sends `{"text": ...}` or a plain string."""

    parts: list[TextInput | FileInput | AgentInput | SubtaskInput]
    messageID: str | None = None
    model: MessageModel | None = None
    agent: str | None = None
    noReply: bool | None = None
    """Only store the prompt."""
    tools: dict[str, bool] | None = None
    system: str | None = None
    variant: str | None = None
    format: OutputFormat | None = None

    def options(self) -> PromptOptions:
        """The options of the prompt."""
        return PromptOptions(
            agent=self.agent,
            model=self.model,
            variant=self.variant,
            system=self.system,
            tools=self.tools,
            format=self.format,
            no_reply=bool(self.noReply),
            message_id=_message_id(self.messageID),
        )

    def prompt(self) -> list[dict[str, Any]]:
        """The parts, with the ids that the client gave them."""
        if len(self.parts) > MOST_PARTS:
            raise TooLarge(f"a prompt may have at most {MOST_PARTS} parts")
        for at, part in enumerate(self.parts):
            if part.id is not None:
                checked_id("prt", part.id, "parts", at, "id")
        return [plain(part) for part in self.parts]


class ShellBody(msgspec.Struct, frozen=True, kw_only=True):
    """A shell command of the user's own."""

    agent: str
    command: str
    model: MessageModel | None = None
    messageID: str | None = None


@routes.post(
    "/session/{sessionID}/message",
    "session.prompt",
    body=PromptBody,
    body_may_be_large=True,
    answer=MessageWithParts,
    grants=always,
)
async def prompt(request: Request[NoQuery, PromptBody]) -> Response:
    """Send a prompt and wait for the last message of the answer.

    A client that disconnects does not stop the turn. A prompt whose `messageID` already exists is
    not run again: the response is the result it had.
    """
    parts, options = request.body.prompt(), request.body.options()
    session = await _session(request)
    answer = await request.backend.agent.prompt(session, parts, **options)
    # Some clients stop listening to events as soon as they have the answer.
    await request.backend.streams.flushed()
    return _uncompressed(answer)


@routes.post(
    "/session/{sessionID}/prompt_async",
    "session.prompt_async",
    body=PromptBody,
    body_may_be_large=True,
    status=204,
    grants=always,
)
async def prompt_async(request: Request[NoQuery, PromptBody]) -> Response:
    """Send a prompt; the answer arrives as events."""
    parts, options = request.body.prompt(), request.body.options()
    await request.backend.agent.submit(await _session(request), parts, **options)
    return NOTHING


@routes.post(
    "/session/{sessionID}/shell",
    "session.shell",
    body=ShellBody,
    answer=MessageWithParts,
    grants=always,
)
async def shell(request: Request[NoQuery, ShellBody]) -> Response:
    """Run a user's own shell command and wait for its end."""
    body = request.body
    answer = await request.backend.agent.shell(
        await request.session(),
        body.command,
        agent=body.agent,
        model=body.model,
        message_id=_message_id(body.messageID),
    )
    await request.backend.streams.flushed()
    return json(answer)


class SummarizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """The model that a conversation is compacted for."""

    providerID: str
    modelID: str
    auto: bool | None = None
    """Whether the agent goes on working afterwards."""


@routes.post(
    "/session/{sessionID}/summarize",
    "session.summarize",
    body=SummarizeBody,
    answer=bool,
    grants=always,
)
async def summarize(request: Request[NoQuery, SummarizeBody]) -> Response:
    """Compact the conversation of a session; responds when that is done.

    While the session is busy, the current run does it. A summary that failed has the error.
    """
    body = request.body
    model = MessageModel(providerID=body.providerID, modelID=body.modelID)
    await request.backend.agent.summarize(
        await request.session(), model=model, auto=bool(body.auto)
    )
    await request.backend.streams.flushed()
    return TRUE


@routes.post("/session/{sessionID}/abort", "session.abort", answer=bool)
async def abort(request: Request[NoQuery, NoBody]) -> Response:
    """Abort what runs in a session and its subtasks; responds when all are idle, or after ten
    seconds."""
    # A session that does not exist is not running, which is the wanted result.
    with suppress(SessionNotFound):
        await request.backend.agent.abort(await request.session())
    return TRUE


@routes.post(
    "/experimental/session/{sessionID}/background",
    "experimental.session.background",
    answer=bool,
)
async def send_to_background(request: Request[NoQuery, NoBody]) -> Response:
    """Let the subtasks that a session waits for go on in the background; responds with whether
    there was one: `false` unless background subagents are on."""
    session = await request.session()
    return json(await request.backend.agent.subagents.send_back(session.id))


async def _session(request: Request[NoQuery, PromptBody]) -> Session:
    """The session of a prompt, if clients may use its attachments."""
    session = await request.session()
    for part in request.body.parts:
        if isinstance(part, FileInput):
            request.backend.settings.check_attachment(part.url, session.info.directory)
    return session


def _message_id(given: str | None) -> str | None:
    return None if given is None else checked_id("msg", given, "messageID")


def _uncompressed(answer: MessageWithParts) -> Response:
    return Response(wire.encode(answer).encode(), may_be_compressed=False)
