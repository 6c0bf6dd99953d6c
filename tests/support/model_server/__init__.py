"""A scripted model server on loopback: OpenAI's, Anthropic's and Google's streaming protocols.

    async with ModelServer([answer(Text.of("hi ", "there")), Refusal(status=503)]) as server:
        ...  # a provider with the base URL `server.url`

A script is a list, one answer for each request, or a function from request to answer; `recorded`
is the one that the recorded traces were made with. As a process of its own, with a script in JSON:
`python -m tests.support.model_server --script file.json` prints its port.
"""

from tests.support.model_server.answers import (
    Answer,
    Call,
    Cut,
    Fault,
    Item,
    Junk,
    Refusal,
    Reply,
    Text,
    Thinking,
    Usage,
    Wait,
    answer,
)
from tests.support.model_server.recorded import recorded
from tests.support.model_server.requests import Request
from tests.support.model_server.server import ModelServer, Script

__all__ = [
    "Answer",
    "Call",
    "Cut",
    "Fault",
    "Item",
    "Junk",
    "ModelServer",
    "Refusal",
    "Reply",
    "Request",
    "Script",
    "Text",
    "Thinking",
    "Usage",
    "Wait",
    "answer",
    "recorded",
]
