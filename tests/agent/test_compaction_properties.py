"""Random conversations with compactions: what holds for the next request, whatever came before."""

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.compaction_plan import CompactionPlan, plan_of, waits
from kedge.agent.context_size import tokens_of, tokens_of_message
from kedge.agent.conversations import History
from kedge.agent.model_input import SUMMARY_ASKED, ModelTurn
from kedge.domain.conversation import Growth, PlacedMessage, PromptState, Summarized
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import CompactionPart, FilePart, SubtaskPart, TextPart
from kedge.domain.wire_errors import aborted
from kedge.model.port import AssistantTurn, Media, Text, ToolResult, ToolUse, UserTurn
from tests.agent.test_attachments import PNG
from tests.agent.test_compaction import url_of
from tests.agent.test_model_input import model, part_ids, person
from tests.agent.test_model_input_properties import Kind, Talk


class LongTalk(Talk):
    """A session that is compacted now and then, taken back and forked."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[tuple[CompactionPlan, int]] = []
        """The plans of compactions, and their budgets."""
        self._number = 0

    def attach(self) -> None:
        """A prompt with a picture, or with a subtask beside it."""
        self.ask()
        placed = self.messages[-1]
        home = part_ids(placed.message.info.id, 7)
        picture = FilePart(mime="image/png", url=url_of(PNG), **home)
        task = SubtaskPart(prompt="t", description="d", agent="general", **{**home, "id": "8"})
        parts = [*placed.message.parts, picture, task]
        message = msgspec.structs.replace(placed.message, parts=parts)
        self.messages[-1] = replace(placed, message=message)

    def compact(self, budget: int, turns: int | None, ending: str, *, overflow: bool) -> None:
        """A compaction between two steps, which comes to an end or does not."""
        plan = plan_of(self._read()[1], budget=budget, most_turns=turns, overflow=overflow)
        if not plan.head:
            return
        asked, answered = self._next_id(), str(self._number + 1)
        is_whole = ending == "fine"
        tail = plan.tail[0].message.info.id if plan.tail and is_whole else None
        part = CompactionPart(auto=True, tail_start_id=tail, **part_ids(asked, 0))
        prompt = person(asked, "")
        self._append(replace(prompt, message=msgspec.structs.replace(prompt.message, parts=[part])))
        text = TextPart(text=f"summary {answered}", **part_ids(answered, 0))
        error = None if is_whole else aborted("Aborted")
        summary = model(self._next_id(), asked, text, error=error)
        assert isinstance(summary.message.info, AssistantMessage)
        info = msgspec.structs.replace(
            summary.message.info, summary=True, finish="stop" if is_whole else None
        )
        message = msgspec.structs.replace(summary.message, info=info)
        self._append(replace(summary, message=message))
        if is_whole:
            self.plans.append((plan, budget))
            if plan.replayed or not any(waits(each) for each in plan.tail):
                self._go_on()

    def _go_on(self) -> None:
        self._add_prompt(PromptState.TAKEN)
        id = self.messages[-1].message.info.id
        self.prompts = [*self.prompts, id]
        self.rounds[id] = self._number

    def revert(self, share: int) -> None:
        """Messages from some prompt on are gone; whatever ran is over."""
        self.fail()
        prompts = [
            n for n, each in enumerate(self.messages) if isinstance(each.message.info, UserMessage)
        ]
        if prompts:
            del self.messages[prompts[share % len(prompts)] :]

    def answer(self, kinds: list[Kind], ending: str) -> None:
        """A step; the request that Talk notes is left out, as it knows of no summaries."""
        count, requests = len(self.messages), list(self.requests)
        super().answer(kinds, ending)
        self.requests = requests
        for placed in self.messages[count:]:
            info = placed.message.info
            assert isinstance(info, AssistantMessage)
            if info.error is None:
                done = msgspec.structs.replace(info, finish="stop")
                message = msgspec.structs.replace(placed.message, info=done)
                self.messages[-1] = replace(placed, message=message)

    def _append(self, placed: PlacedMessage) -> None:
        self.messages.append(placed)

    def _next_id(self) -> str:
        self._number += 1
        return str(self._number)

    def _read(self) -> tuple[Summarized | None, list[PlacedMessage]]:
        """The newest summary that counts, and the messages beside it: said in another way."""
        by_id = {each.message.info.id: each for each in self.messages}
        for asked in reversed(self.messages):
            part = next((p for p in asked.message.parts if isinstance(p, CompactionPart)), None)
            if part is None:
                continue
            for answer in self.messages:
                info = answer.message.info
                if (
                    isinstance(info, AssistantMessage)
                    and info.parentID == asked.message.info.id
                    and info.finish is not None
                ):
                    start = by_id.get(part.tail_start_id or asked.message.info.id)
                    if start is not None:
                        parent = getattr(start.message.info, "parentID", None)
                        parents = {parent: by_id[parent].pos} if parent in by_id else {}
                        found = Summarized(
                            prompt=asked,
                            answer=answer,
                            first=start.pos,
                            tail=part.tail_start_id,
                            parents=parents,
                        )
                        return found, self._visible(start.pos)
        return None, self._visible(-1)

    def _visible(self, first: int) -> list[PlacedMessage]:
        def is_compaction(each: PlacedMessage) -> bool:
            info = each.message.info
            if isinstance(info, AssistantMessage):
                return bool(info.summary)
            return any(isinstance(part, CompactionPart) for part in each.message.parts)

        return [each for each in self.messages if each.pos >= first and not is_compaction(each)]

    async def growth(
        self,
        session_id: str,
        *,
        after: int,
        since: int | None,
        limit: int,
        answered: frozenset[str] | None,
    ) -> Growth:
        """As the store tells it, two messages at a time."""
        summary = self._read()[0] if since is None else None
        if summary is not None:
            after = summary.first - 1
        found = [each for each in self.messages if each.pos > after]
        if answered is None:
            infos = [each.message.info for each in found]
            answered = frozenset(i.parentID for i in infos if isinstance(i, AssistantMessage))
        return Growth(
            messages=found[:2],
            more=len(found) > 2,
            head=1,
            updated=frozenset(),
            changed=frozenset(),
            answered=answered,
            summary=summary,
        )


_ANSWERS = st.tuples(
    st.just("answer"),
    st.lists(st.sampled_from(["text", "thought", "call", "call"]), max_size=3),
    st.sampled_from(["fine", "fine", "aborted", "failed"]),
)
_OTHERS = st.sampled_from(["ask", "ask", "attach", "note", "lose", "take", "fail", "tell"])
_COMPACT = st.tuples(
    st.just("compact"),
    st.sampled_from([0, 20, 60, 200, 5000]),
    st.sampled_from([None, None, 0, 1, 3]),
    st.sampled_from(["fine", "fine", "fine", "aborted"]),
    st.booleans(),
)
_REVERT = st.tuples(st.just("revert"), st.integers(0, 20))


@st.composite
def talks(draw: st.DrawFn) -> LongTalk:
    """Conversations of some length."""
    talk = LongTalk()
    others = _OTHERS.map(lambda each: (each,))
    doing = st.one_of(_ANSWERS, _ANSWERS, _ANSWERS, others, others, _COMPACT, _REVERT)
    for each in draw(st.lists(doing, min_size=5, max_size=40)):
        match each:
            case ("compact", budget, turns, ending, overflow):
                talk.compact(budget, turns, ending, overflow=overflow)
            case (name, *arguments):
                getattr(talk, name)(*arguments)
    return talk


async def request_of(talk: LongTalk) -> tuple[ModelTurn, ...]:
    """What the model is sent next."""
    return await History(talk, "ses_1").turns(talk.prompts)  # type: ignore[arg-type]


@given(talks())
async def test_every_provider_takes_it(talk: LongTalk) -> None:
    """A person begins, sides alternate, and each call has its one result right behind it."""
    turns = await request_of(talk)
    sides = [isinstance(turn, AssistantTurn) for turn in turns]
    assert sides == [n % 2 == 1 for n in range(len(turns))]
    called: list[str] = []
    for turn in turns:
        assert turn.content
        results = [each.call_id for each in turn.content if isinstance(each, ToolResult)]
        assert results == called
        called = [each.call_id for each in turn.content if isinstance(each, ToolUse)]
    assert called == []
    if talk.prompts:
        assert isinstance(turns[-1], UserTurn)


@given(talks())
async def test_it_holds_what_was_kept(talk: LongTalk) -> None:
    """The newest summary, then every prompt from `tail_start_id` on, and none from before."""
    turns = await request_of(talk)
    items = [item for turn in turns for item in turn.content]
    told = [item.text for item in items if isinstance(item, Text)]
    summary, kept = talk._read()
    if summary is not None:
        assert told[:2] == [SUMMARY_ASKED, summary.answer.message.parts[0].text]  # type: ignore[union-attr]
        assert told.count(SUMMARY_ASKED) == 1
    expected = [
        f"<{each.message.info.id}>"
        for each in kept
        if isinstance(each.message.info, UserMessage)
        and (not waits(each) or each.message.info.id in talk.prompts)
    ]
    assert sorted(text for text in told if text.startswith("<")) == sorted(expected)
    pictures = [part for each in kept for part in each.message.parts if isinstance(part, FilePart)]
    waiting = [each for each in kept if waits(each) and each.message.info.id not in talk.prompts]
    unseen = [part for each in waiting for part in each.message.parts if isinstance(part, FilePart)]
    assert len([each for each in items if isinstance(each, Media)]) == len(pictures) - len(unseen)


@given(talks())
def test_plans_keep_to_their_budget(talk: LongTalk) -> None:
    """What is kept fits, apart from prompts that no model has read; nothing is lost or told
    twice."""
    for plan, budget in talk.plans:
        assert plan.head
        first = next((n for n, each in enumerate(plan.tail) if waits(each)), len(plan.tail))
        assert sum(tokens_of_message(each) for each in plan.tail[:first]) <= budget
        assert not any(waits(each) for each in plan.head)
        ids = [each.message.info.id for each in (*plan.head, *plan.tail)]
        assert len(set(ids)) == len(ids)
        assert not {each.message.info.id for each in plan.replayed} & set(ids)


@given(talks(), st.integers(0, 5000))
async def test_what_is_kept_is_a_fresh_one(talk: LongTalk, budget: int) -> None:
    """A history that has read half of it before, and one that reads all of it now."""
    all_messages, talk.messages = talk.messages, talk.messages[: len(talk.messages) // 2]
    history = History(talk, "ses_1")  # type: ignore[arg-type]
    prompts = [id for id in talk.prompts if id in [m.message.info.id for m in talk.messages]]
    await history.turns(prompts)
    talk.messages = all_messages
    fresh = await request_of(talk)
    assert await history.turns(talk.prompts) == fresh
    assert tokens_of(fresh) >= 0
