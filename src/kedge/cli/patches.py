"""Shows patches: coloured lines, at most so many."""

from kedge.cli.screen import BOLD, CYAN, DIM, GREEN, RED, Screen, cells, clip, safe
from kedge.cli.times import many

_STYLES = {"+": GREEN, "-": RED, "@": CYAN}
_TAB = "    "
_NOISE = ("Index: ", "=" * 60)
"""What programs need, but people do not."""


def show_patch(
    screen: Screen, patch: str, *, indent: str = "", most: int | None = None, heads: bool = True
) -> None:
    """Write a patch; without `heads` only the lines of its hunks."""
    lines = patch_lines(patch, heads=heads)
    if screen.is_terminal:
        lines = [line for line in lines if not line.startswith(_NOISE)]
    kept = lines if most is None or len(lines) <= most + 1 else lines[:most]
    for line in kept:
        shown = safe(line)
        if screen.is_terminal:
            shown = shown.replace("\t", _TAB)
            if most is not None:
                shown = clip(shown, screen.width - cells(indent))
        screen.line(indent + screen.paint(shown, _style(line)))
    if len(kept) < len(lines):
        left = many(len(lines) - len(kept), "more line")
        screen.line(indent + screen.paint(f"… {left}", DIM))


def patch_lines(patch: str, *, heads: bool) -> list[str]:
    """The lines of a patch, split where patches are split: only at line feeds."""
    lines = patch.removesuffix("\n").split("\n") if patch else []
    if heads:
        return lines
    kept: list[str] = []
    is_inside = False
    for line in lines:
        if line.startswith("@@"):
            if kept:
                kept.append("⋯")
            is_inside = True
        elif line.startswith(("Index: ", "diff --git ")):
            is_inside = False
        elif is_inside and line != "\\ No newline at end of file":
            kept.append(line)
    return kept


def _style(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "diff --git ", "Index: ")):
        return BOLD
    return _STYLES.get(line[:1], DIM if line[:1] in ("⋯", "=", "\\") else "")


def counted(screen: Screen, additions: int, deletions: int) -> str:
    """How many lines came and went."""
    added = screen.paint(f"+{additions}", GREEN) if additions else ""
    removed = screen.paint(f"-{deletions}", RED) if deletions else ""
    return " ".join(filter(None, (added, removed)))
