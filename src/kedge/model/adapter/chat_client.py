"""OpenAI's client, quicker at what a chat streams: thousands of small pieces."""

from contextlib import suppress
from typing import TypeVar, cast

import httpx2
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import ValidationError

T = TypeVar("T")


class ChatClient(AsyncOpenAI):
    """Has pydantic make the pieces of a chat, which takes it a tenth of the time."""

    def _process_response_data(
        self, *, data: object, cast_to: type[T], response: httpx2.Response
    ) -> T:
        if cast_to is ChatCompletionChunk:
            # Servers that only resemble OpenAI's send other pieces too; those the client makes.
            with suppress(ValidationError):
                return cast(T, ChatCompletionChunk.model_validate(data))
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)
