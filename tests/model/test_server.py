"""The scripted server itself: the recorded language, and the server as a process."""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from kedge.model.port import (
    AssistantTurn,
    ModelFailure,
    ModelRequest,
    Text,
    ToolCalled,
    ToolResult,
    ToolUse,
    UserTurn,
)
from tests.model.scene import ask, asking, both_protocols, finish_of, scripted, text_of, thought_of
from tests.support.model_server import Call, Refusal, Reply, answer, recorded
from tests.support.model_server import Text as Said
from tests.support.timeouts import PATIENCE


@both_protocols
@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("write b.txt hello world", [("write", {"filePath": "b.txt", "content": "hello world"})]),
        (
            "edit a.txt one uno",
            [("edit", {"filePath": "a.txt", "oldString": "one", "newString": "uno"})],
        ),
        (
            "bash sleep 30",
            [("bash", {"command": "sleep 30", "description": "run scripted command"})],
        ),
        (
            "todo plan it;test it",
            [
                (
                    "todowrite",
                    {
                        "todos": [
                            {"content": "plan it", "status": "in_progress", "priority": "high"},
                            {"content": "test it", "status": "pending", "priority": "medium"},
                        ]
                    },
                )
            ],
        ),
        (
            "par write p1.txt x && write p2.txt y",
            [
                ("write", {"filePath": "p1.txt", "content": "x"}),
                ("write", {"filePath": "p2.txt", "content": "y"}),
            ],
        ),
        (
            "question Which?|Red",
            [
                (
                    "question",
                    {
                        "questions": [
                            {
                                "question": "Which?",
                                "header": "Choice",
                                "options": [{"label": "Red", "description": "Red please"}],
                            }
                        ]
                    },
                )
            ],
        ),
    ],
)
async def test_recorded_prompts_call_tools(
    npm: str, prompt: str, calls: list[tuple[str, dict[str, object]]]
) -> None:
    """A command of the recorded language is a tool call with the recorded arguments."""
    async with scripted(recorded, npm) as (_, model):
        events = await ask(model, asking(prompt))
    called = [(event.name, event.input) for event in events if isinstance(event, ToolCalled)]
    assert called == calls


@both_protocols
async def test_recorded_steps_follow_the_rounds(npm: str) -> None:
    """Each line of a prompt is a step; after the last one the model says how many there were."""
    prompt = UserTurn(content=(Text(text="text I will edit now\nwrite sub/d.txt deep"),))
    turns: list[UserTurn | AssistantTurn] = [prompt]
    heard = []
    async with scripted(recorded, npm) as (_, model):
        for number in range(3):
            events = await ask(model, ModelRequest(system=("x",), turns=tuple(turns)))
            called = [event.name for event in events if isinstance(event, ToolCalled)]
            heard.append((text_of(events), called))
            use = ToolUse(call_id=f"c{number}", name="write", input={})
            result = ToolResult(call_id=f"c{number}", name="write", output="done")
            turns += [AssistantTurn(content=(use,)), UserTurn(content=(result,))]
    assert heard == [
        ("I will edit now", ["bash"]),
        ("", ["write"]),
        ("Done after 2 tool rounds.", []),
    ]


@both_protocols
async def test_recorded_words(npm: str) -> None:
    """Plain words are echoed in the recorded number of tokens, thoughts are thought."""
    async with scripted(recorded, npm) as (server, model):
        hello = await ask(model, asking("hello there"))
        thought = await ask(model, asking("reason thinking about it deeply"))
        said = await ask(model, asking("say child answer"))
        with pytest.raises(ModelFailure, match="scripted failure"):
            await ask(model, asking("httperror 503"))
        assert len(server.requests) == 4
    assert text_of(hello) == "Fake answer to: hello there"
    assert finish_of(hello).tokens.input == 102
    assert finish_of(hello).tokens.output == 5
    assert (thought_of(thought), text_of(thought)) == (
        "thinking about it deeply",
        "Reasoned answer.",
    )
    assert text_of(said) == "child answer"


@both_protocols
async def test_titles_are_answered_apart(npm: str) -> None:
    """A request for a title takes nothing from the script."""
    async with scripted([answer(Said.of("first"))], npm) as (server, model):
        title = await ask(model, asking("x", system=("Make a title.",)))
        assert text_of(title) == "Scripted title"
        assert text_of(await ask(model)) == "first"
        with pytest.raises(ModelFailure, match="no answer left"):
            await ask(model)
        assert len(server.titles) == 1


async def test_the_server_as_a_process(tmp_path: Path) -> None:
    """It prints its port, answers from a file over and over, and ends with its parent's pipe."""
    replies: list[Reply] = [answer(Said.of("from ", "a file"), Call.of("read", filePath="a"))]
    script = tmp_path / "script.json"
    script.write_bytes(msgspec.json.encode([*replies, Refusal(status=503)]))
    command = (sys.executable, "-m", "tests.support.model_server", "--repeat", "--script", script)
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=root, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    async with asyncio.timeout(PATIENCE):
        port = int(await process.stdout.readline())
        answers = [await _post(port) for _ in range(3)]
        process.stdin.close()
        assert await process.wait() == 0
    assert [status for status, _ in answers] == [200, 503, 200]
    assert "from " in answers[0][1]
    # Its end of the pipe is closed already; this lets go of ours.
    await process.stdout.read()


async def _post(port: int) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x"}]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    status = int((await reader.readline()).split()[1])
    text = b""
    while b"[DONE]" not in text and b"}}" not in text:
        text += await reader.read(65536)
    writer.close()
    await writer.wait_closed()
    return status, text.decode()
