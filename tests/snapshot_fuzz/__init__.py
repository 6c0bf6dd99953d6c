"""A fuzzer for snapshots: a second process changes a worktree, an oracle reads it, both must agree.

    fuzz = Fuzz(folder=folder, seed=7, way="inotify", kind="git", opener=open_limited)
    with fuzz.running():
        for _ in range(100):
            fuzz.round()  # raises Mismatch

`python -m tests.snapshot_fuzz --help` is the same for people. The oracle shares no code with
`kedge.snapshot`, so it can be trusted where that cannot; `opener` may open anything that has the
methods of `kedge.snapshot.Snapshots`.
"""

from tests.snapshot_fuzz.known_files import open_limited
from tests.snapshot_fuzz.oracle import Listing, Standing, read_worktree
from tests.snapshot_fuzz.report import Mismatch
from tests.snapshot_fuzz.rounds import LIMIT, Counts, Fuzz, Kind, Opener, Way

__all__ = [
    "LIMIT",
    "Counts",
    "Fuzz",
    "Kind",
    "Listing",
    "Mismatch",
    "Opener",
    "Standing",
    "Way",
    "open_limited",
    "read_worktree",
]
