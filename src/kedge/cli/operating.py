"""What the commands for operators share: they work where no engine can be opened, are refused
inside of an agent's call, and show how far they are."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.consent import refuse_agents
from kedge.cli.exit_codes import REFUSED
from kedge.cli.failure import Failure
from kedge.cli.progress import Progress
from kedge.cli.screen import errors

if TYPE_CHECKING:
    from kedge.maintenance import Progress as Tell


async def refuse_agents_of(options: argparse.Namespace, command: str) -> None:
    """Refuse a command inside of an agent's own call. Where the database cannot be asked, what the
    environment says is enough."""
    from kedge.domain.clock import SystemClock
    from kedge.domain.errors import StoreError
    from kedge.domain.ids import IdMaker
    from kedge.engine.open import open_store
    from kedge.engine.processes import Processes, marked_call
    from kedge.engine.settings import data_folder, database_address

    data, address = data_folder(options.data), database_address(options.database)
    file = data / "kedge.db" if address is None else Path(address)
    if "://" in (address or "") or file.exists():
        try:
            store = await open_store(address, data, IdMaker(SystemClock()))
        except StoreError:
            refuse_marked(command, marked_call())
            return
        try:
            await refuse_agents(Processes(store), command)
        finally:
            await store.close()
    else:
        refuse_marked(command, marked_call())


def refuse_marked(command: str, call: str | None) -> None:
    """Refuse a command if the environment names a call."""
    if call is not None:
        raise Failure(
            f"{command} is for people: this runs inside of an agent's call ({call}), which must"
            " not decide that; run it in a terminal of your own",
            REFUSED,
        )


@contextmanager
def bars() -> Iterator["Tell"]:
    """Shows a bar for each kind of work that takes longer than a second."""
    shown: dict[str, Progress] = {}

    def tell(what: str, done: int, total: int) -> None:
        if what not in shown:
            for each in shown.values():
                each.__exit__(None, None, None)
            shown.clear()
            shown[what] = Progress(what, total or None, errors())
        shown[what].at(done, total or None)

    try:
        yield tell
    finally:
        for each in shown.values():
            each.__exit__(None, None, None)
