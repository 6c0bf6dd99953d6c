"""Transaction scripts: what a query does to the database, written once for every adapter.

A script is a generator. It yields named queries and receives their rows, and yields the events that
announce its changes; an adapter runs it inside one transaction, blocking or not as suits its
database. A script does no I/O of its own and may be run again from the start after a lost race, so
it must not change anything but the database.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kedge.domain.errors import InvariantBroken

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Sequence[Row]


class Query(NamedTuple):
    """One named statement with its arguments.

    A statement without rows gives one: the number of rows it changed.
    """

    name: str
    args: Mapping[str, object]


class Batch(NamedTuple):
    """The same named statement run for each set of arguments; gives no rows."""

    name: str
    args: Sequence[Mapping[str, object]]


class Emit(NamedTuple):
    """An event to store in this transaction; it gets its sequence number at the commit."""

    type: str
    properties: str
    """As JSON text."""
    entity: str
    """The entity whose newest event this is. Empty for events without lasting state."""
    session_id: str | None = None
    project_id: str | None = None
    directory: str | None = None
    progress: bool = False
    """Only reports the progress of a running part: the next event about the part replaces it."""
    after_progress: bool = False
    """Replaces the progress event of the same entity, if there is one."""


Instruction: TypeAlias = Query | Batch | Emit
T = TypeVar("T")
Script: TypeAlias = Generator[Instruction, Rows, T]
ScriptMaker: TypeAlias = Callable[[], Script[T]]


def rows(name: str, /, **args: object) -> Script[Rows]:
    """All rows of a query."""
    return (yield Query(name, args))


def row(name: str, /, **args: object) -> Script[Row | None]:
    """The first row of a query, if there is one."""
    found = yield Query(name, args)
    return found[0] if found else None


def run(name: str, /, **args: object) -> Script[int]:
    """Run a statement that changes something; return how many rows it changed."""
    ((changed,),) = yield Query(name, args)
    return int(changed)


def batch(name: str, args: Sequence[Mapping[str, object]]) -> Script[None]:
    """Run the same statement for many sets of arguments."""
    if args:
        yield Batch(name, args)


Execute: TypeAlias = Callable[[Query | Batch], Rows]

_NO_ROWS: Rows = ()


def drive(script: Script[T], execute: Execute) -> tuple[T, list[Emit]]:
    """Run a script to its end; return its result and the events it announced."""
    events: list[Emit] = []
    try:
        step = next(script)
        while True:
            if type(step) is Emit:
                events.append(step)
                step = script.send(_NO_ROWS)
            elif type(step) is Query or type(step) is Batch:
                step = script.send(execute(step))
            else:
                raise InvariantBroken(f"a script yielded {step!r}")
    except StopIteration as done:
        return done.value, events
    finally:
        script.close()
