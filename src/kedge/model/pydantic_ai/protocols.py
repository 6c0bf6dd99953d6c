"""Readers for the protocols whose streams need few checks: whether they ended, and which frames the
library knows."""

from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

from kedge.model.pydantic_ai.event_stream import Ending, object_in, objects_in, text_in

_ANTHROPIC_FRAMES = {
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
}


class AnthropicReader:
    """Anthropic's messages; frames that the library does not know are left out."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.comment = ""
        self.is_over = False

    @property
    def may_end(self) -> bool:
        """Only after its last frame."""
        return self.is_over

    def read(self, frame: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The frame, if it is known."""
        kind = frame.get("type")
        if kind not in _ANTHROPIC_FRAMES:
            return
        if kind == "message_delta":
            self.reason = text_in(object_in(frame, "delta").get("stop_reason")) or self.reason
            self.is_over = self.is_over or self.reason is not None
        elif kind == "message_stop":
            self.is_over = True
        yield frame

    def end(self) -> Iterable[dict[str, Any]]:
        """Nothing."""
        return ()

    def is_frame(self, value: dict[str, Any]) -> bool:
        """Never: a whole message has another form."""
        return False


class GoogleReader:
    """Google's Gemini API."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.comment = ""
        self._ending = Ending()

    @property
    def is_over(self) -> bool:
        """Whether a reason to stop was sent."""
        return self._ending.is_over

    @property
    def may_end(self) -> bool:
        """Whether any frame had a reason."""
        return self.reason is not None

    def read(self, frame: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The frame; a reason that the library does not know is removed."""
        has_reason = has_words = False
        blocked = text_in(object_in(frame, "promptFeedback").get("blockReason"))
        if blocked:
            has_reason = True
            self.reason = "blocked"
            message = text_in(object_in(frame, "promptFeedback").get("blockReasonMessage"))
            self.comment = f"{blocked} {message}".strip()
        for candidate in objects_in(frame.get("candidates")):
            has_words = has_words or _has_words(candidate)
            if told := text_in(candidate.get("finishReason")):
                has_reason = True
                self.reason = told
                self.comment = text_in(candidate.get("finishMessage"))
                if told not in _google_reasons():
                    candidate["finishReason"] = "OTHER"
        self._ending.take(has_reason=has_reason, has_words=has_words)
        yield frame

    def end(self) -> Iterable[dict[str, Any]]:
        """Nothing."""
        return ()

    def is_frame(self, value: dict[str, Any]) -> bool:
        """Without `alt=sse`, the frames come as a list."""
        return "candidates" in value or "promptFeedback" in value


class ResponsesReader:
    """OpenAI's Responses; frames that the library does not know are left out."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.comment = ""
        self.is_over = False

    @property
    def may_end(self) -> bool:
        """Only after its last frame."""
        return self.is_over

    def read(self, frame: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The frame, if it is known."""
        kind = frame.get("type")
        if kind not in _responses_frames():
            return
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            response = object_in(frame, "response")
            why = text_in(object_in(response, "incomplete_details").get("reason"))
            self.reason = self.reason or why or kind.removeprefix("response.")
            self.is_over = True
        elif kind.startswith("response.refusal."):
            self.reason = "refusal"
        yield frame

    def end(self) -> Iterable[dict[str, Any]]:
        """Nothing."""
        return ()

    def is_frame(self, value: dict[str, Any]) -> bool:
        """Never: a whole response has another form."""
        return False


def _has_words(candidate: dict[str, Any]) -> bool:
    parts = objects_in(object_in(candidate, "content").get("parts"))
    return any(part.get("text") or "functionCall" in part for part in parts)


@cache
def _google_reasons() -> frozenset[str]:
    from google.genai.types import FinishReason

    return frozenset(reason.value for reason in FinishReason)


@cache
def _responses_frames() -> frozenset[str]:
    from openai.types.responses import ResponseStreamEvent

    events = get_args(get_args(ResponseStreamEvent)[0])
    return frozenset(
        kind for event in events for kind in get_args(event.model_fields["type"].annotation)
    )
