"""Random conversations: what holds for every one of them, whoever was interrupted when."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.model_input import Conversation, ModelTurn, turns_of
from kedge.domain.conversation import PlacedMessage, PromptState
from kedge.domain.messages import AssistantMessage
from kedge.domain.parts import (
    Part,
    PartTime,
    ReasoningPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolPending,
)
from kedge.domain.wire_errors import aborted, api, not_run
from kedge.model.port import AssistantTurn, Text, ToolResult, ToolUse, UserTurn
from tests.agent.test_model_input import model, part_ids, person

ERRORS = {"fine": None, "aborted": aborted("Aborted"), "failed": api("no", isRetryable=False)}

Kind = Literal["text", "thought", "call"]


class Talk:
    """A session as the store has it while people, a model and failures have their way."""

    def __init__(self) -> None:
        self.messages: list[PlacedMessage] = []
        self.prompts: list[str] = []
        """Those that are being answered."""
        self.rounds: dict[str, int] = {}
        """Which prompts were asked together, by their ids."""
        self.requests: list[tuple[ModelTurn, ...]] = []
        """What the model was sent."""

    def __repr__(self) -> str:
        return " ".join(f"{each.message.info.id}:{each.state.name}" for each in self.messages)

    def ask(self) -> None:
        """A prompt; it waits if there is a run, and else begins one with what waits."""
        self._add_prompt(PromptState.WAITING)
        if not self.prompts:
            self.take()

    def note(self) -> None:
        """Words that nobody is to answer."""
        self._add_prompt(PromptState.NOTE)

    def lose(self) -> None:
        """A prompt whose process dies before it is taken up."""
        self._add_prompt(PromptState.SPENT)

    def take(self) -> None:
        """What waits is taken up, together."""
        if waiting := self._in(PromptState.WAITING):
            self._set(waiting, PromptState.TAKEN)
            self.prompts = [*self.prompts, *waiting]
            together = self._in(PromptState.TAKEN)
            self.rounds.update(dict.fromkeys(together, len(self.messages)))

    def answer(self, kinds: list[Kind], ending: str) -> None:
        """A step of the run; one without calls, or with an error, is its last."""
        if not self.prompts:
            return
        self.requests.append(turns_of(self.messages, self.prompts))
        id, parent = self._next_id(), self.prompts[-1]
        if parent in self._in(PromptState.TAKEN):
            self._set(self._in(PromptState.TAKEN), PromptState.JOINED, joined=int(parent))
            self._set([parent], PromptState.SETTLED)
        start = StepStartPart(**part_ids(id, 0))
        parts = [_part(kind, id, n) for n, kind in enumerate(kinds, start=1)]
        self.messages.append(model(id, parent, start, *parts, error=ERRORS[ending]))
        if ERRORS[ending] is not None or "call" not in kinds:
            self.prompts = []

    def fail(self) -> None:
        """The run ends before its first step, or between two."""
        self._set(self._in(PromptState.TAKEN), PromptState.FAILED)
        self.prompts = []

    def tell(self) -> None:
        """Prompts that nobody runs are told so."""
        for parent in self._in(PromptState.SPENT):
            self._set([parent], PromptState.SETTLED)
            self.messages.append(model(self._next_id(), parent, error=not_run("gone")))

    def _add_prompt(self, state: PromptState) -> None:
        id = self._next_id()
        self.messages.append(person(id, f"<{id}>", state=state))

    def _next_id(self) -> str:
        return str(len(self.messages) + 1)

    def _in(self, state: PromptState) -> list[str]:
        return [each.message.info.id for each in self.messages if each.state is state]

    def _set(self, ids: list[str], state: PromptState, joined: int | None = None) -> None:
        self.messages = [
            replace(each, state=state, joined=joined) if each.message.info.id in ids else each
            for each in self.messages
        ]


def _part(kind: Kind, id: str, n: int) -> Part:
    match kind:
        case "text":
            return TextPart(text=f"[{id}-{n}]", **part_ids(id, n))
        case "thought":
            return ReasoningPart(text="hm", time=PartTime(start=0), **part_ids(id, n))
        case "call":
            state = ToolPending(input={}, raw="")
            return ToolPart(tool="x", callID=f"c{n}", state=state, **part_ids(id, n))


_ANSWERS = st.tuples(
    st.just("answer"),
    st.lists(st.sampled_from(["text", "thought", "call", "call"]), max_size=3),
    st.sampled_from(["fine", "fine", "aborted", "failed"]),
)
_OTHERS = st.sampled_from(["ask", "ask", "note", "lose", "take", "fail", "tell"])


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Conversations of some length."""
    talk = Talk()
    for doing in draw(st.lists(st.one_of(_ANSWERS, _ANSWERS, _OTHERS.map(lambda x: (x,))))):
        getattr(talk, doing[0])(*doing[1:])
    return talk


@given(talks())
def test_what_every_provider_takes(talk: Talk) -> None:
    """A person begins, sides alternate, and each call has its one result right behind it."""
    turns = turns_of(talk.messages, talk.prompts)
    sides = [isinstance(turn, AssistantTurn) for turn in turns]
    assert sides == [n % 2 == 1 for n in range(len(turns))]
    called: list[str] = []
    for turn in turns:
        assert turn.content
        results = [each.call_id for each in turn.content if isinstance(each, ToolResult)]
        assert results == called
        called = [each.call_id for each in turn.content if isinstance(each, ToolUse)]
    assert called == []


@given(talks())
def test_each_prompt_stands_for_itself(talk: Talk) -> None:
    """Only those that were asked together are in one turn."""
    rounds = {f"<{id}>": number for id, number in talk.rounds.items()}
    for turn in turns_of(talk.messages, talk.prompts):
        words = [each.text for each in turn.content if isinstance(each, Text)]
        assert len({rounds[text] for text in words if text in rounds}) <= 1


@given(talks())
def test_nothing_is_lost(talk: Talk) -> None:
    """What was said is told once; only prompts that wait for a run are left out."""
    talk.tell()
    talk.ask()
    talk.answer([], "fine")
    talk.ask()
    expected = []
    for each in talk.messages:
        info = each.message.info
        if isinstance(info, AssistantMessage) or each.state <= 0 or info.id in talk.prompts:
            expected += [part.text for part in each.message.parts if isinstance(part, TextPart)]
    told = [
        item.text
        for turn in turns_of(talk.messages, talk.prompts)
        for item in turn.content
        if isinstance(item, Text) and not item.text.startswith("(")
    ]
    assert sorted(told) == sorted(expected)


@given(talks())
def test_what_was_sent_stays(talk: Talk) -> None:
    """Everything that a request said is the beginning of all later ones."""
    turns = _unmarked(turns_of(talk.messages, talk.prompts))
    for request in talk.requests:
        assert turns[: len(request)] == _unmarked(request)


@given(talks(), st.lists(st.integers(1, 5)))
def test_kept_turns_are_fresh_ones(talk: Talk, sizes: list[int]) -> None:
    """However the messages come in, and from wherever on they come again."""
    answers = (each.message.info for each in talk.messages)
    answered = {info.parentID for info in answers if isinstance(info, AssistantMessage)}
    expected = turns_of(talk.messages, talk.prompts)
    kept = Conversation()
    rest: list[PlacedMessage] = []
    for page in _pages(talk.messages, sizes):
        rest = kept.take([*rest, *page], answered, talk.prompts)
    assert kept.turns(rest, answered, talk.prompts) == expected
    assert kept.turns(rest, answered, talk.prompts) == expected
    for each in reversed(talk.messages):
        kept.forget([], [each.message.info.id])
        assert kept.pos < each.pos
        rest = [other for other in talk.messages if other.pos > kept.pos]
        assert kept.turns(rest, answered, talk.prompts) == expected


def _pages(messages: list[PlacedMessage], sizes: list[int]) -> Iterator[list[PlacedMessage]]:
    at = 0
    for size in sizes:
        yield messages[at : at + size]
        at += size
    yield messages[at:]


def _unmarked(turns: tuple[ModelTurn, ...]) -> tuple[ModelTurn, ...]:
    return tuple(
        UserTurn(
            content=tuple(
                replace(item, is_prompt=False) if isinstance(item, Text) else item
                for item in turn.content
            )
        )
        if isinstance(turn, UserTurn)
        else turn
        for turn in turns
    )
