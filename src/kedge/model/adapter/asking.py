"""A request of kedge in pydantic-ai's words."""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from kedge.domain.providers import ModelInfo
from kedge.model.endpoint import Protocol
from kedge.model.port import (
    AssistantTurn,
    Media,
    ModelRequest,
    Reasoning,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
    UserTurn,
)

CallIds: TypeAlias = Callable[[str], str]

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_KINDS = {"image": "image", "audio": "audio", "video": "video", "application/pdf": "pdf"}


def messages(request: ModelRequest, info: ModelInfo, protocol: Protocol) -> list[ModelMessage]:
    """The conversation, with the system text in front."""
    ids = _clean_id if protocol == "anthropic" else str
    system = _system_parts(request, protocol)
    said: list[ModelMessage] = []
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            parts = [*system, *_user_parts(turn, info, ids)]
            system = []
            if parts:
                said.append(TheirRequest(parts=parts))
        elif answer := list(_answer_parts(turn, info, ids)):
            said.append(ModelResponse(parts=answer))
    return [TheirRequest(parts=system), *said] if system else said


def _system_parts(request: ModelRequest, protocol: Protocol) -> list[ModelRequestPart]:
    texts = [text for text in request.system if text]
    if protocol == "chat" and texts:
        # The templates of many open models allow one system message and no more.
        texts = ["\n\n".join(texts)]
    return [SystemPromptPart(text) for text in texts]


def parameters(request: ModelRequest) -> ModelRequestParameters:
    """The tools, with their schemas as they are."""
    return ModelRequestParameters(function_tools=[_tool(spec) for spec in request.tools])


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=dict(spec.parameters),
        strict=False,
    )


def _user_parts(turn: UserTurn, info: ModelInfo, ids: CallIds) -> Iterator[ModelRequestPart]:
    # Providers want the results right after the calls, before anything a person said.
    for item in turn.content:
        if isinstance(item, ToolResult):
            yield _result(item, info, ids)
    said = [
        _content(item, info)
        for item in turn.content
        if isinstance(item, Media) or (isinstance(item, Text) and item.text)
    ]
    if len(said) == 1 and isinstance(said[0], str):
        yield UserPromptPart(content=said[0])
    elif said:
        yield UserPromptPart(content=said)


def _result(result: ToolResult, info: ModelInfo, ids: CallIds) -> ToolReturnPart[Any]:
    shown = [_content(media, info) for media in result.media]
    return ToolReturnPart(
        tool_name=result.name,
        tool_call_id=ids(result.call_id),
        content=[result.output, *shown] if shown else result.output,
        outcome="failed" if result.is_error else "success",
    )


def _content(item: Text | Media, info: ModelInfo) -> UserContent:
    if isinstance(item, Text):
        return item.text
    kind = _KINDS.get(item.mime) or _KINDS.get(item.mime.partition("/")[0])
    if kind is None or not getattr(info.capabilities.input, kind):
        name = item.filename or "a file"
        return (
            f"[{name} ({item.mime}) was left out: {info.name} does not take "
            f"{kind or 'such'} input. Tell the person.]"
        )
    return BinaryContent(data=item.data, media_type=item.mime)


def _answer_parts(
    turn: AssistantTurn, info: ModelInfo, ids: CallIds
) -> Iterator[ModelResponsePart]:
    own = turn.model == f"{info.providerID}/{info.id}"
    for item in turn.content:
        if isinstance(item, Text):
            if item.text:
                yield TextPart(item.text)
        elif isinstance(item, ToolUse):
            yield ToolCallPart(
                item.name,
                dict(item.input),
                ids(item.call_id),
                **(_origin(item.metadata) if own and item.metadata else {}),
            )
        elif own and item.metadata:
            # Without what the provider put on it, a thought is of no use to it.
            yield _thought(item)


def _thought(thought: Reasoning) -> ThinkingPart:
    metadata = thought.metadata or {}
    return ThinkingPart(
        thought.text,
        id=metadata.get("id"),
        signature=metadata.get("signature"),
        **_origin(metadata),
    )


def _origin(metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "provider_name": metadata.get("provider"),
        "provider_details": metadata.get("details"),
    }


def _clean_id(call_id: str) -> str:
    return _NOT_IN_IDS.sub("_", call_id)
