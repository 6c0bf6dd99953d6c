"""`kedge serve`: runs the HTTP server until a signal stops it."""

import argparse
import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.server.lifecycle import Running

ABOUT = """\
Serve sessions over HTTP, in OpenCode's protocol: `opencode attach http://127.0.0.1:4096` and
OpenCode's SDKs work with it. When it is ready it prints one line with its address. Ctrl-C stops it:
running turns are interrupted and recorded; a second Ctrl-C exits at once.
"""
_MORE = """\
environment:
  KEDGE_SERVER_PASSWORD     password for clients (HTTP Basic); required to listen on other addresses
  KEDGE_SERVER_USERNAME     user name for clients; "opencode" unless set
  KEDGE_DATA_DIR            as --data
  KEDGE_DATABASE_URL        as --database
OPENCODE_SERVER_PASSWORD and OPENCODE_SERVER_USERNAME are read as well.

examples:
  kedge serve                                 this folder, on http://127.0.0.1:4096
  kedge serve --port 0 ~/project              any free port
  KEDGE_SERVER_PASSWORD=... kedge serve --hostname 0.0.0.0
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.epilog = _MORE
    command.add_argument(
        "directory",
        nargs="?",
        default=".",
        metavar="DIRECTORY",
        help="directory for clients that name none (default: the current one)",
    )
    command.add_argument(
        "--hostname", default="127.0.0.1", help="address to listen on (%(default)s)"
    )
    command.add_argument(
        "--port", type=int, default=4096, help="port; 0 picks a free one (%(default)s)"
    )
    command.add_argument("--data", metavar="DIR", help="folder for all data")
    command.add_argument("--database", metavar="URL", help="a file, or a postgresql:// URL")
    command.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="allow a web page's origin, such as https://example.com; may be repeated",
    )
    command.add_argument(
        "--root", metavar="DIR", help="refuse clients that work outside of this folder"
    )
    command.add_argument(
        "--prompt-age",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="after a restart, run prompts that were not started yet if they are at most this old;"
        " older ones are marked as not run (%(default)g)",
    )
    command.add_argument(
        "--commands-may-grant",
        action="store_true",
        help="let the agent's commands use this server like other clients, so that they can answer"
        " permission requests and send prompts; see docs/security.md",
    )
    command.add_argument(
        "--verbose",
        action="store_true",
        help="log each request, and log messages of clients, to standard error",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from kedge.engine.settings import Settings, database_address
    from kedge.engine.worktrees import find_directory
    from kedge.errors import InvalidInput
    from kedge.server.granian import find_address
    from kedge.server.grants import can_tell
    from kedge.server.lifecycle import run as serve
    from kedge.server.settings import (
        ServerSettings,
        forget_secrets,
        password_in,
        username_in,
    )

    # Check the host name before asking for a password.
    find_address(options.hostname, 0)
    settings = ServerSettings(
        hostname=options.hostname,
        port=options.port,
        cors=tuple(options.cors),
        root=None if options.root is None else find_directory(options.root),
        password=password_in(os.environ),
        username=username_in(os.environ),
        log_requests=options.verbose,
        commands_may_grant=options.commands_may_grant or not can_tell(),
    )
    directory = find_directory(options.directory)
    if not settings.allows(directory):
        raise InvalidInput(
            f"{directory} is outside of the root; give a DIRECTORY in {settings.root}"
        )
    if options.verbose:
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("kedge").setLevel(logging.INFO)
    _warn_of_shown(settings.password)
    database = database_address(options.database)
    forget_secrets(os.environ)
    asyncio.run(
        serve(
            _announce,
            _explain,
            directory=directory,
            settings=settings,
            engine_settings=Settings(prompt_age=options.prompt_age),
            data_dir=options.data,
            database=database,
        )
    )
    return 0


def _warn_of_shown(password: str | None) -> None:
    from kedge.cli.secrets import shown_above

    if password and (process := shown_above(password)) is not None:
        print(
            f"kedge: the environment of process {process}, which started this server, shows the"
            " password to commands of the same user",
            file=sys.stderr,
        )


def _announce(running: "Running") -> None:
    print(f"kedge listening on {running.url}", flush=True)


async def _explain(running: "Running") -> None:
    """Print the overview of the server to standard error."""
    from kedge.config.display import printable
    from kedge.domain.errors import KedgeError
    from kedge.server.overview import lines, local_url, overview_of

    backend = running.backend
    url = local_url(running.url, backend.settings.hostname)
    try:
        overview = await overview_of(backend, backend.engine.place, url)
    except KedgeError as error:
        print(f"kedge: {printable(str(error))}", file=sys.stderr)
        return
    said = [f"kedge: {printable(line)}\n" for line in lines(overview)]
    # In one write, so that no other line gets in between.
    sys.stderr.write("".join(said))
    sys.stderr.flush()
