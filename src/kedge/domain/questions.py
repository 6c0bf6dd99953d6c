"""Questions from a tool call to the user; the agent waits for the answers."""

from kedge.domain.permissions import ToolCallRef
from kedge.domain.values import Value


class QuestionOption(Value, frozen=True, kw_only=True):
    """One answer to choose from."""

    label: str
    description: str | None = None


class QuestionInfo(Value, frozen=True, kw_only=True):
    """One question with its options."""

    question: str
    header: str
    options: list[QuestionOption]
    multiple: bool | None = None
    custom: bool | None = None
    """Whether the user may type an answer of their own."""


class QuestionRequest(Value, frozen=True, kw_only=True):
    """A tool call's questions, which wait for answers."""

    id: str
    sessionID: str
    questions: list[QuestionInfo]
    tool: ToolCallRef | None = None
