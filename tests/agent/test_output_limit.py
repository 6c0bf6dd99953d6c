"""What a call gives back is cut where it is stored, so that clients and the model see the same."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent import BUILTIN, Call, Output, ToolFailure, tool
from kedge.agent.output_limit import count_lines, first_lines, fits, last_lines, shortened
from kedge.config.values import ToolOutputConfig
from kedge.domain.events import PermissionAsked
from kedge.domain.parts import ToolCompleted, ToolPart
from tests.agent.world import Scene, World, error_of, tools_of
from tests.support.model_server import Call as Called
from tests.support.model_server import ModelServer, Request, Text, answer

MOST_BYTES = 51_200
MOST_LINES = 2_000
NOTES = 8 * 1024
"""What may be said about an output beyond the output itself."""

TEXTS = {
    "lines": "line\n" * 5_000,
    "bytes": ("é" * 50 + "\n") * 1_500,
    "one line": "€" * 60_000,
    "a title and one line": "title\n" + "x" * 200_000,
    "windows": "line\r\n" * 5_000,
    "both": ("y" * 60 + "\n") * 3_000,
    "one line more": "x\n" * (MOST_LINES + 1),
    "one byte more": "x" * (MOST_BYTES + 1),
}


@tool("tell", description="Tells a text.")
async def tell(call: Call, which: str) -> Output:
    """One of the texts."""
    return Output(TEXTS[which])


@tool("claim", description="Says that it has seen to it.")
async def claim(call: Call, size: int) -> Output:
    """A text that claims to be short enough."""
    return Output("x" * size, metadata={"truncated": False})


@tool("fail", description="Fails at length.")
async def fail(call: Call) -> Output:
    """An error that nobody reads to its end."""
    raise ToolFailure("no, " * 100_000)


def completed(part: ToolPart) -> ToolCompleted:
    """The outcome of a call that worked."""
    assert isinstance(part.state, ToolCompleted), error_of(part)
    return part.state


def content(path: str) -> bytes:
    """What is in a file."""
    return Path(path).read_bytes()


def results(request: Request) -> list[str]:
    """What the model was told of its calls."""
    return [each["content"] for each in request.messages if each["role"] == "tool"]


async def called(scene: Scene) -> list[ToolPart]:
    """The calls of one more prompt."""
    before = len(await scene.answers())
    await scene.prompt("go", model="scripted/spoken")
    return [part for each in (await scene.answers())[before:] for part in tools_of(each)]


def check_bounded(text: str, lines: int = MOST_LINES, size: int = MOST_BYTES) -> None:
    """No more of the output than may be, and nothing torn."""
    assert len(text.encode()) <= size + NOTES
    assert text.count("\n") <= lines + 20
    assert "\ufffd" not in text


@given(
    st.text(st.sampled_from("ab\r\né€😀"), max_size=300), st.integers(1, 120), st.integers(1, 20)
)
def test_any_text_is_cut_within_its_limits(text: str, size: int, lines: int) -> None:
    """At either end, without a torn character; what fits is left alone, and so is what was cut."""
    limit = ToolOutputConfig(max_bytes=size, max_lines=lines)
    data = text.encode()
    for piece in (first_lines(data, limit), last_lines(data, limit)):
        assert piece.decode() in text
        assert len(piece) <= size
        assert count_lines(piece) <= lines
        assert (piece == data) is fits(text, limit)
    assert data.startswith(first_lines(data, limit))
    assert data.endswith(last_lines(data, limit))
    long = text * 400
    once = shortened(long, limit)
    assert len(once.encode()) <= size + NOTES
    assert shortened(once, limit) == once


@pytest.mark.parametrize("which", TEXTS)
async def test_output_is_cut_and_the_whole_is_kept(world: World, which: str) -> None:
    """Clients and the model see the same beginning, and where the rest is."""
    script = [answer(Called.of("tell", which=which)), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work(tools=[tell]) as scene:
            (part,) = await called(scene)
            state = completed(part)
            check_bounded(state.output)
            assert state.metadata["truncated"] is True
            kept = state.metadata["outputPath"]
            assert content(kept) == TEXTS[which].encode()
            assert kept in state.output
            shown, _, note = state.output.rpartition("\n\n...")
            assert TEXTS[which].startswith(shown)
            assert len(shown.encode()) <= MOST_BYTES
            assert "truncated..." in note
            # Not so little either.
            lines = shown.count("\n") + 1
            assert lines >= MOST_LINES or len(shown.encode()) > MOST_BYTES - 200
            (result,) = results(server.requests[1])
            assert result == state.output


async def test_output_that_fits_is_left_alone(world: World) -> None:
    """Exactly as much as there is room for."""
    TEXTS["fits"] = "x" * (MOST_BYTES - 2 * (MOST_LINES - 1)) + "\nx" * (MOST_LINES - 1)
    assert TEXTS["fits"].count("\n") == MOST_LINES - 1
    assert len(TEXTS["fits"]) == MOST_BYTES
    script = [answer(Called.of("tell", which="fits")), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work(tools=[tell]) as scene:
            (part,) = await called(scene)
            state = completed(part)
            assert state.output == TEXTS["fits"]
            assert state.metadata == {"truncated": False}


async def test_a_tool_that_says_it_is_short_is_looked_at_too(world: World) -> None:
    """Its own words about the output have room; a flood has not."""
    calls = [Called.of("claim", size=MOST_BYTES + 100), Called.of("claim", size=1_000_000)]
    script = [answer(*calls), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work(tools=[claim]) as scene:
            first, second = [completed(part) for part in await called(scene)]
            assert len(first.output) == MOST_BYTES + 100
            assert first.metadata == {"truncated": False}
            check_bounded(second.output)
            assert second.metadata["truncated"] is True
            assert len(content(second.metadata["outputPath"])) == 1_000_000


async def test_an_error_is_cut_as_well(world: World) -> None:
    """The model is sent it as it is sent an output."""
    async with ModelServer([answer(Called.of("fail")), answer(Text.of("fine"))]) as server:
        world.use(server)
        async with world.at_work(tools=[fail]) as scene:
            (part,) = await called(scene)
            check_bounded(error_of(part))
            assert error_of(part).startswith("no, no, ")


@pytest.mark.parametrize(
    "command",
    [
        "echo first; seq 1 5000; echo last",
        "echo first; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last",
        "echo first; yes '€€€€€€€€€€' | head -n 1999; echo last",
    ],
)
async def test_of_a_command_both_ends_are_shown(world: World, command: str) -> None:
    """More of the end, where programs say what came of it."""
    script = [answer(Called.of("bash", command=command)), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            (part,) = await called(scene)
            state = completed(part)
            check_bounded(state.output)
            assert state.output.startswith("first\n")
            assert state.output.endswith("last\n")
            assert state.metadata["truncated"] is True
            kept = state.metadata["outputPath"]
            assert content(kept).startswith(b"first\n")
            before, _, after = state.output.partition(kept)
            assert len(after) > 2 * len(before)
            (result,) = results(server.requests[1])
            assert result == state.output


async def test_a_persons_own_command_is_cut_as_well(world: World) -> None:
    """The model hears of it with the next prompt."""
    async with world.at_work() as scene:
        message = await scene.agent.shell(scene.session, "seq 1 5000", model="kedge/offline")
        (part,) = tools_of(message)
        state = completed(part)
        check_bounded(state.output)
        assert state.metadata["truncated"] is True
        assert content(state.metadata["outputPath"]).endswith(b"\n5000\n")


async def test_the_configuration_says_how_much(world: World) -> None:
    """In bytes and in lines, for tools and commands."""
    calls = [Called.of("tell", which="lines"), Called.of("bash", command="seq 1 100")]
    async with ModelServer([answer(*calls), answer(Text.of("fine"))]) as server:
        world.use(server, tool_output={"max_bytes": 100, "max_lines": 8})
        async with world.at_work(tools=[tell, *BUILTIN]) as scene:
            told, ran = [completed(part) for part in await called(scene)]
            assert told.output.startswith("line\n" * 8 + "\n\n...4992 lines truncated...")
            assert ran.output.startswith("1\n2\n\n\n...92 lines truncated...")
            assert ran.output.endswith("\n\n95\n96\n97\n98\n99\n100\n")


async def test_the_configuration_may_ask_for_more(world: World) -> None:
    """The model is sent all of it, also when the configuration is another one by then."""
    script = [
        answer(Called.of("tell", which="lines")),
        answer(Text.of("one")),
        answer(Text.of("two")),
    ]
    async with ModelServer(script) as server:
        world.use(server, tool_output={"max_lines": 10_000, "max_bytes": 10**12})
        async with world.at_work(tools=[tell]) as scene:
            (part,) = await called(scene)
            assert completed(part).output == TEXTS["lines"]
            world.use(server)
            await scene.prompt("go")
            for request in server.requests[1:]:
                assert results(request) == [TEXTS["lines"]]


async def test_there_is_a_most_that_can_be_asked_for(world: World) -> None:
    """All of it would be in memory, in events and in requests."""
    script = [
        answer(Called.of("bash", command="head -c 3000000 /dev/zero | tr '\\0' x")),
        answer(Text.of("one")),
    ]
    async with ModelServer(script) as server:
        world.use(server, tool_output={"max_bytes": 10**12})
        async with world.at_work() as scene:
            (part,) = await called(scene)
            check_bounded(completed(part).output, size=2**20)


async def test_a_page_of_a_file_fits(world: World) -> None:
    """With the numbers of its lines, so that it is never cut a second time."""
    world.put("long.txt", "x" * 18 + "\n" + ("x" * 18 + "\n") * 5_000)
    world.put("short.txt", "\n" * 2_500)
    calls = [Called.of("read", filePath=name) for name in ("long.txt", "short.txt")]
    async with ModelServer([answer(*calls), answer(Text.of("fine"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            long, short = [completed(part) for part in await called(scene)]
            for state in (long, short):
                check_bounded(state.output)
                assert state.metadata["truncated"] is True
                assert "outputPath" not in state.metadata
                assert "Go on with offset=" in state.output
            assert "\n2000: \n" in short.output


async def test_a_long_list_of_a_folder_goes_on(world: World) -> None:
    """By its offset, as a file does."""
    for number in range(500):
        world.put(f"many/{number:03}{'x' * 200}", "")
    script = [answer(Called.of("read", filePath="many")), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            (part,) = await called(scene)
            state = completed(part)
            check_bounded(state.output)
            assert "(Entries 1 to 250 of 500. Go on with offset=251.)" in state.output
            assert "outputPath" not in state.metadata


async def test_old_outputs_are_sent_short(world: World) -> None:
    """What an older kedge stored whole is not sent whole, and is sent alike each time."""
    script = [answer(Text.of("one")), answer(Text.of("two"))]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            async with scene.session.turn("Earlier") as turn, turn.step() as step:
                async with step.tool("bash", {"command": "x"}) as running:
                    running.output = "first\n" + "0123456789\n" * 20_000 + "last\n"
                step.finish = "stop"
            await scene.prompt("go")
            await scene.prompt("go")
            (one,), (two,) = map(results, server.requests)
            assert one == two
            check_bounded(one)
            assert one.startswith("first\n")
            assert one.endswith("last\n")


@pytest.mark.parametrize("way", ["read", "grep", "bash"])
async def test_a_kept_output_is_read_unasked(world: World, way: str) -> None:
    """By the session whose call it was, with each of the tools that read."""
    async with world.at_work() as scene:
        message = await scene.agent.shell(scene.session, "seq 1 5000", model="kedge/offline")
        kept = completed(tools_of(message)[0]).metadata["outputPath"]
        state = await read_with(world, scene, way, kept)
        assert "4999" in state.output
        assert scene.heard.of(PermissionAsked) == []


@pytest.mark.parametrize("way", ["read", "grep", "bash"])
@pytest.mark.parametrize("trick", ["plain", "dots", "link", "link among its own"])
async def test_nobody_elses_output_is_read_unasked(world: World, way: str, trick: str) -> None:
    """Another session's is asked for, however the way there is written."""
    async with world.at_work() as scene:
        other = await scene.engine.sessions.create("Other")
        message = await scene.agent.shell(other, "seq 1 5000", model="kedge/offline")
        kept = Path(completed(tools_of(message)[0]).metadata["outputPath"])
        own = kept.parent.parent / scene.session.id
        own.mkdir()
        path = {
            "plain": kept,
            "dots": own / ".." / kept.parent.name / kept.name,
            "link": world.folder / "link",
            "link among its own": own / "link",
        }[trick]
        if "link" in trick:
            path.symlink_to(kept)
        reading = asyncio.create_task(read_with(world, scene, way, str(path)))
        asked = await scene.heard.asked(PermissionAsked)
        assert asked.permission == "external_directory"
        assert asked.patterns == [f"{kept.parent}/*"]
        await scene.engine.asks.reply_permission(asked.id, "once")
        assert "4999" in (await reading).output


async def read_with(world: World, scene: Scene, way: str, path: str) -> ToolCompleted:
    """What one of the tools gives back of a file."""
    call = {
        "read": Called.of("read", filePath=path, offset=4990),
        "grep": Called.of("grep", pattern="4999", path=path),
        "bash": Called.of("bash", command=f"tail -n 2 {path}"),
    }[way]
    async with ModelServer([answer(call), answer(Text.of("fine"))]) as server:
        world.use(server)
        (part,) = await called(scene)
        return completed(part)


async def test_a_rule_can_forbid_kept_outputs(world: World) -> None:
    """What people say counts before what kedge allows by itself."""
    async with world.at_work() as scene:
        message = await scene.agent.shell(scene.session, "seq 1 5000", model="kedge/offline")
        kept = completed(tools_of(message)[0]).metadata["outputPath"]
        script = [answer(Called.of("read", filePath=kept)), answer(Text.of("fine"))]
        async with ModelServer(script) as server:
            world.use(server, permission={"external_directory": "deny"})
            (part,) = await called(scene)
            assert "a rule denies external_directory" in error_of(part)


async def test_outputs_are_kept_for_seven_days(world: World) -> None:
    """Then they are removed, while newer ones of the same session stay."""
    async with world.at_work() as scene:
        kept = []
        for _ in range(2):
            message = await scene.agent.shell(scene.session, "seq 1 5000", model="kedge/offline")
            kept.append(Path(completed(tools_of(message)[0]).metadata["outputPath"]))
        now = scene.engine.clock.now() / 1000
        os.utime(kept[0], (now - 8 * 86_400,) * 2)
        os.utime(kept[1], (now - 6 * 86_400,) * 2)
        await scene.engine.upkeep.tidy()
        assert [each.exists() for each in kept] == [False, True]
        os.utime(kept[1], (now - 8 * 86_400,) * 2)
        await scene.engine.upkeep.tidy()
        assert not kept[1].parent.exists()
