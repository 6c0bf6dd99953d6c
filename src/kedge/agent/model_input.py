"""The conversation so far, as the messages that are sent to the model.

The form of a message depends only on what is stored: providers cache a request as long as it begins
with the same bytes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kedge.agent.output_limit import limit_noted, shortened
from kedge.agent.tools.bash import OWN_COMMAND
from kedge.agent.tools.images import data_of, mime_of
from kedge.domain.conversation import PlacedMessage, PromptState, Summarized
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import (
    CompactionPart,
    FilePart,
    Part,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)
from kedge.domain.wire_errors import Failure, is_aborted, is_not_run
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
"""Attachments whose content is in text parts beside them."""

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64

NO_WORDS = (Text(text="(There are no words in this message.)"),)
"""Stands for an empty prompt: there must be something between two answers."""

NOT_RUN = "(This was not done: the process ended before it began, and it was not asked again.)"
"""The answer to a prompt that was not run."""

NOT_ANSWERED = "(This was not answered.)"
"""The answer to a prompt without a stored one."""

NO_ANSWER = "(There was no answer.)"
"""An answer without text and calls."""

INTERRUPTED_BEFORE = "(Interrupted before an answer.)"
INTERRUPTED_HERE = "(Interrupted here: the answer was not finished.)"
FAILED_BEFORE = "(Failed before an answer: {})"
FAILED_HERE = "(Failed here, before the answer was finished: {})"

SUMMARY_ASKED = "What did we do so far?"
"""Stands for a compaction, before its summary."""

PRUNED = "[Old tool result content cleared]"
"""Stands for the output of a call that was pruned."""

_UNDONE = "[What this call changed in files was undone later.]"
_UNDONE_IN_PART = "[Some of what this call changed in files was undone later.]"

INTERRUPTED = "The tool was interrupted before it was done."

_LONGEST_REASON = 200
_SECRET = re.compile(r"(?=\S*\d)\S{20,}|\S+://\S+")
"""What may be a key, or a URL with one in it."""

_READ_WITH_THE_NEXT = (PromptState.NOTE, PromptState.JOINED)

_MESSAGE_OVERHEAD = 1024
"""The approximate size of a message beside its text, in bytes."""

START = -3
"""Before all messages, and before a summary that is put before the first of them."""

ModelTurn = UserTurn | AssistantTurn


@dataclass(frozen=True, slots=True)
class _End:
    """A position where a conversation can be cut, with its state there."""

    pos: int
    turns: int
    last: ModelTurn | None
    calls: int
    unsaid: AssistantTurn | None
    asked: Mapping[str, tuple[int, tuple[int, ...]]]
    size: int


class Conversation:
    """A conversation in the form of models: users and tools on one side, the model on the other.

    It grows by whole messages, and keeps those that later messages cannot change.
    """

    def __init__(self) -> None:
        self._turns: list[ModelTurn] = []
        self._names = _CallNames()
        self._unsaid: AssistantTurn | None = None
        """To be added before the next text of the user."""
        self._asked: Mapping[str, tuple[int, tuple[int, ...]]] = {}
        """The positions of the texts of prompts that are being answered: the turn, and the items in
        it."""
        self._prompts: dict[str, int] = {}
        self._answers: dict[str, int] = {}
        self._outside: Mapping[str, int] = {}
        """The positions of prompts that are not part of it, if answers to them are."""
        self._ends = [_End(START, 0, None, 0, None, {}, 0)]

    @property
    def pos(self) -> int:
        """The position of the last message that is kept."""
        return self._ends[-1].pos

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return self._ends[-1].size

    def begin(self, summary: Summarized) -> None:
        """Begin with a summary instead of the messages that it stands for."""
        self._outside = summary.parents
        prompt = replace(summary.prompt, pos=summary.first - 2)
        answer = replace(summary.answer, pos=summary.first - 1)
        left = self.take([prompt, answer], {prompt.message.info.id})
        assert not left

    def take(
        self,
        messages: Sequence[PlacedMessage],
        answered: Collection[str],
        prompts: Collection[str] = (),
    ) -> list[PlacedMessage]:
        """Keep the messages that later ones cannot change; return the rest.

        `answered` are the prompts that have answers of their own among these messages or behind
        them, `prompts` those that are being answered.
        """
        size = self.size
        kept = 0
        for group, is_settled in self._grouped(messages, answered, prompts):
            for each in group:
                self._add(each, answered, prompts)
                size += each.size + _MESSAGE_OVERHEAD
            if is_settled:
                self._ends.append(self._end(group[-1].pos, size))
        self._go_back()
        while kept < len(messages) and messages[kept].pos <= self.pos:
            info = messages[kept].message.info
            places = self._prompts if isinstance(info, UserMessage) else self._answers
            places[info.id] = messages[kept].pos
            kept += 1
        return list(messages[kept:])

    def turns(
        self,
        rest: Sequence[PlacedMessage] = (),
        answered: Collection[str] = (),
        prompts: Collection[str] = (),
    ) -> tuple[ModelTurn, ...]:
        """The whole conversation, with a rest that is not kept."""
        for group, _ in self._grouped(rest, answered, prompts):
            for each in group:
                self._add(each, answered, prompts)
        turns = list(self._turns)
        for id, (place, items) in self._asked.items():
            if id in prompts:
                turns[place] = _marked(turns[place], items)
        self._go_back()
        return tuple(turns)

    def forget(self, updated: Iterable[str], changed: Iterable[str]) -> None:
        """Drop everything from the first changed message on.

        `updated` are messages that were written, apart from their parts. For prompts only the parts
        are sent to the model.
        """
        places = [self._answers.get(id) for id in updated]
        places += [self._answers.get(id, self._prompts.get(id)) for id in changed]
        first = min((each for each in places if each is not None), default=None)
        if first is None:
            return
        while self.pos >= first:
            self._ends.pop()
        self._go_back()
        self._prompts = {id: pos for id, pos in self._prompts.items() if pos <= self.pos}
        self._answers = {id: pos for id, pos in self._answers.items() if pos <= self.pos}

    def _end(self, pos: int, size: int) -> _End:
        last = self._turns[-1] if self._turns else None
        count = len(self._turns)
        return _End(pos, count, last, len(self._names), self._unsaid, self._asked, size)

    def _go_back(self) -> None:
        """Return to the state after the last message that is kept."""
        end = self._ends[-1]
        del self._turns[end.turns :]
        if end.last is not None:
            self._turns[-1] = end.last
        self._names.forget_from(end.calls)
        self._unsaid, self._asked = end.unsaid, end.asked

    def _grouped(
        self,
        messages: Sequence[PlacedMessage],
        answered: Collection[str],
        prompts: Collection[str],
    ) -> Iterator[tuple[list[PlacedMessage], bool]]:
        """Group each answer with the prompts before it, and say whether everything up to there is
        settled; the unanswered prompts come at the end. Prompts that wait for a run are left out.

        A prompt that came while another one was answered stands behind that answer, as the answer
        was given without knowing it. One with an answer that says that it was not run stands before
        the next one, whenever that answer was written.
        """
        places = {each.message.info.id: each.pos for each in messages}
        held: list[PlacedMessage] = []
        told: list[PlacedMessage] = []
        doubtful = -1
        """Prompts up to this position may yet be answered, though an answer to another prompt
        follows."""
        for each in messages:
            info = each.message.info
            if isinstance(info, UserMessage):
                held.append(each)
                continue
            asked = places.get(info.parentID, self._place_of(info.parentID))
            is_told = info.error is not None and not each.message.parts
            said: list[PlacedMessage] = []
            later: list[PlacedMessage] = []
            for one in held:
                is_before = _precedes(one, info.parentID, asked, answered)
                is_own = one.message.info.id == info.parentID
                (said if (is_own if is_told else is_before) else later).append(one)
            held = later
            if is_told:
                told += [*said, each]
                continue
            if any(one.state != PromptState.NOTE for one in said):
                said, told = [*told, *said], []
            if asked is None:
                doubtful = max([doubtful, *(one.pos for one in said)])
            elif asked >= doubtful:
                doubtful = -1
            yield [*said, each], not held and not told and doubtful < 0
        left = [one for one in held if one.state <= 0 or one.message.info.id in prompts]
        if any(one.state != PromptState.NOTE for one in left):
            left = [*told, *left]
        if left:
            yield left, False

    def _place_of(self, prompt: str) -> int | None:
        return self._prompts.get(prompt, self._outside.get(prompt))

    def _add(
        self, each: PlacedMessage, answered: Collection[str], prompts: Collection[str]
    ) -> None:
        info = each.message.info
        if isinstance(info, AssistantMessage):
            self._add_answer(info, each.message.parts)
            return
        if self._unsaid is not None:
            self._say(self._unsaid)
        self._add_prompt(info, each.message.parts, prompts)
        has_answer = info.id in answered or each.state in _READ_WITH_THE_NEXT or each.state > 0
        model = f"{info.model.providerID}/{info.model.modelID}"
        self._unsaid = None if has_answer else _note(NOT_ANSWERED, model)

    def _add_prompt(
        self, info: UserMessage, parts: Sequence[Part], prompts: Collection[str]
    ) -> None:
        told = list(_of_person(parts))
        before = self._hear(tuple(item for item, _ in told) or NO_WORDS)
        if info.id in prompts:
            typed = tuple(before + n for n, (_, is_typed) in enumerate(told) if is_typed)
            others = {id: place for id, place in self._asked.items() if id in prompts}
            self._asked = {**others, info.id: (len(self._turns) - 1, typed)}

    def _add_answer(self, info: AssistantMessage, parts: Sequence[Part]) -> None:
        model = f"{info.providerID}/{info.modelID}"
        said, results = _of_model(parts, self._names)
        if said:
            self._say(AssistantTurn(content=said, model=model))
        if results:
            self._hear(results)
        if info.error is not None:
            # Otherwise the model would act on that prompt together with the next one.
            self._say(_note(_reason(info.error, has_begun=bool(said)), model))
            self._asked = {}
        self._unsaid = None if said or info.error else _note(NO_ANSWER, model)

    def _hear(self, heard: tuple[Text | Media | ToolResult, ...]) -> int:
        """Add to the turn between two answers, which is one turn for users and tools; return its
        length before."""
        if not self._turns or not isinstance(last := self._turns[-1], UserTurn):
            self._turns.append(UserTurn(content=heard))
            return 0
        before = () if last.content is NO_WORDS else last.content
        if heard is not NO_WORDS or not before:
            self._turns[-1] = UserTurn(content=before + heard)
        return len(before)

    def _say(self, turn: AssistantTurn) -> None:
        """Add an answer; two in a row are one turn."""
        if not self._turns:
            # Providers want the user to begin.
            self._hear(NO_WORDS)
        last = self._turns[-1]
        if isinstance(last, UserTurn):
            self._turns.append(turn)
            return
        before = last.content
        if last.model != turn.model:
            # Reasoning is sent back only to the model it came from.
            before = tuple(item for item in before if not isinstance(item, Reasoning))
        self._turns[-1] = AssistantTurn(content=before + turn.content, model=turn.model)


def turns_of(
    messages: Sequence[PlacedMessage], prompts: Collection[str] = ()
) -> tuple[ModelTurn, ...]:
    """The conversation of a complete list of messages; `prompts` are being answered."""
    answers = (each.message.info for each in messages)
    answered = {info.parentID for info in answers if isinstance(info, AssistantMessage)}
    return Conversation().turns(messages, answered, prompts)


def _precedes(
    prompt: PlacedMessage, parent: str, asked: int | None, answered: Collection[str]
) -> bool:
    """Whether a prompt comes before an answer to the prompt `parent`, whose position is `asked`."""
    id = prompt.message.info.id
    if prompt.state > 0:
        return False  # no run has begun to answer it
    if prompt.state == PromptState.NOTE or id == parent:
        return True  # the model knew it
    place = prompt.pos if prompt.joined is None else prompt.joined
    return id not in answered and (asked is None or place <= asked)


def _note(text: str, model: str) -> AssistantTurn:
    return AssistantTurn(content=(Text(text=text),), model=model)


def _reason(error: Failure, *, has_begun: bool) -> str:
    """Why there is no answer, or only a partial one; short, and without secrets."""
    if is_not_run(error):
        return NOT_RUN
    if is_aborted(error):
        return INTERRUPTED_HERE if has_begun else INTERRUPTED_BEFORE
    message = " ".join(str(error.data.get("message") or error.name).split())
    message = _SECRET.sub("[…]", message[: 4 * _LONGEST_REASON])
    if len(message) > _LONGEST_REASON:
        message = f"{message[: _LONGEST_REASON - 1]}…"
    return (FAILED_HERE if has_begun else FAILED_BEFORE).format(message)


def _marked(turn: ModelTurn, items: Collection[int]) -> UserTurn:
    """A turn in which some items are the prompt that is being answered."""
    assert isinstance(turn, UserTurn)
    return UserTurn(
        content=tuple(
            replace(item, is_prompt=True) if n in items and isinstance(item, Text) else item
            for n, item in enumerate(turn.content)
        )
    )


def _of_person(parts: Sequence[Part]) -> Iterator[tuple[Text | Media, bool]]:
    """The content of a prompt, each item with whether the user typed it."""
    for part in parts:
        match part:
            case TextPart(text=text, ignored=ignored) if text.strip() and not ignored:
                yield Text(text=text), not part.synthetic
            case CompactionPart():
                yield Text(text=SUMMARY_ASKED), False
            case SubtaskPart():
                yield Text(text=OWN_COMMAND), False
            case FilePart(mime=mime) if is_media(part):
                media = media_of(part)
                yield media or Text(text=f"[{part.filename or mime}: it could not be read]"), False


class _CallNames:
    """Names of calls that every provider accepts, whichever model made them."""

    def __init__(self) -> None:
        self._given: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._given)

    def forget_from(self, count: int) -> None:
        """Return to the state after so many names."""
        while len(self._given) > count:
            self._given.popitem()

    def of(self, part: ToolPart) -> tuple[str, str]:
        """The id of a call, unique in the conversation, and the name of its tool."""
        id, number = part.callID, len(self._given)
        # Some servers number the calls of each answer anew.
        while id in self._given or not id:
            id = f"{part.callID or 'call'}_{number}"
            number += 1
        self._given[id] = None
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
        # Providers refuse reasoning that nothing follows.
        return (), ()
    return tuple(said), tuple(results)


def _result(part: ToolPart, id: str, name: str) -> ToolResult:
    found = _result_of(part, id, name)
    if part.undone is None:
        return found
    note = _UNDONE if part.undone.left is None else _UNDONE_IN_PART
    return replace(found, output=f"{found.output}\n\n{note}")


def _result_of(part: ToolPart, id: str, name: str) -> ToolResult:
    state = part.state
    if isinstance(state, ToolCompleted) and state.time.compacted is not None:
        return ToolResult(call_id=id, name=name, output=PRUNED)
    if isinstance(state, ToolCompleted):
        found = (media_of(each) for each in state.attachments or ())
        return ToolResult(
            call_id=id,
            name=name,
            output=shortened(state.output, limit_noted(state.metadata)),
            media=tuple(each for each in found if each is not None),
        )
    error = state.error if isinstance(state, ToolError) else INTERRUPTED
    return ToolResult(call_id=id, name=name, output=shortened(error), is_error=True)


def is_media(part: FilePart) -> bool:
    """Whether an attachment is sent to the model as a file, not as the text beside it."""
    return not part.mime.startswith(_SPELLED_OUT)


def media_of(part: FilePart) -> Media | None:
    """The content of an attachment whose URL holds it."""
    data = data_of(part.url)
    if data is None or mime_of(data) is None:
        return None  # no provider accepts it, whatever its type
    return Media(mime=part.mime, data=data, filename=part.filename)


def followed_by(turns: Sequence[ModelTurn], text: str) -> tuple[ModelTurn, ...]:
    """The conversation with a remark to the model at its end, which is not stored."""
    *before, last = turns
    said = Text(text=text)
    if isinstance(last, UserTurn):
        return (*before, UserTurn(content=(*last.content, said)))
    return (*turns, UserTurn(content=(said,)))
