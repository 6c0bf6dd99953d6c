"""Drives a script over a blocking connection; what both a SQLite thread and a PostgreSQL thread
do."""

from collections.abc import Callable
from typing import TypeAlias

from kedge.domain.errors import InvariantBroken
from kedge.store.script import Batch, Emit, Query, Rows, Script, T

Execute: TypeAlias = Callable[[Query | Batch], Rows]

_NO_ROWS: Rows = ()


def drive(script: Script[T], execute: Execute) -> tuple[T, list[Emit]]:
    """Run a script to its end, statement by statement; gives its result and the events it
    announced."""
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
