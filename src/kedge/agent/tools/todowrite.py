"""The tool `todowrite`: the session's list of what is to be done."""

from typing import Annotated, Literal

import msgspec

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, tool
from kedge.domain.todos import Todo


class TodoItem(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    content: Annotated[str, msgspec.Meta(description="What is to be done, in a few words")]
    status: Literal["pending", "in_progress", "completed", "cancelled"]
    priority: Literal["high", "medium", "low"] = "medium"


@tool(
    "todowrite",
    description="""
    Replaces the todo list of this session, which people see while you work.

    Use it for work of three steps or more. Always give the whole list; keep one item in_progress,
    and set each to completed as soon as it is done.
    """,
)
async def todowrite(call: Call, todos: Annotated[list[TodoItem], "The whole list"]) -> Output:
    await call.ask("todowrite", ["*"])
    listed: list[dict[str, str]] = [msgspec.to_builtins(todo) for todo in todos]
    await call.step.set_todos([msgspec.convert(todo, Todo) for todo in listed])
    open_items = sum(todo.status != "completed" for todo in todos)
    return Output(
        msgspec.json.format(msgspec.json.encode(listed), indent=2).decode(),
        title=f"{open_items} todos",
        metadata={"todos": listed, "truncated": False},
    )
