"""`kedge trust`: shows what a project's configuration wants, and records the user's trust in it."""

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kedge.cli.consent import agrees, refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DECLINED
from kedge.cli.json_output import show_json
from kedge.cli.location import add_place, open_place
from kedge.cli.screen import output

if TYPE_CHECKING:
    from kedge.config.files import LoadedFile
    from kedge.config.jsonc import KeyPath

ABOUT = """\
The configuration files of a project may choose models, prompts and stricter permissions. Settings
that could send your code or keys elsewhere, run programs or permit more count only after you have
trusted the file. This command shows these settings, asks, and remembers the file with its present
content: when the file changes, it is untrusted again.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_place(command)
    command.add_argument("--json", action="store_true", help="print the list as JSON")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--yes", action="store_true", help="show it, but do not ask")
    what.add_argument("--list", action="store_true", help="only list all trusted files")
    what.add_argument(
        "--revoke", action="store_true", help="stop trusting the files of this project"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.list:
        run_async(_list(options))
        return 0
    if options.revoke:
        run_async(_revoke(options))
        return 0
    wanting = run_async(_look(options))
    if not wanting:
        return 0
    if not options.yes and not agrees("Trust this, for as long as the files stay as they are?"):
        _say("nothing was trusted")
        return DECLINED
    run_async(_trust(options, wanting))
    return 0


async def _list(options: argparse.Namespace) -> None:
    async with open_place(options) as place:
        trusted = await place.trusting.trusted()
    if options.json:
        show_json(output(), trusted)
        return
    if not trusted:
        _say("no file is trusted")
    for file in trusted:
        when = datetime.fromtimestamp(file.time / 1000).astimezone()
        _say(f"{file.path}  since {when:%Y-%m-%d %H:%M}, content {file.digest[:12]}")


async def _revoke(options: argparse.Namespace) -> None:
    async with open_place(options) as place:
        paths = dict.fromkeys(file.path for file in await place.trusting.trusted())
        # Links are not followed: a trusted file is recorded under the name that it had.
        inside = [path for path in paths if path.startswith(place.worktree.rstrip("/") + "/")]
        for path in inside:
            await place.trusting.untrust(path)
            _say(f"no longer trusted: {path}")
        if not inside:
            _say(f"no file of {place.worktree} was trusted")


async def _look(options: argparse.Namespace) -> list["LoadedFile"]:
    """Show what the files of a project want; returns those that need the user's agreement."""
    from kedge.config.load import notices

    async with open_place(options) as place:
        await refuse_agents(place.processes, "kedge trust")
        files = await place.trusting.files(place.directory, place.worktree)
        ours = [file for file in files if file.root is not None]
        if not ours:
            _say(f"there are no configuration files of a project in {place.worktree}")
    wanting = []
    for file in ours:
        if not file.was_read:
            _say(*notices(file))
        elif file.trusted:
            _say(f"{file.path} is trusted already")
        elif wishes := list(_wishes(file)):
            wanting.append(file)
            _say(f"{file.path} wants:", *(f"  {line}" for line in wishes))
        else:
            _say(f"{file.path} wants nothing that needs trust")
    return wanting


async def _trust(options: argparse.Namespace, files: list["LoadedFile"]) -> None:
    async with open_place(options) as place:
        for file in files:
            await place.trusting.trust(file)
            _say(f"trusted: {file.path}")


def _wishes(file: "LoadedFile") -> Iterator[str]:
    """Everything that would count if the file were trusted, with values as they are written and
    never cut off: the user must see what they agree to."""
    from kedge.config.display import dotted, shown

    for path in dict.fromkeys(file.ignored):
        found, value = _find(file.written, path)
        key = dotted(path, whole=True)
        yield f"{key} = {shown(value)}" if found else key
    for action, paths in (("allow", file.allowing), ("ask", file.asking)):
        yield from (f'{dotted(path, whole=True)} = "{action}"' for path in paths)


def _find(value: Any, path: "KeyPath") -> tuple[bool, object]:  # noqa: ANN401 - any JSON
    """The value of a key, also in the old spelling for agents."""
    for n, key in enumerate(path):
        if n == 0 and key == "agent" and "agent" not in value:
            key = "mode"  # noqa: PLW2901 - the same thing by its other name
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False, None
    return True, value


def _say(*lines: str) -> None:
    from kedge.config.display import printable

    for line in lines:
        print(printable(line))
