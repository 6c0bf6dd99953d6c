"""The conformance suite of the port `kedge.store.port.Store`; it tests adapters, not programs that
use kedge.

An adapter is right when every check in `STORE_CHECKS` passes, each on an empty database of its own:

    async def fresh_database() -> Database: ...

    await check_store(fresh_database)
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType

from kedge.testing.store import (
    asks,
    boundaries,
    calls,
    concurrency,
    events,
    finals,
    forks,
    history,
    leases,
    lists,
    messages,
    parts,
    pieces,
    plans,
    processes,
    projects,
    prompts,
    search,
    sessions,
    spans,
    tails,
    timeline_pages,
    todos,
    trust,
    undone,
)
from kedge.testing.store.database import Database, StoreCheck

__all__ = ["STORE_CHECKS", "Database", "StoreCheck", "check_store"]


def _checks(module: ModuleType) -> Iterator[StoreCheck]:
    """Every public coroutine function of a module is a check, so that none can be forgotten."""
    for name, found in vars(module).items():
        own = getattr(found, "__module__", None) == module.__name__
        if own and not name.startswith("_") and inspect.iscoroutinefunction(found):
            yield found


_MODULES = (
    sessions,
    lists,
    messages,
    parts,
    pieces,
    todos,
    forks,
    leases,
    asks,
    calls,
    processes,
    prompts,
    events,
    projects,
    search,
    boundaries,
    plans,
    spans,
    finals,
    history,
    timeline_pages,
    tails,
    trust,
    undone,
    concurrency,
)

STORE_CHECKS: tuple[StoreCheck, ...] = tuple(
    check for module in _MODULES for check in _checks(module)
)
"""All checks, to be run one by one: `@pytest.mark.parametrize("check", STORE_CHECKS)`."""


async def check_store(make_database: Callable[[], Awaitable[Database]]) -> None:
    """Run every check on a database of its own; raises an ExceptionGroup of all that failed.

    `make_database` gives a new, empty database each time. Every failure carries a note with the
    check's name.
    """
    failures: list[Exception] = []
    for check in STORE_CHECKS:
        try:
            await check(await make_database())
        except Exception as error:  # noqa: BLE001 - all failures are reported together
            error.add_note(f"in the check {check_name(check)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(
            f"{len(failures)} of {len(STORE_CHECKS)} store checks failed", failures
        )


def check_name(check: StoreCheck) -> str:
    """The name of a check, as a test runner shows it."""
    return str(getattr(check, "__name__", check))
