"""What tests of programs that use kedge may import; the program itself must not.

`check_store` is the conformance suite for whoever writes a store adapter, `check_snapshots` the one
of snapshots, `Replay` a model of the event log. `kedge.testing.fuzz` tries to fool snapshots.
"""

from kedge.testing.clock import ManualClock
from kedge.testing.replay import Replay, State, state_of
from kedge.testing.snapshots import SNAPSHOT_CHECKS, SnapshotCheck, check_snapshots
from kedge.testing.store import STORE_CHECKS, Database, StoreCheck, check_store

__all__ = [
    "SNAPSHOT_CHECKS",
    "STORE_CHECKS",
    "Database",
    "ManualClock",
    "Replay",
    "SnapshotCheck",
    "State",
    "StoreCheck",
    "check_snapshots",
    "check_store",
    "state_of",
]
