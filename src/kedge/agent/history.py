"""What the model is told of the conversation so far."""

import re
from collections.abc import Collection, Iterator, Sequence

from kedge.agent.tools.images import data_of, mime_of
from kedge.domain.failures import is_not_run
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.parts import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)
from kedge.model.port import (
    AssistantTurn,
    Media,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    UserTurn,
)

_SPELLED_OUT = ("text/", "application/x-directory")
"""Attachments whose content stands in text parts beside them."""

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64

NO_WORDS = (Text(text="(There are no words in this message.)"),)
"""What stands for a prompt with nothing in it: between two answers there must be something."""

NOT_RUN = "(This was not done: the process ended before it began, and it was not asked again.)"
"""What stands for the answer to a prompt that nobody ran."""

INTERRUPTED = "The tool was interrupted before it was done."


def turns_of(
    messages: Sequence[MessageWithParts], prompts: Collection[str] = ()
) -> tuple[UserTurn | AssistantTurn, ...]:
    """The conversation as models know it: people and tools on one side, the model on the other.

    `prompts` are the messages that are being answered.
    """
    turns: list[UserTurn | AssistantTurn] = []
    names = _CallNames()
    for message in _in_order(messages, prompts):
        if isinstance(message.info, AssistantMessage):
            said, results = _of_model(message.parts, names)
            error = message.info.error
            if error is not None and is_not_run(error):
                # Else the model would do what was asked then with what is asked now.
                said = (Text(text=NOT_RUN),)
            if said:
                model = f"{message.info.providerID}/{message.info.modelID}"
                turns.append(AssistantTurn(content=said, model=model))
            heard: tuple[Text | Media | ToolResult, ...] = results
        else:
            heard = tuple(_of_person(message.parts, is_new=message.info.id in prompts))
        if heard:
            _hear(turns, heard)
        elif isinstance(message.info, UserMessage):
            # Else the model would be asked to answer itself.
            _hear(turns, NO_WORDS)
    return tuple(turns)


def _in_order(
    messages: Sequence[MessageWithParts], prompts: Collection[str]
) -> Iterator[MessageWithParts]:
    """A prompt that came while another one was answered stands behind that answer, and not before
    words that were said without knowing it."""
    places = {message.info.id: place for place, message in enumerate(messages)}
    held: list[MessageWithParts] = []
    for place, message in enumerate(messages):
        if not isinstance(message.info, AssistantMessage):
            held.append(message)
            continue
        answered = places.get(message.info.parentID, place)
        # What is being answered now has waited longer than for an answer that is none of its own.
        waiting = () if message.info.parentID in prompts else prompts
        later = []
        for each in held:
            if places[each.info.id] > answered or each.info.id in waiting:
                later.append(each)
            else:
                yield each
        held = later
        yield message
    yield from held


def _hear(
    turns: list[UserTurn | AssistantTurn], heard: tuple[Text | Media | ToolResult, ...]
) -> None:
    """What comes between two answers of the model is one turn, whoever said it."""
    if turns and isinstance(last := turns[-1], UserTurn):
        if heard is not NO_WORDS:
            before = () if last.content is NO_WORDS else last.content
            turns[-1] = UserTurn(content=before + heard)
    else:
        turns.append(UserTurn(content=heard))


def _of_person(parts: Sequence[Part], *, is_new: bool) -> Iterator[Text | Media]:
    for part in parts:
        match part:
            case TextPart(text=text, ignored=ignored) if text.strip() and not ignored:
                yield Text(text=text, is_prompt=is_new and not part.synthetic)
            case FilePart(mime=mime) if not mime.startswith(_SPELLED_OUT):
                media = media_of(part)
                yield media or Text(text=f"[{part.filename or mime}: it could not be read]")


class _CallNames:
    """Names of calls as every provider takes them, whichever model made them up."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def of(self, part: ToolPart) -> tuple[str, str]:
        """The id of a call, which no other of the conversation has, and the name of its tool."""
        id = part.callID
        # Some servers number the calls of each answer anew.
        while id in self._given or not id:
            id = f"{part.callID or 'call'}_{len(self._given)}"
        self._given.add(id)
        return id, _ODD.sub("_", part.tool)[:_LONGEST_NAME] or "invalid"


def _of_model(
    parts: Sequence[Part], names: _CallNames
) -> tuple[tuple[Text | Reasoning | ToolUse, ...], tuple[ToolResult, ...]]:
    said: list[Text | Reasoning | ToolUse] = []
    results: list[ToolResult] = []
    for part in parts:
        match part:
            case TextPart(text=text) if text.strip():
                said.append(Text(text=text))
            case ReasoningPart(text=text, metadata=metadata) if text or metadata:
                said.append(Reasoning(text=text, metadata=metadata))
            case ToolPart(state=state):
                id, name = names.of(part)
                said.append(
                    ToolUse(call_id=id, name=name, input=state.input, metadata=part.metadata)
                )
                results.append(_result(part, id, name))
    if not results and not any(isinstance(each, Text) for each in said):
        # Providers refuse a thought that nothing follows.
        return (), ()
    return tuple(said), tuple(results)


def _result(part: ToolPart, id: str, name: str) -> ToolResult:
    state = part.state
    if isinstance(state, ToolCompleted):
        found = (media_of(each) for each in state.attachments or ())
        return ToolResult(
            call_id=id,
            name=name,
            output=state.output,
            media=tuple(each for each in found if each is not None),
        )
    error = state.error if isinstance(state, ToolError) else INTERRUPTED
    return ToolResult(call_id=id, name=name, output=error, is_error=True)


def media_of(part: FilePart) -> Media | None:
    """What an attachment holds, if it carries its content with it."""
    data = data_of(part.url)
    if data is None or mime_of(data) is None:
        return None  # whatever it is called, no provider takes it
    return Media(mime=part.mime, data=data, filename=part.filename)
