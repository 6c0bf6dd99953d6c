"""Shows tool calls: what was called, on what, and what came of it."""

from typing import TYPE_CHECKING, Any

from kedge.cli.patches import show_patch
from kedge.cli.screen import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Screen,
    cells,
    clip,
    one_line,
    safe,
    wrap,
)
from kedge.cli.times import many

if TYPE_CHECKING:
    from kedge.domain.parts import ToolPart, Undone

_SUBJECTS = ("filePath", "command", "pattern", "path", "description", "url", "query", "prompt")
"""Arguments that say what a call is about, the most telling first."""
_MOST_DIFF, _MOST_OUTPUT = 16, 8
_LONGEST_ERROR = 600
_INDENT = "  "


def subject(part: "ToolPart", directory: str) -> str:
    """What a call is about, in one line."""
    given = part.state.input
    found = next((given[name] for name in _SUBJECTS if isinstance(given.get(name), str)), None)
    if found is None:
        found = str(getattr(part.state, "title", None) or "")
    return one_line(found.removeprefix(f"{directory}/"))


def show_call(
    screen: Screen,
    part: "ToolPart",
    directory: str,
    *,
    details: bool = True,
    number: str | None = None,
) -> None:
    """Write a call that has ended; the number names it in its session."""
    from kedge.domain.parts import ToolError

    state = part.state
    failed = isinstance(state, ToolError)
    sign = screen.paint("✗", RED) if failed else screen.paint("●", GREEN)
    name = one_line(part.tool)
    marks = [] if number is None else [screen.paint(number, CYAN)]
    if part.undone is not None:
        marks.append(screen.paint(_undone(part.undone), YELLOW))
    room = screen.width - cells(name) - 4 - (24 if marks else 0)
    about = subject(part, directory)
    about = clip(about, room) if screen.is_terminal else about
    screen.line("  ".join([f"{sign} {screen.paint(name, BOLD)} {about}", *marks]))
    if isinstance(state, ToolError):
        _show_error(screen, state.error)
    elif details:
        _show_result(screen, part)


def _undone(undone: "Undone") -> str:
    if undone.left is None:
        return "undone"
    return f"undone in {undone.files} of {many(undone.files + undone.left, 'file')}"


def _show_result(screen: Screen, part: "ToolPart") -> None:
    metadata: dict[str, Any] = getattr(part.state, "metadata", None) or {}
    diff = metadata.get("diff")
    if isinstance(diff, str) and diff:
        show_patch(screen, diff, indent=_INDENT, most=_MOST_DIFF, heads=False)
    elif part.tool == "write" and isinstance(content := part.state.input.get("content"), str):
        lines = content.removesuffix("\n").split("\n") if content else []
        added = "".join(f"+{line}\n" for line in lines)
        show_patch(screen, f"@@\n{added}", indent=_INDENT, most=_MOST_DIFF, heads=False)
    elif part.tool == "bash" and isinstance(output := metadata.get("output"), str):
        _show_text(screen, output, DIM)
        if metadata.get("exit"):
            screen.line(_INDENT + screen.paint(f"exit code {metadata['exit']}", RED))
    elif part.tool == "todowrite" and isinstance(todos := part.state.input.get("todos"), list):
        for todo in todos:
            if isinstance(todo, dict):
                screen.line(_INDENT + todo_line(screen, **_todo(todo)))


def _show_text(screen: Screen, text: str, style: str) -> None:
    """The last lines of a text, where errors stand."""
    lines = safe(text).expandtabs(4).strip("\n").split("\n") if text.strip() else []
    left = len(lines) - _MOST_OUTPUT
    if left > 1:
        screen.line(_INDENT + screen.paint(f"… {many(left, 'line')} above", DIM))
        lines = lines[left:]
    for line in lines:
        room = screen.width - cells(_INDENT)
        shown = clip(line, room) if screen.is_terminal else line
        screen.line(_INDENT + screen.paint(shown, style))


def _show_error(screen: Screen, text: str) -> None:
    """Why a call failed: in full, but for what is very long."""
    if not screen.is_terminal or len(text) > _LONGEST_ERROR:
        _show_text(screen, text, RED)
        return
    for line in safe(text).expandtabs(4).strip("\n").split("\n"):
        for part in wrap(line, screen.width - cells(_INDENT)):
            screen.line(_INDENT + screen.paint(part, RED))


_TODO_SIGNS = {
    "completed": ("✓", GREEN),
    "in_progress": ("▸", BOLD),
    "cancelled": ("-", DIM),
}


def _todo(todo: dict[str, Any]) -> dict[str, str]:
    return {name: str(todo.get(name, "")) for name in ("content", "status", "priority")}


def todo_line(screen: Screen, content: str, status: str, priority: str) -> str:
    """An entry of a todo list."""
    sign, style = _TODO_SIGNS.get(status, ("·", ""))
    done = DIM if status in ("completed", "cancelled") else ""
    urgent = f" {screen.paint('!', RED)}" if priority == "high" and not done else ""
    return f"{screen.paint(sign, style)} {screen.paint(one_line(content), done)}{urgent}"
