"""`kedge backup`: makes backups beside running servers, and restores them."""

import argparse
from typing import TYPE_CHECKING

from kedge.cli.consent import refuse_agents_of
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, INCOMPLETE
from kedge.cli.json_output import as_json, show_json
from kedge.cli.location import add_data
from kedge.cli.parser import add_json
from kedge.cli.progress import bars
from kedge.cli.screen import Screen, one_line, output
from kedge.cli.times import many, size

if TYPE_CHECKING:
    from kedge.maintenance import Finding, Manifest

ABOUT = """\
Make a backup of all sessions and snapshots, or restore one. A backup is made while servers and
agents go on; it is a folder, or one file if its name ends in .tar.
"""

_CREATE = """\
Make a backup. Rows are copied as they are at one moment, then the contents that they need. What has
the name of the backup is a whole one: it gets it last.
"""
_RESTORE = """\
Restore a backup into an empty folder, and examine it. Every file is checked. Turns that ran when
the backup was made are ended, and clients read everything anew. Move the folder to its place when
no kedge runs, or name it with --data from then on.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the commands below this one."""
    below = command.add_subparsers(metavar="create|restore", required=True, help="what to do")
    create = below.add_parser("create", help="make a backup", description=_CREATE)
    create.add_argument("target", metavar="FILE-OR-FOLDER", help="what does not exist yet")
    create.add_argument(
        "--without-rows",
        action="store_true",
        help="only snapshots: with PostgreSQL, after pg_dump has saved the rows",
    )
    create.set_defaults(act=_create)
    restore = below.add_parser("restore", help="restore a backup", description=_RESTORE)
    restore.add_argument("source", metavar="FROM", help="a backup")
    restore.set_defaults(act=_restore)
    for each in (create, restore):
        add_json(each)
        add_data(each)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    code: int = run_async(options.act(options))
    return code


async def _create(options: argparse.Namespace) -> int:
    from kedge.maintenance import create_backup

    with bars() as tell:
        manifest = await create_backup(
            options.target,
            data_dir=options.data,
            database=options.database,
            without_rows=options.without_rows,
            progress=tell,
        )
    screen = output()
    if options.json:
        show_json(screen, {"target": options.target, **_described(manifest)})
    else:
        screen.line(f"{one_line(options.target)}: {_told(manifest)}")
    return DONE


async def _restore(options: argparse.Namespace) -> int:
    from kedge.maintenance import examine, restore_backup

    # In the database that is in use: the other folder has none yet.
    await refuse_agents_of(argparse.Namespace(data=None, database=None), "kedge backup restore")
    with bars() as tell:
        done = await restore_backup(
            options.source, data_dir=options.data, database=options.database, progress=tell
        )
        database = None if done.manifest.has_rows else options.database
        report = await examine(data_dir=done.data, database=database, progress=tell)
    screen = output()
    if options.json:
        found = [as_json(each) for each in report.findings]
        described = {"data": str(done.data), "ended": done.ended, "findings": found}
        show_json(screen, {**described, "healthy": report.is_healthy, **_described(done.manifest)})
    else:
        screen.line(f"{one_line(str(done.data))}: {_told(done.manifest)}")
        if done.ended:
            screen.line(f"{many(len(done.ended), 'run')} of then ended: {', '.join(done.ended)}")
        for each in report.findings:
            _show(screen, each)
        screen.line(f"to use it: kedge serve --data {one_line(str(done.data))}")
    return DONE if report.is_healthy else INCOMPLETE


def _show(screen: Screen, finding: "Finding") -> None:
    screen.line(f"{finding.severity} {finding.code}  {one_line(finding.what)}")


def _told(manifest: "Manifest") -> str:
    rows = "" if manifest.has_rows else ", without rows"
    return f"{many(len(manifest.files), 'file')}, {size(manifest.size)}{rows}"


def _described(manifest: "Manifest") -> dict[str, object]:
    return {
        "created": manifest.created,
        "kedge": manifest.kedge,
        "source": manifest.source,
        "rows": manifest.has_rows,
        "files": len(manifest.files),
        "bytes": manifest.size,
    }
