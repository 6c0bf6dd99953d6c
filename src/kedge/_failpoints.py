"""Named places between the first and the last write of an undo, a tool or a turn, at which a test
can stop or kill the process.

`KEDGE_FAILPOINT=name` in the environment kills the process with SIGKILL when it reaches the place
for the first time, `name:3` for the third.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from kedge.domain.errors import InvalidInput

POINTS = (
    # A revert, around all that it does to files.
    "plan-stored",
    "before-apply",
    "after-apply",
    "before-outcome",
    "after-outcome",
    # Writing files, in the order in which a file comes by them.
    "folder-made",
    "before-temporary",
    "after-temporary",
    "after-sync",
    "before-create",
    "after-create",
    "before-exchange",
    "after-exchange",
    "after-compare",
    "after-replace",
    "before-set-aside",
    "after-set-aside",
    "after-delete",
    "folder-removed",
    "before-folder-sync",
    "after-folder-sync",
    # Putting in order what a crash left.
    "before-settle",
    "after-settle",
)
"""The places that an undo comes by."""

TOOL_POINTS = (
    # A tool that writes files, before it touches the first and after the last.
    "steps-stored",
    "steps-done",
)
"""Those that only a tool comes by; in between, it writes files as an undo does."""

RUN_POINTS = (
    # A prompt is stored and a run has it, and nothing of an answer is.
    "turn-begun",
    # A step is over, and nothing of the next one is there.
    "step-ended",
)
"""Those that a turn comes by."""

SUMMARY_POINTS = (
    # A compaction is asked for or due, and nothing of its summary is stored.
    "summary-due",
    # The summary has begun.
    "summary-begun",
    # It is written, and does not count yet.
    "summary-written",
    # It counts, and nothing of the next step is there.
    "summary-stored",
)
"""Those that a compaction comes by."""

_VARIABLE = "KEDGE_FAILPOINT"
_armed: dict[str, Callable[[], None]] = {}


def reach(name: str) -> None:
    """Say that a place is reached."""
    if name in _armed:
        _armed[name]()


@contextmanager
def armed(name: str, act: Callable[[], None], *, at: int = 1) -> Iterator[None]:
    """Have something done when a place is reached for the so-many-th time in the block."""
    _arm(name, act, at)
    try:
        yield
    finally:
        del _armed[name]


def _arm(name: str, act: Callable[[], None], at: int) -> None:
    if name not in POINTS + TOOL_POINTS + RUN_POINTS + SUMMARY_POINTS:
        raise InvalidInput(f"there is no fail point {name!r}")
    times = count(1)

    def reached() -> None:
        if next(times) == at:
            act()

    _armed[name] = reached


def _arm_from(variable: str) -> None:
    name, _, at = variable.partition(":")
    _arm(name, _die, int(at or 1))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if _VARIABLE in os.environ:
    _arm_from(os.environ[_VARIABLE])
