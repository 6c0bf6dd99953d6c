"""The todo list that a session keeps; who may change it is the engine's concern."""

from dataclasses import dataclass

from kedge.domain.values import Value


class Todo(Value, frozen=True, kw_only=True):
    """One line of a session's todo list; it has no id, the list is always replaced whole."""

    content: str
    status: str
    priority: str


@dataclass(frozen=True, slots=True)
class TodoVersion:
    """One state the todo list was in."""

    version: int
    messageID: str | None
    time: int
    todos: list[Todo]
