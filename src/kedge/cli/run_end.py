"""The end of a run: which files changed, what it cost, and how to undo it."""

from typing import TYPE_CHECKING

from kedge.cli.screen import DIM, GREEN, RED, YELLOW, Screen
from kedge.cli.selection import short
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import lasting, many
from kedge.cli.turn_view import JsonView

if TYPE_CHECKING:
    from kedge.domain.messages import AssistantMessage
    from kedge.domain.sessions import FileDiff
    from kedge.domain.wire_errors import Failure as WireFailure
    from kedge.engine.session import Session

_MOST_FILES = 12
SIGNS = {"added": ("+", GREEN), "deleted": ("-", RED), "modified": ("~", YELLOW)}


async def show_end(
    session: "Session",
    prompt_id: str,
    seconds: float,
    *,
    screen: Screen,
    view: JsonView | None,
    error: "WireFailure | None",
) -> "list[FileDiff] | None":
    """Show what a turn came to; returns the files that it changed, None if it was never stored."""
    from kedge.domain.errors import MessageNotFound

    try:
        files = await session.diff(prompt_id)
    except MessageNotFound:
        return None
    answers = await _answers(session, prompt_id)
    tokens = sum(each.tokens.input + each.tokens.output + each.tokens.reasoning for each in answers)
    cost = sum(each.cost for each in answers)
    if view is not None:
        view.emit("result", files=files, cost=cost, tokens=tokens, seconds=seconds, error=error)
        return files
    about = [lasting(seconds), f"{tokens:,} tokens", f"${cost:.4f}" if cost else ""]
    name = f"session {short(session.id)}"
    changed = many(len(files), "file") + " changed" if files else "no file changed"
    sign = screen.paint("✗", RED) if error is not None else screen.paint("✓", GREEN)
    rest = screen.paint(" · ".join(filter(None, (*about, name))), DIM)
    screen.line(f"{sign} {changed}  {rest}")
    show_files(screen, files[:_MOST_FILES])
    if len(files) > _MOST_FILES:
        screen.line(screen.paint(f"  … {many(len(files) - _MOST_FILES, 'more file')}", DIM))
    if files:
        screen.line(screen.paint("  kedge undo takes it back, kedge diff shows it", DIM))
    return files


async def _answers(session: "Session", prompt_id: str) -> list["AssistantMessage"]:
    """The messages that answer a prompt."""
    from kedge.domain.messages import AssistantMessage

    found: list[AssistantMessage] = []
    before: str | None = None
    while True:
        page = await session.messages(limit=100, before=before)
        for message in reversed(page.messages):
            if message.info.id == prompt_id:
                return found
            if isinstance(message.info, AssistantMessage) and message.info.parentID == prompt_id:
                found.append(message.info)
        if page.older is None:
            return found
        before = page.older


def show_files(screen: Screen, files: "list[FileDiff]") -> None:
    """Changed files, one a line."""
    table = Table(Column(), Column(gives_way=True), Column(is_number=True), Column(is_number=True))
    for each in files:
        sign, style = SIGNS.get(each.status or "modified", ("~", YELLOW))
        added, removed = each.additions, each.deletions
        table.add(
            Cell(sign, style, piped=each.status or "modified"),
            Cell(each.file or ""),
            Cell(f"+{added}" if added else "", GREEN, piped=str(added)),
            Cell(f"-{removed}" if removed else "", RED, piped=str(removed)),
        )
    table.show(screen, "  " if screen.is_terminal else "")
