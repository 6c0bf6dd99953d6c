"""Prompts that come while the session is busy: stored at once, answered by what runs, wherever it
runs."""

import asyncio
from functools import partial

import pytest

from kedge.agent import Agent
from kedge.agent.context import Surroundings, SurroundingsBook
from kedge.domain.errors import ModelNotFound, SessionNotFound, TurnAborted
from kedge.domain.messages import MessageWithParts, UserMessage
from kedge.domain.sessions import Busy
from kedge.domain.wire_errors import unknown
from kedge.engine.session import Session
from kedge.store.queries.prompts import ABORTED, waiting_prompts
from tests.agent.worker import Worker
from tests.agent.world import Scene, World, check_closed, info_of, text_of
from tests.support.model_server import (
    Call,
    ModelServer,
    Refusal,
    Reply,
    Request,
    Text,
    Wait,
    answer,
)
from tests.support.timeouts import PATIENCE


def said_last(request: Request) -> str:
    """What a request ends with."""
    role, content = request.messages[-1]["role"], request.messages[-1]["content"]
    return f"{role}: {content}"


async def stored(scene: Scene, text: str) -> UserMessage:
    """The prompt with this text, when it is stored."""
    while True:
        seen = len(scene.heard.events)
        for message in await scene.messages():
            if isinstance(message.info, UserMessage) and text_of(message) == text:
                return message.info
        await scene.heard.until(lambda event: event.type == "message.part.updated", after=seen)


def later(scene: Scene, text: str, **options: str) -> asyncio.Task[MessageWithParts]:
    """A prompt whose answer is waited for elsewhere."""
    return asyncio.create_task(scene.prompt(text, None, **options))


async def test_each_prompt_gets_its_own_answer(world: World) -> None:
    """The second is stored while the first is answered, and the same run answers it then."""
    script = [answer(Text.of("first "), Wait(), Text.of("answer")), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two")
            asked = await stored(scene, "two")
            assert not await scene.is_idle()
            server.release()
            assert text_of(await one) == "first answer"
            answered = await two
            assert text_of(answered) == "second"
            assert info_of(answered).parentID == asked.id
            assert said_last(server.requests[1]) == "user: two"
            assert [each.type for each in scene.heard.events].count("session.idle") == 1
            await check_closed(scene)


async def test_a_prompt_during_a_tool_is_heard_at_the_next_step(world: World) -> None:
    """The model sees it together with what the tool gave back."""
    command = Call.of("bash", command="until [ -e go ]; do sleep 0.01; done", description="waits")
    async with ModelServer([answer(command), answer(Text.of("both done"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await scene.works()
            two = later(scene, "two")
            asked = await stored(scene, "two")
            world.put("go", "")
            assert info_of(await two).parentID == asked.id
            assert text_of(await two) == "both done"
            assert (await one).info.id == (await two).info.id
            assert len(server.requests) == 2
            assert said_last(server.requests[1]) == "user: two"
            assert server.requests[1].messages[-2]["role"] == "tool"
            await check_closed(scene)


async def test_prompts_that_wait_together_are_answered_together(world: World) -> None:
    """One answer to the newest of them is the answer to all."""
    script = [answer(Wait(), Text.of("first")), answer(Text.of("both"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two")
            await stored(scene, "two")
            three = later(scene, "three")
            asked = await stored(scene, "three")
            server.release()
            found = await asyncio.gather(one, two, three)
            assert [text_of(each) for each in found] == ["first", "both", "both"]
            assert info_of(found[2]).parentID == asked.id
            assert len(server.requests) == 2


async def test_a_waiting_prompt_may_be_for_another_agent_and_model(world: World) -> None:
    """From its step on the run answers as that agent, with that model."""
    script = [answer(Wait(), Text.of("first")), answer(Text.of("planned"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two", agent="plan", model="scripted/other", system="Be brief.")
            await stored(scene, "two")
            server.release()
            await one
            found = info_of(await two)
            assert (found.agent, found.modelID) == ("plan", "other")
            first, second = server.requests
            assert (first.body["model"], second.body["model"]) == ("spoken", "other")
            assert "write" in first.tools
            assert "write" not in second.tools
            assert "Be brief." in second.system


async def test_a_waiting_prompt_is_not_shown_before_it_is_taken_up(world: World) -> None:
    """However early it comes, the model answers the first prompt without it, and then it."""

    def script(request: Request) -> Reply:
        return answer(Text.of(f"to {request.prompt}"))

    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            for turns in range(0, 40, 4):
                session = await scene.engine.sessions.create("Given")
                id = await scene.agent.submit(session, "one")
                for _ in range(turns):
                    await asyncio.sleep(0)
                two = await scene.prompt("two", session)
                one, last = await scene.answers(session)
                assert info_of(one).parentID == id
                assert [text_of(one), text_of(last)] == ["to one", "to two"]
                assert last.info.id == two.info.id
                assert said_last(server.requests[-1]) == "user: two"


async def test_a_model_that_fails_fails_one_prompt(world: World) -> None:
    """The prompt that waits is answered all the same."""
    refused = Refusal(status=400, message="no such thing", wait="go")
    script: list[Reply] = [refused, answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two")
            await stored(scene, "two")
            server.release()
            assert info_of(await one).error is not None
            assert text_of(await two) == "fine"
            await check_closed(scene)


async def test_a_run_of_another_program_leaves_the_prompt_to_who_waits(world: World) -> None:
    """A turn that knows nothing of waiting prompts ends, and the prompt is answered then."""
    async with world.at_work() as scene:
        session = await scene.engine.sessions.get(scene.session.id)
        async with session.turn("mine") as turn, turn.step() as step:
            await step.text("My own agent.")
            two = later(scene, "say after that")
            await stored(scene, "say after that")
        assert text_of(await two) == "after that"
        await check_closed(scene)


async def test_a_run_that_breaks_leaves_the_prompt_to_who_waits(world: World) -> None:
    """An error in a program's own turn does not lose what others asked."""
    async with world.at_work() as scene:
        session = await scene.engine.sessions.get(scene.session.id)
        asked = ["say after that", "say this too"]

        async def broken() -> None:
            async with session.turn("mine"):
                scene.tasks.extend(map(partial(later, scene), asked))
                for each in asked:
                    await stored(scene, each)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await broken()
        two, three = scene.tasks
        assert "after that" in text_of(await two)
        assert "this too" in text_of(await three)
        await check_closed(scene)


async def test_an_abort_drops_what_waits(world: World) -> None:
    """It stays in the conversation, and its answer, which whoever waited for it gets, says so."""
    async with ModelServer([answer(Text.of("a"), Wait()), answer(Text.of("on"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two")
            await stored(scene, "two")
            assert await scene.agent.abort(scene.session)
            assert info_of(await one).error is not None
            assert info_of(await two).error == ABORTED
            await check_closed(scene)
            assert len(server.requests) == 1
            assert text_of(await scene.prompt("three")) == "on"
            assert "two" in str(server.requests[1].messages)


async def test_a_wrong_model_harms_nothing_that_runs(world: World) -> None:
    """It is refused and not stored; the run goes on."""
    async with ModelServer([answer(Wait(), Text.of("ok"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            with pytest.raises(ModelNotFound):
                await scene.prompt("two", model="scripted/mistyped")
            server.release()
            assert text_of(await one) == "ok"
            assert len(await scene.messages()) == 2
            assert any("mistyped" in each for each in scene.errors())


async def test_a_session_that_is_deleted_answers_nobody(world: World) -> None:
    """Whoever waits hears that it is gone."""
    async with ModelServer([answer(Wait(), Text.of("ok"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "two")
            await stored(scene, "two")
            await scene.session.delete()
            for each in await asyncio.gather(one, two, return_exceptions=True):
                if isinstance(each, BaseException):
                    assert isinstance(each, SessionNotFound | TurnAborted)
                else:
                    assert info_of(each).error is not None


async def test_an_engine_beside_it_leaves_its_prompt_to_the_run(any_world: World) -> None:
    """The run of one engine answers what another engine on the same database was asked."""
    script = [answer(Wait(), Text.of("first")), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        any_world.use(server)
        async with (
            any_world.at_work() as scene,
            any_world.open() as engine,
            Agent(engine, environ=any_world.environ) as agent,
        ):
            one = later(scene, "one")
            await server.reached()
            session = await engine.sessions.get(scene.session.id)
            two = asyncio.create_task(agent.prompt(session, "two"))
            asked = await stored(scene, "two")
            server.release()
            assert text_of(await one) == "first"
            found = await two
            assert (text_of(found), info_of(found).parentID) == ("second", asked.id)
            await check_closed(scene)


async def test_an_agent_that_closes_leaves_prompts_to_who_asked_them(any_world: World) -> None:
    """What others asked is not dropped with its run: whoever waits for it has it answered."""
    script = [answer(Text.of("a"), Wait()), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        any_world.use(server)
        async with (
            any_world.at_work() as scene,
            any_world.open() as engine,
            Agent(engine, environ=any_world.environ) as agent,
        ):
            one = later(scene, "one")
            await server.reached()
            session = await engine.sessions.get(scene.session.id)
            two = asyncio.create_task(agent.prompt(session, "two"))
            asked = await stored(scene, "two")
            await scene.agent.close()
            assert (info_of(await one).error or unknown("")).name == "MessageAbortedError"
            found = await two
            assert (text_of(found), info_of(found).parentID) == ("second", asked.id)


async def test_a_prompt_that_comes_right_after_the_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered once, after the one that the turn began with, and nothing is done twice."""
    gate = asyncio.Event()
    of = SurroundingsBook.of
    began = asyncio.Event()

    async def slowly(book: SurroundingsBook, session: Session) -> Surroundings:
        if isinstance(await session.status(), Busy):
            began.set()
            await gate.wait()
        return await of(book, session)

    async with world.at_work() as scene:
        monkeypatch.setattr(SurroundingsBook, "of", slowly)
        one = later(scene, "bash echo one >> log.txt")
        await began.wait()
        assert await scene.session.queue("bash echo two >> log.txt")
        gate.set()
        await one
        await scene.settled()
        assert world.read("log.txt") == "one\ntwo\n"


async def test_closing_withdraws_what_its_own_callers_wait_for(world: World) -> None:
    """They are told that it was not answered; so no later run carries it out."""
    async with ModelServer([answer(Text.of("a"), Wait())]) as server:
        world.use(server)
        async with world.at_work() as scene:
            one = later(scene, "one")
            await server.reached()
            two = later(scene, "write secret.txt x")
            await stored(scene, "write secret.txt x")
            await scene.agent.close()
            await one
            with pytest.raises(TurnAborted):
                await two
            async with Agent(scene.engine, environ=world.environ) as other:
                found = await other.prompt(scene.session, "say hi", model="kedge/offline")
            assert text_of(found) == "hi"
            assert not (world.folder / "secret.txt").exists()


async def test_a_command_answers_no_prompt(world: World) -> None:
    """Prompts that a dead run left wait on until somebody asks again, and are answered then."""
    async with world.at_work() as scene:
        session = await scene.engine.sessions.get(scene.session.id)
        async with session.turn("mine"):
            assert await session.queue("say left behind")
        await scene.agent.shell(session, "true")
        waiting = partial(waiting_prompts, session.id)
        assert len(await scene.engine.store.read(waiting)) == 1
        await scene.prompt("say and this")
        assert await scene.engine.store.read(waiting) == []


async def test_another_process_answers(any_world: World) -> None:
    """The prompt is answered by the process that runs the session, and waited for in this one."""
    script = [answer(Text.of("a "), Wait(), Text.of("b")), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        any_world.use(server)
        async with (
            any_world.at_work() as scene,
            Worker(any_world, scene.session.id, "prompt", "one") as other,
        ):
            await other.hears("speaks")
            two = later(scene, "two")
            asked = await stored(scene, "two")
            server.release()
            found = await two
            assert (text_of(found), info_of(found).parentID) == ("second", asked.id)
            await other.say("go")
            await other.hears("gone")
            await check_closed(scene)


async def test_a_process_that_dies_leaves_the_prompt_to_who_waits(any_world: World) -> None:
    """The run is ended by whoever finds it dead, and the prompt that waited is answered."""
    script = [answer(Text.of("a "), Wait()), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        any_world.use(server)
        async with (
            any_world.at_work() as scene,
            Worker(any_world, scene.session.id, "prompt", "one") as other,
        ):
            await other.hears("speaks")
            two = later(scene, "two")
            await stored(scene, "two")
            await other.kill()
            await scene.engine.recovery.recover()
            async with asyncio.timeout(PATIENCE):
                assert text_of(await two) == "second"
            first = (await scene.answers())[0]
            assert "ended before" in str(info_of(first).error)
            await check_closed(scene)


async def test_an_abort_reaches_another_process(any_world: World) -> None:
    """It returns when the other process has let go of the session."""
    async with ModelServer([answer(Text.of("a "), Wait())]) as server:
        any_world.use(server)
        async with (
            any_world.at_work() as scene,
            Worker(any_world, scene.session.id, "prompt", "one") as other,
        ):
            await other.hears("speaks")
            here: Session = scene.session
            assert await scene.agent.abort(here)
            assert await scene.is_idle()
            (found,) = await scene.answers()
            assert info_of(found).time.completed is not None
            assert "MessageAbortedError" in str(info_of(found).error)
