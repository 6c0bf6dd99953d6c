"""Checks of asks: who may ask and answer, how an answer affects other asks, and that none is left
over."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from kedge.domain.errors import (
    InvalidInput,
    LeaseLost,
    PermissionNotFound,
    QuestionNotFound,
    SessionNotFound,
    TooLarge,
)
from kedge.domain.permissions import PermissionReply, PermissionRequest, PermissionRule
from kedge.domain.questions import QuestionInfo, QuestionOption, QuestionRequest
from kedge.domain.sessions import SessionInfo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.asks import (
    REJECTED,
    WITHDRAWN,
    AskAnswer,
    add_ask,
    answer_of,
    answer_permission,
    answer_question,
    ends_of_asks,
    open_asks,
    reject_question,
    withdraw_ask,
)
from kedge.store.queries.fences import Fence
from kedge.store.queries.grants import RuleHolder, allowed_in, end_rules, forget_allowed, rules_for
from kedge.store.queries.leases import release_lease, renew_leases, take_over
from kedge.store.queries.retention import compact_session, purge_session, stop_and_delete
from kedge.store.queries.sessions import restore_session
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, opened, refused

ONCE = AskAnswer(reply="once")
ALWAYS = AskAnswer(reply="always")


def permission(scene: Scene, info: SessionInfo, *patterns: str, **given: Any) -> PermissionRequest:  # noqa: ANN401 - any field
    """A permission request, by default for `bash`."""
    values: dict[str, Any] = {
        "id": scene.ids.permission(),
        "sessionID": info.id,
        "permission": "bash",
        "patterns": list(patterns),
        "metadata": {},
        "always": [f"{pattern.split()[0]} *" for pattern in patterns],
    }
    return PermissionRequest(**{**values, **given})


def question(scene: Scene, info: SessionInfo, *texts: str) -> QuestionRequest:
    """A question request, each question with the same two options."""
    options = [QuestionOption(label="Red"), QuestionOption(label="Blue")]
    asked = [QuestionInfo(question=text, header=text, options=options) for text in texts]
    return QuestionRequest(id=scene.ids.question(), sessionID=info.id, questions=asked)


class AllOwners:
    """Owners that all exist, or none of them."""

    def __init__(self, is_there: bool) -> None:
        self._is_there = is_there

    def alive_in(self, session_id: str) -> Callable[[str, bool], bool]:
        """Whether a session's run lives."""
        return self.is_open

    def is_open(self, owner: str, expired: bool) -> bool:
        """Whether an engine is open."""
        return self._is_there


THERE, GONE = AllOwners(True), AllOwners(False)


async def _ask(
    scene: Scene, fence: Fence, request: PermissionRequest | QuestionRequest
) -> AskAnswer | None:
    """Add an ask, a moment after the one before."""
    scene.clock.advance(1)
    return await scene.bulk(
        add_ask, request, fence=fence, is_open=THERE.is_open, now=scene.clock.now()
    )


async def _reply(scene: Scene, id: str, answer: AskAnswer) -> None:
    """Answer a permission."""
    await scene.write(answer_permission, id, answer, owners=THERE, now=scene.clock.now())


async def _waiting(scene: Scene, info: SessionInfo | None = None) -> list[str]:
    """The ids of the open asks, oldest first."""
    found = await scene.store.scan(partial(open_asks, None if info is None else info.id))
    return [each.request.id for each in found]


async def _told(scene: Scene, after: int) -> list[tuple[str, dict[str, Any]]]:
    """The events about asks after a number, without their ids."""
    found = [
        (event.type, msgspec.json.decode(event.payload)["properties"])
        for event in await scene.events(after)
    ]
    return [each for each in found if each[0].startswith(("permission.", "question."))]


async def _allowed(scene: Scene, project_id: str) -> list[PermissionRule]:
    """What is allowed in a project while every engine is open."""
    return [each.rule for each in await scene.read(allowed_in, project_id, THERE.is_open)]


async def _head(scene: Scene) -> int:
    """The number of the newest event."""
    return (await scene.events())[-1].seq


async def an_ask_is_told_with_its_row(database: Database) -> None:
    """It is listed oldest first and announced in its wire format, and other processes see it
    too."""
    async with opened(database) as scene, opened(database) as other:
        info = await scene.add_session(directory="/srv/work/sub")
        fence = await scene.acquire(info)
        start = await _head(scene)
        first, second = permission(scene, info, "ls"), question(scene, info, "Which?")
        for request in (first, second):
            assert await _ask(scene, fence, request) is None
        assert await _waiting(other) == await _waiting(other, info) == [first.id, second.id]
        assert [name for name, _ in await _told(other, start)] == [
            "permission.asked",
            "question.asked",
        ]
        assert (await _told(other, start))[0][1] == {
            "id": first.id,
            "sessionID": info.id,
            "permission": "bash",
            "patterns": ["ls"],
            "metadata": {},
            "always": ["ls *"],
        }
        found = await other.store.scan(open_asks)
        assert [each.directory for each in found] == ["/srv/work/sub"] * 2
        assert await other.read(answer_of, first.id) is None
        replay, tables = await both(scene.store)
        assert replay == tables
        assert set(tables.sessions[info.id].asks) == {first.id, second.id}


async def only_a_run_asks(database: Database) -> None:
    """Without its lease, or in a session that is gone, a run cannot ask."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        await scene.write(release_lease, fence)
        with refused(LeaseLost):
            await _ask(scene, fence, permission(scene, info, "ls"))
        fence = await scene.acquire(info)
        await scene.write(stop_and_delete, info.id, "other", scene.ids, START)
        with refused(LeaseLost):
            await _ask(scene, fence, permission(scene, info, "ls"))
        with refused(SessionNotFound):
            await _ask(scene, Fence("ses_none", 1), permission(scene, scene.session(), "ls"))
        assert await _waiting(scene) == []


async def an_ask_is_answered_once(database: Database) -> None:
    """The first answer counts, from any process; later ones fail because the ask is closed."""
    async with opened(database) as one, opened(database) as two:
        info = await one.add_session()
        fence = await one.acquire(info)
        for n in range(3):
            request = permission(one, info, "ls", id=f"per_{n}")
            await _ask(one, fence, request)
            start = await _head(one)
            replies: list[PermissionReply] = ["once", "reject"]
            outcomes = await asyncio.gather(
                *(
                    _reply(scene, request.id, AskAnswer(reply=reply))
                    for scene, reply in zip((one, two), replies, strict=True)
                ),
                return_exceptions=True,
            )
            assert sorted(type(each).__name__ for each in outcomes) == [
                "NoneType",
                "PermissionNotFound",
            ]
            [(name, properties)] = await _told(two, start)
            assert name == "permission.replied"
            answer = await two.read(answer_of, request.id)
            assert answer is not None
            assert properties["reply"] == answer.reply == replies[outcomes.index(None)]
        assert await _waiting(two) == []


async def what_nobody_waits_for_cannot_be_answered(database: Database) -> None:
    """An id that was never asked, or is another kind of ask, is unknown."""
    async with opened(database) as scene:
        info, other = await scene.add_session(), await scene.add_session()
        fence = await scene.acquire(info)
        wanted, which = permission(scene, info, "ls"), question(scene, info, "Which?")
        await _ask(scene, fence, wanted)
        await _ask(scene, fence, which)
        for id in ("per_none", which.id):
            with refused(PermissionNotFound):
                await _reply(scene, id, ONCE)
        for id in ("que_none", wanted.id):
            with refused(QuestionNotFound):
                await scene.write(answer_question, id, [], owners=THERE, now=START)
            with refused(QuestionNotFound):
                await scene.write(reject_question, id, owners=THERE, now=START)
        with refused(PermissionNotFound):
            await scene.write(
                answer_permission, wanted.id, ONCE, owners=THERE, now=START, session_id=other.id
            )
        await scene.write(
            answer_permission, wanted.id, ONCE, owners=THERE, now=START, session_id=info.id
        )
        assert await _waiting(scene) == [which.id]


async def a_run_that_is_dead_is_not_answered(database: Database) -> None:
    """Even though its asks were not withdrawn yet."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        wanted, which = permission(scene, info, "ls"), question(scene, info, "Which?")
        for request in (wanted, which):
            await _ask(scene, fence, request)
        start = await _head(scene)
        with refused(PermissionNotFound):
            await scene.write(answer_permission, wanted.id, ALWAYS, owners=GONE, now=START)
        with refused(QuestionNotFound):
            await scene.write(answer_question, which.id, [], owners=GONE, now=START)
        with refused(QuestionNotFound):
            await scene.write(reject_question, which.id, owners=GONE, now=START)
        assert await scene.events(start) == []
        assert await _allowed(scene, info.projectID) == []


async def the_ends_of_asks_are_told_again(database: Database) -> None:
    """The newest ones, oldest first, as they were announced; open ones have no end."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        start = await _head(scene)
        one, two = permission(scene, info, "ls"), question(scene, info, "Which?")
        three, open = permission(scene, info, "rm x"), permission(scene, info, "mv x y")
        for request in (one, two, three, open):
            await _ask(scene, fence, request)
        await _reply(scene, one.id, ONCE)
        scene.clock.advance(1)
        now = scene.clock.now()
        await scene.write(answer_question, two.id, [["Red"]], owners=THERE, now=now)
        scene.clock.advance(1)
        await scene.write(withdraw_ask, info.id, three.id, now=scene.clock.now())
        ends = await scene.read(ends_of_asks, info.id, 50)
        assert [(each.type, msgspec.to_builtins(each)) for each in ends] == [
            each for each in await _told(scene, start) if "requestID" in each[1]
        ]
        assert await scene.read(ends_of_asks, info.id, 2) == ends[1:]
        assert await scene.read(ends_of_asks, (await scene.add_session()).id, 50) == []


async def a_rejection_rejects_what_else_the_session_waits_for(database: Database) -> None:
    """Its permission requests, not its questions, and nothing of other sessions."""
    async with opened(database) as scene:
        info, other = await scene.add_session(), await scene.add_session()
        fence, others = await scene.acquire(info), await scene.acquire(other)
        one, two = permission(scene, info, "ls"), permission(scene, info, "rm x")
        which, third = question(scene, info, "Which?"), permission(scene, other, "ls")
        for request in (one, two, which):
            await _ask(scene, fence, request)
        await _ask(scene, others, third)
        start = await _head(scene)
        await _reply(scene, one.id, REJECTED)
        assert await _waiting(scene) == [which.id, third.id]
        assert [each["requestID"] for _, each in await _told(scene, start)] == [one.id, two.id]
        assert await scene.read(answer_of, two.id) == REJECTED


async def a_rejection_with_a_message_rejects_only_itself(database: Database) -> None:
    """The message is kept for the waiting call; it is not on the wire."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        one, two = permission(scene, info, "ls"), permission(scene, info, "rm x")
        for request in (one, two):
            await _ask(scene, fence, request)
        start = await _head(scene)
        corrected = AskAnswer(reply="reject", message="use mv")
        await _reply(scene, one.id, corrected)
        assert await _waiting(scene) == [two.id]
        assert await scene.read(answer_of, one.id) == corrected
        assert await _told(scene, start) == [
            (
                "permission.replied",
                {"sessionID": info.id, "requestID": one.id, "reply": "reject"},
            )
        ]


async def what_is_allowed_for_good_releases_others(database: Database) -> None:
    """Asks of the project that need no more than that are answered with it, in any session; those
    that need more, and those of other projects, stay open."""
    async with opened(database) as scene:
        here, near = await scene.add_session(), await scene.add_session()
        far = await scene.add_session(projectID="elsewhere")
        fences = {each.id: await scene.acquire(each) for each in (here, near, far)}
        one = permission(scene, here, "echo a")
        same, more = permission(scene, here, "echo b"), permission(scene, here, "echo a", "rm a")
        sibling, foreign = permission(scene, near, "echo"), permission(scene, far, "echo a")
        edit = permission(scene, here, "echo a", permission="edit")
        for request in (one, same, more, sibling, foreign, edit):
            await _ask(scene, fences[request.sessionID], request)
        start = await _head(scene)
        await _reply(scene, one.id, ALWAYS)
        assert await _waiting(scene) == [more.id, foreign.id, edit.id]
        ended = await _told(scene, start)
        assert ended[0][1]["requestID"] == one.id
        assert {each["requestID"] for _, each in ended} == {one.id, same.id, sibling.id}
        assert {each["reply"] for _, each in ended} == {"always"}
        replay, tables = await both(scene.store)
        assert replay == tables


async def what_is_allowed_for_good_is_not_asked_again(database: Database) -> None:
    """The rule is kept for the project, and answers new asks at once, until it is revoked."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        one = permission(scene, info, "echo a")
        await _ask(scene, fence, one)
        await _reply(scene, one.id, ALWAYS)
    async with opened(database) as scene:
        allow = PermissionRule(permission="bash", pattern="echo *", action="allow")
        assert await _allowed(scene, info.projectID) == [allow]
        assert await _allowed(scene, "elsewhere") == []
        assert await scene.read(rules_for, info.id, THERE.is_open) == ([], [allow])
        start = await _head(scene)
        again = permission(scene, info, "echo b")
        assert await _ask(scene, fence, again) == ALWAYS
        assert await _told(scene, start) == []
        assert await _ask(scene, fence, permission(scene, info, "echo b", "ls")) is None
        assert await scene.write(forget_allowed, "elsewhere") == 0
        assert await scene.write(forget_allowed, info.projectID) == 1
        assert await _ask(scene, fence, again) is None


async def what_is_allowed_ends_with_its_holder(database: Database) -> None:
    """With each engine that took the reply, when it is closed or found to be gone; lasting rules
    stay. A rule that is over answers nothing."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        judged: set[tuple[str, bool]] = set()

        def only_b(owner: str, expired: bool) -> bool:
            judged.add((owner, expired))
            return owner == "b"

        for pattern, owner, ttl in (
            ("x", "a", -1),
            ("y", "a", -1),
            ("y", "b", 10**6),
            ("z", "", 0),
        ):
            request = permission(scene, info, f"{pattern} 1", f"{owner} 1", always=[pattern])
            assert await _ask(scene, fence, request) is None
            await scene.write(
                answer_permission,
                request.id,
                ALWAYS,
                owners=THERE,
                now=scene.clock.now(),
                holder=RuleHolder(owner, ttl),
            )
        found = await scene.read(allowed_in, info.projectID, only_b)
        assert [(each.pattern, each.lasting) for each in found] == [("y", False), ("z", True)]
        assert judged == {("a", True), ("b", False)}
        [one, _] = found
        again = permission(scene, info, "x")
        now = scene.clock.now()
        assert await scene.bulk(add_ask, again, fence=fence, is_open=only_b, now=now) is None
        judged.clear()
        await scene.write(renew_leases, "a", ttl=10**6)
        await scene.read(allowed_in, info.projectID, only_b)
        assert judged == {("a", False), ("b", False)}
        await scene.write(end_rules, "a")
        assert [each.pattern for each in await _allowed(scene, info.projectID)] == ["y", "z"]
        assert await scene.write(forget_allowed, "elsewhere", one.id) == 0
        assert await scene.write(forget_allowed, info.projectID, one.id) == 1
        assert [each.pattern for each in await _allowed(scene, info.projectID)] == ["z"]


async def allowing_and_asking_at_once_leaves_nothing_behind(database: Database) -> None:
    """Whichever comes first, an ask that a rule allows does not stay open."""
    async with opened(database) as one, opened(database) as two:
        here, near = await one.add_session(), await one.add_session()
        fence, nears = await one.acquire(here), await one.acquire(near)
        for n in range(5):
            word = f"tool{n}"
            first = permission(one, here, f"{word} a")
            await _ask(one, fence, first)
            await asyncio.gather(
                _reply(one, first.id, ALWAYS),
                _ask(two, nears, permission(two, near, f"{word} b")),
            )
            assert await _waiting(one) == []


async def two_that_allow_at_once_do_not_wait_for_each_other(database: Database) -> None:
    """Each answers the asks of the other's session, in any order."""
    async with opened(database) as one, opened(database) as two:
        here, near = await one.add_session(), await one.add_session()
        fence, nears = await one.acquire(here), await one.acquire(near)
        for n in range(5):
            requests = [
                permission(one, here, f"a{n} x"),
                permission(one, here, f"b{n} x"),
                permission(one, near, f"a{n} y"),
                permission(one, near, f"b{n} y"),
            ]
            for request in requests:
                await _ask(one, fence if request.sessionID == here.id else nears, request)
            await asyncio.gather(
                _reply(one, requests[0].id, ALWAYS), _reply(two, requests[3].id, ALWAYS)
            )
            assert await _waiting(one) == []


async def ending_a_run_and_allowing_at_once_end_each_ask_once(database: Database) -> None:
    """The first one announces the end, and no other process does."""
    async with opened(database) as one, opened(database) as two:
        here = await one.add_session()
        fence = await one.acquire(here)
        for n in range(5):
            near = await one.add_session()
            nears = await one.acquire(near)
            first = permission(one, here, f"a{n} x")
            await _ask(one, fence, first)
            others = [permission(one, near, f"a{n} {word}") for word in "bcd"]
            for request in others:
                await _ask(one, nears, request)
            start = await _head(one)
            await asyncio.gather(_reply(one, first.id, ALWAYS), two.write(release_lease, nears))
            assert await _waiting(one) == []
            ended = [each["requestID"] for _, each in await _told(one, start)]
            assert sorted(ended) == sorted([first.id, *(each.id for each in others)])
            replay, tables = await both(one.store)
            assert replay == tables


async def a_question_is_answered(database: Database) -> None:
    """Each question gets its chosen labels; missing answers count as none, and too many are
    refused."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        which = question(scene, info, "One?", "Two?")
        await _ask(scene, fence, which)
        with refused(InvalidInput):
            await scene.write(answer_question, which.id, [[], [], []], owners=THERE, now=START)
        with refused(TooLarge):
            await scene.write(answer_question, which.id, [["x" * 2**20]], owners=THERE, now=START)
        start = await _head(scene)
        await scene.write(answer_question, which.id, [["Red"]], owners=THERE, now=START)
        assert await scene.read(answer_of, which.id) == AskAnswer(answers=[["Red"], []])
        answered = {"sessionID": info.id, "requestID": which.id, "answers": [["Red"], []]}
        assert await _told(scene, start) == [("question.replied", answered)]
        again = question(scene, info, "Three?")
        await _ask(scene, fence, again)
        await scene.write(reject_question, again.id, owners=THERE, now=START)
        rejected = {"sessionID": info.id, "requestID": again.id}
        assert (await _told(scene, start))[-1] == ("question.rejected", rejected)
        assert await scene.read(answer_of, again.id) == REJECTED


async def _released(scene: Scene, info: SessionInfo, fence: Fence) -> None:
    await scene.write(release_lease, fence)


async def _taken_over(scene: Scene, info: SessionInfo, fence: Fence) -> None:
    assert await scene.write(
        take_over, info.id, "new", is_alive=lambda *_: False, now=START, error=aborted("gone")
    )


async def _deleted(scene: Scene, info: SessionInfo, fence: Fence) -> None:
    await scene.write(stop_and_delete, info.id, "other", scene.ids, START)


async def _replaced(scene: Scene, info: SessionInfo, fence: Fence) -> None:
    await scene.acquire(info, "next", alive=False)


async def an_ask_ends_with_its_run(database: Database) -> None:
    """However the run ends, its open asks are withdrawn in the same transaction, before the session
    is announced as idle."""
    async with opened(database) as scene:
        for end in (_released, _taken_over, _deleted, _replaced):
            info = await scene.add_session()
            fence = await scene.acquire(info)
            wanted, which = permission(scene, info, "ls"), question(scene, info, "Which?")
            answered = permission(scene, info, "rm x")
            for request in (wanted, which, answered):
                await _ask(scene, fence, request)
            await _reply(scene, answered.id, ONCE)
            start = await _head(scene)
            await end(scene, info, fence)
            assert await _waiting(scene) == []
            assert await scene.read(answer_of, wanted.id) == WITHDRAWN
            assert await scene.read(answer_of, answered.id) == ONCE
            rejected = {"sessionID": info.id, "requestID": wanted.id, "reply": "reject"}
            assert await _told(scene, start) == [
                ("permission.replied", rejected),
                ("question.rejected", {"sessionID": info.id, "requestID": which.id}),
            ]
            types = [event.type for event in await scene.events(start)]
            assert types.index("question.rejected") < types.index("session.status")
            with refused(PermissionNotFound):
                await _reply(scene, wanted.id, ALWAYS)
            replay, tables = await both(scene.store)
            assert replay == tables


async def a_single_ask_is_withdrawn(database: Database) -> None:
    """Its call no longer waits, though the run goes on; an ask that has ended stays as it is."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        one, two = permission(scene, info, "ls"), permission(scene, info, "rm x")
        for request in (one, two):
            await _ask(scene, fence, request)
        await scene.write(withdraw_ask, info.id, one.id, now=START)
        assert await _waiting(scene) == [two.id]
        await _reply(scene, two.id, ONCE)
        start = await _head(scene)
        for id in (one.id, two.id, "per_none"):
            await scene.write(withdraw_ask, info.id, id, now=START)
        assert await scene.events(start) == []


async def asks_go_with_their_session(database: Database) -> None:
    """A restored session has no open asks from before; a purged one leaves no row. Compaction
    changes no open ask."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        done, one = permission(scene, info, "rm x"), permission(scene, info, "ls")
        for request in (done, one):
            await _ask(scene, fence, request)
        await _reply(scene, done.id, ONCE)
        until = await _head(scene)
        await scene.store.write_bulk(lambda: compact_session(info.id, until))
        replay, tables = await both(scene.store)
        assert replay == tables
        assert set(tables.sessions[info.id].asks) == {one.id}
        await scene.write(stop_and_delete, info.id, "other", scene.ids, START)
        await scene.write(restore_session, info.id)
        assert await _waiting(scene) == []
        await scene.write(stop_and_delete, info.id, "other", scene.ids, START)
        assert await scene.store.write_bulk(lambda: purge_session(info.id, START + 1))
        assert await scene.read(answer_of, done.id) == WITHDRAWN
        replay, tables = await both(scene.store)
        assert replay == tables
