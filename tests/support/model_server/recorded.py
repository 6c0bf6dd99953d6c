"""The model of the recorded traces: a small language in the prompt, one line for each step.

`say WORDS`, `text WORDS` (with a tool call after them), `write FILE CONTENT`, `edit FILE OLD NEW`,
`bash COMMAND`, `read FILE`, `todo A;B`, `question Q|A|B`, `task PROMPT`, `par X && Y` (at once),
`reason THOUGHT` or `think THOUGHT`, `slow PIECES`, `httperror STATUS`; anything else is echoed.
"""

from typing import Any

import msgspec

from tests.support.model_server.answers import (
    Answer,
    Call,
    Item,
    Refusal,
    Reply,
    Text,
    Thinking,
    Usage,
    answer,
    split_words,
)
from tests.support.model_server.requests import Request

_ECHOED = 60
_SLOW = 0.05
_TOKENS_OF_CALL = 3
_TOOLS = ("write", "edit", "bash", "read", "todo", "question", "task")


def recorded(request: Request) -> Reply:
    """What the traces' model answers: each line of the prompt is a step, then it says done."""
    lines = request.prompt.split("\n")
    reply = _answer_line(lines[0] if lines else "", request)
    acts = isinstance(reply, Answer) and any(isinstance(item, Call) for item in reply.items)
    if not acts:
        return reply
    if request.rounds < len(lines):
        return _answer_line(lines[request.rounds], request)
    return _say(f"Done after {request.rounds} tool rounds.", request)


def _answer_line(line: str, request: Request) -> Reply:
    verb, _, rest = line.partition(" ")
    if verb == "httperror" and rest.isdigit():
        return Refusal(status=int(rest), code="fake")
    if verb == "say":
        return _say(rest, request)
    if verb in ("reason", "think"):
        thought = Thinking(pieces=split_words(rest))
        return _streamed(request, thought, Text.words("Reasoned answer."))
    if verb == "slow" and rest.isdigit():
        return _slow(int(rest), request)
    if verb == "text":
        return _streamed(request, Text.words(rest), _bash("true", "noop"))
    if verb == "par":
        return _streamed(request, *(_call(part.strip()) for part in rest.split("&&")))
    if verb in _TOOLS:
        return _streamed(request, _call(line))
    return _say(f"Fake answer to: {request.prompt.replace(chr(10), ' ')[:_ECHOED]}", request)


def _call(line: str) -> Call:
    verb, _, rest = line.partition(" ")
    first, _, second = rest.partition(" ")
    if verb == "write":
        return Call.of("write", filePath=first, content=second)
    if verb == "edit":
        old, _, new = second.partition(" ")
        return Call.of("edit", filePath=first, oldString=old, newString=new)
    if verb == "bash":
        return _bash(rest, "run scripted command")
    if verb == "read":
        return Call.of("read", filePath=rest)
    if verb == "todo":
        return Call.of("todowrite", todos=[_todo(*pair) for pair in enumerate(rest.split(";"))])
    if verb == "question":
        return _question(*rest.split("|"))
    return Call.of("task", description="sub job", prompt=rest, subagent_type="general")


def _bash(command: str, description: str) -> Call:
    return Call.of("bash", command=command, description=description)


def _todo(index: int, content: str) -> dict[str, str]:
    status, priority = ("pending", "medium") if index else ("in_progress", "high")
    return {"content": content, "status": status, "priority": priority}


def _question(question: str, *labels: str) -> Call:
    options = [{"label": label, "description": f"{label} please"} for label in labels]
    asked: dict[str, Any] = {"question": question, "header": "Choice", "options": options}
    return Call.of("question", questions=[asked])


def _say(text: str, request: Request) -> Answer:
    return _streamed(request, Text.words(text))


def _slow(count: int, request: Request) -> Answer:
    chunks = Text(pieces=tuple(f"chunk{index} " for index in range(count)))
    return msgspec.structs.replace(_streamed(request, chunks), pace=_SLOW)


def _streamed(request: Request, *items: Item) -> Answer:
    output = 0
    for item in items:
        if isinstance(item, Text | Thinking):
            output += len(item.pieces)
        elif isinstance(item, Call):
            output += _TOKENS_OF_CALL
    usage = Usage(input=100 + len(request.messages), output=output)
    return answer(*items, usage=usage)
