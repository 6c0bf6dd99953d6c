"""Helpers for the tests of programs that use kedge; the program itself must not import them.

`check_store` is the conformance suite for authors of store adapters, `Replay` a model of the event
log, `ManualClock` a clock that stands still until a test moves it.
"""

from kedge.testing.clock import ManualClock
from kedge.testing.replay import Replay, State, state_of
from kedge.testing.store import STORE_CHECKS, Database, StoreCheck, check_store

__all__ = [
    "STORE_CHECKS",
    "Database",
    "ManualClock",
    "Replay",
    "State",
    "StoreCheck",
    "check_store",
    "state_of",
]
