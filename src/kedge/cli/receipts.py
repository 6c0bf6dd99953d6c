"""Shows receipts, and takes a revert from the preview to the receipt."""

import argparse
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kedge.cli.consent import agrees, can_ask
from kedge.cli.exit_codes import DECLINED, DONE, INCOMPLETE
from kedge.cli.json_output import show_json
from kedge.cli.parser import add_json
from kedge.cli.progress import ticking
from kedge.cli.screen import DIM, GREEN, RED, YELLOW, Screen, errors, one_line, output
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import many

if TYPE_CHECKING:
    from kedge.domain.receipts import Receipt

_MOST_FILES = 40
"""That a person looks at before they say yes."""
_STRATEGIES = ("merge", "overwrite", "abort")
_SIGNS = {
    "restored": ("~", YELLOW),
    "merged": ("≈", YELLOW),
    "deleted": ("-", RED),
    "recreated": ("+", GREEN),
    "unchanged": ("=", DIM),
    "conflict": ("!", RED),
    "shared": ("!", YELLOW),
    "skipped": ("!", YELLOW),
}
_LEFT = ("conflict", "shared", "skipped")

Act = Callable[[bool], Awaitable["Receipt"]]
"""Does it, or with True only says what would be done."""


def add_consent(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that change files after a look."""
    command.add_argument("--yes", "-y", action="store_true", help="do it without asking")
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_json(command)


def add_files(command: argparse.ArgumentParser) -> None:
    """Add the option for the files that are meant."""
    command.add_argument(
        "--files", nargs="+", metavar="PATH", help="only these files, and what is below them"
    )


def add_choice(command: argparse.ArgumentParser) -> None:
    """Add the options for what to revert, and how."""
    add_files(command)
    command.add_argument(
        "--strategy",
        choices=_STRATEGIES,
        default="merge",
        help="where others changed the same lines: leave the file (merge, the default), take it"
        " back anyway (overwrite), or do nothing at all (abort)",
    )
    command.add_argument(
        "--only", choices=("messages", "files"), help="only messages, or only files"
    )


def chosen_paths(options: argparse.Namespace) -> list[bytes] | None:
    """The paths that were named, from where the command was run."""
    if options.files is None:
        return None
    folder = os.fsencode(os.path.realpath(options.directory))
    return [os.path.normpath(os.path.join(folder, os.fsencode(path))) for path in options.files]


def about_paths(receipt: "Receipt", paths: list[bytes], root: str) -> "Receipt":
    """A receipt without the files that nobody asked about."""
    import msgspec

    top = os.fsencode(root).rstrip(b"/") + b"/"
    wanted = [path.rstrip(b"/") + b"/" for path in paths]
    entries = [
        entry
        for entry in receipt.files
        if (top + entry.path_bytes + b"/").startswith(tuple(wanted))
    ]
    return msgspec.structs.replace(receipt, files=entries)


async def carry_out(
    act: Act, options: argparse.Namespace, *, question: str, done: str, again: str
) -> int:
    """Show what would be done, ask, do it, and show what was done; returns the exit code."""
    screen = output()
    if not options.yes:
        async with ticking("looking at the files"):
            preview = await act(True)
        if options.json and (options.dry_run or not can_ask()):
            show_json(screen, preview)
        else:
            show_receipt(errors() if options.json else screen, preview)
        if options.dry_run:
            return _code(preview)
        screen.flush()
        if not agrees(question, enter=True):
            errors().line("nothing was changed")
            return DECLINED
    async with ticking("putting files in their places"):
        receipt = await act(options.dry_run)
    if options.json:
        show_json(screen, receipt)
        return _code(receipt)
    if options.yes:
        show_receipt(screen, receipt)
    else:
        _show_differences(screen, preview, receipt)
    if receipt.applied:
        screen.line(f"{screen.paint('✓', GREEN)} {done}  {screen.paint(again, DIM)}")
    elif not options.dry_run:
        screen.line("nothing was changed")
    return _code(receipt)


def _show_differences(screen: Screen, preview: "Receipt", receipt: "Receipt") -> None:
    """What became of it, where that differs from what was shown before."""
    if preview.files != receipt.files:
        screen.line("it has changed since you looked; this was done:")
        show_receipt(screen, receipt)


def show_receipt(screen: Screen, receipt: "Receipt") -> None:
    """What was done to each path, or would be."""
    table = Table(Column(), Column(), Column(gives_way=True))
    # What stays as it is comes first where not all is shown: a person has to know that.
    entries = sorted(receipt.files, key=lambda entry: entry.outcome not in _LEFT)
    is_cut = screen.is_terminal and len(entries) > _MOST_FILES
    for entry in entries[:_MOST_FILES] if is_cut else receipt.files:
        sign, style = _SIGNS.get(entry.outcome, ("?", ""))
        outcome = entry.outcome if entry.source == "declared" else f"{entry.outcome} (observed)"
        table.add(
            Cell(f"{sign} {entry.outcome}", style, piped=outcome),
            Cell(entry.path),
            Cell(_reason(entry.reason, entry.source), DIM, piped=entry.reason or ""),
        )
    table.show(screen, "  " if screen.is_terminal else "")
    if is_cut:
        left = Counter(str(entry.outcome) for entry in entries[_MOST_FILES:])
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in left.items())
        screen.line(screen.paint(f"  … and {told}; --json has all", DIM))
    if not receipt.files and screen.is_terminal:
        screen.line(screen.paint("  no file is touched", DIM))
    for note in receipt.notes:
        errors().line(f"  {errors().paint('note:', YELLOW)} {one_line(note)}")


def _reason(reason: str | None, source: str) -> str:
    if reason is not None:
        return reason
    return "" if source == "declared" else "seen while a command ran, perhaps somebody else's"


def left_alone(receipt: "Receipt") -> str:
    """How many files were left as they are, in words; empty if none."""
    left = [entry for entry in receipt.files if entry.outcome in _LEFT]
    return f"{many(len(left), 'file')} left alone" if left else ""


def _code(receipt: "Receipt") -> int:
    return INCOMPLETE if left_alone(receipt) else DONE
