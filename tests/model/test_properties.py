"""Whatever a model answers, its events are well nested and its pieces add up."""

import json
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kedge.model.port import (
    Finished,
    ModelEvent,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCalled,
    ToolStarted,
)
from tests.model.scene import ANTHROPIC, CHAT, GOOGLE, READ, RESPONSES, ask, asking, scripted
from tests.support.model_server import Answer, Call, Item, Text, Thinking
from tests.support.model_server.answers import finish_of

NPMS = (CHAT, ANTHROPIC, RESPONSES, GOOGLE)

# No angle brackets: tags may begin a thought, which has a test of its own.
_letters = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), min_size=1)
_pieces = st.lists(_letters, min_size=1, max_size=4).map(tuple)
_arguments = st.dictionaries(_letters, st.none() | st.booleans() | st.integers() | _letters)
_items = st.one_of(
    _pieces.map(lambda pieces: Text(pieces=pieces)),
    _pieces.map(lambda pieces: Thinking(pieces=pieces, signature="sealed")),
    _arguments.map(lambda arguments: _call(_json(arguments))),
)


def _call(whole: str) -> Call:
    middle = len(whole) // 2
    return Call(name="read", pieces=(whole[:middle], whole[middle:]))


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value)


def _says_something(items: Sequence[Item]) -> bool:
    return any(
        isinstance(item, Call) or "".join(item.pieces).strip()
        for item in items
        if isinstance(item, Call | Text)
    )


@given(st.sampled_from(NPMS), st.lists(_items, max_size=6).filter(_says_something))
async def test_events_are_well_nested_and_add_up(npm: str, items: list[Item]) -> None:
    """Each thing that starts ends before the next one starts, and nothing is lost or added."""
    async with scripted([Answer(items=tuple(items))], npm, reasoning=True) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    _check_nesting(events)
    assert _said(events, TextDelta) == _sent(items, Text)
    thought = _said(events, ReasoningDelta).replace("\n\n", "")
    assert thought == _sent(items, Thinking).replace("\n\n", "")
    calls = [item for item in items if isinstance(item, Call)]
    called = [event for event in events if isinstance(event, ToolCalled)]
    assert [_json(event.input or {}) for event in called] == [
        "".join(call.pieces) for call in calls
    ]
    assert events[-1].__class__ is Finished
    assert getattr(events[-1], "reason", "") == finish_of(Answer(items=tuple(items)))


def _check_nesting(events: list[ModelEvent]) -> None:
    open_now: type[ModelEvent] | None = None
    calls: list[str] = []
    ends = {TextEnded: TextStarted, ReasoningEnded: ReasoningStarted}
    inside = {TextDelta: TextStarted, ReasoningDelta: ReasoningStarted}
    for event in events:
        kind = type(event)
        if kind in (TextStarted, ReasoningStarted):
            assert open_now is None
            open_now = kind
        elif kind in inside:
            assert open_now is inside[kind]
        elif kind in ends:
            assert open_now is ends[kind]
            open_now = None
        else:
            assert open_now is None
        if isinstance(event, ToolStarted):
            assert event.call_id not in calls
            calls.append(event.call_id)
        elif isinstance(event, ToolCalled):
            calls.remove(event.call_id)
    assert open_now is None
    assert calls == []
    assert [type(event) for event in events].count(Finished) == 1


def _said(events: list[ModelEvent], kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def _sent(items: list[Item], kind: type[Text | Thinking]) -> str:
    return "".join("".join(item.pieces) for item in items if isinstance(item, kind))
