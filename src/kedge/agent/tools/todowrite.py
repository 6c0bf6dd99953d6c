"""The tool `todowrite`: the session's todo list."""

from typing import Annotated, Literal

import msgspec

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, tool
from kedge.domain.sessions import Todo


class TodoInput(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    content: Annotated[
        str, msgspec.Meta(description="What is to be done, in a few words that begin with a verb")
    ]
    status: Annotated[
        Literal["pending", "in_progress", "completed", "cancelled"],
        msgspec.Meta(description="How far it is; one item alone is in_progress"),
    ]
    priority: Annotated[
        Literal["high", "medium", "low"],
        msgspec.Meta(description="How much it matters; medium if not given"),
    ] = "medium"


@tool(
    "todowrite",
    description="""
    Writes the todo list of this session, which the person sees while you work. It replaces the list
    that was there, so always give the whole list.

    - Use it for work of three steps or more, or when you are given several tasks: before you begin,
      and whenever something is done or found. Do not use it for a single step or for a question.
    - Have exactly one item in_progress while you work. Set it to completed as soon as it is done,
      not later with others, and only if it is really done: if its tests fail, it is not.
    - Items are things that can be done and checked, in the order of the work. Set to cancelled what
      is no longer needed. When all is done, no item is left pending.

    Example, in the middle of the work:
    [{"content": "Find where dates are parsed", "status": "completed"},
     {"content": "Accept ISO weeks in parse_date", "status": "in_progress"},
     {"content": "Test it and run the linter", "status": "pending"}]
    """,
)
async def todowrite(
    call: Call, todos: Annotated[list[TodoInput], "The whole list, also what is done"]
) -> Output:
    await call.ask("todowrite", ["*"])
    listed: list[dict[str, str]] = [msgspec.to_builtins(todo) for todo in todos]
    await call.step.set_todos([msgspec.convert(todo, Todo) for todo in listed])
    open_items = sum(todo.status != "completed" for todo in todos)
    return Output(
        msgspec.json.format(msgspec.json.encode(listed), indent=2).decode(),
        title=f"{open_items} todos",
        metadata={"todos": listed, "truncated": False},
    )
