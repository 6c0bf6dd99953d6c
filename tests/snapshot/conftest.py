"""What tests of snapshots have in common: time is not what they are about."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kedge.snapshot import SnapshotSettings, aio, exclusive
from kedge.snapshot.objects import user_packs
from kedge.snapshot.repository import config, head
from kedge.snapshot.worktree import seed
from tests.support.timeouts import PATIENCE, defaults_of


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is waited for, however loaded the machine is; who tests a wait says how long it is."""
    monkeypatch.setitem(defaults_of(SnapshotSettings), "budget", PATIENCE)
    for name in ("PATIENCE", "SOON"):
        monkeypatch.setattr(exclusive, name, PATIENCE)
    monkeypatch.setattr(config, "_GIT_PATIENCE", PATIENCE)
    monkeypatch.setattr(head, "_GIT_PATIENCE", PATIENCE)
    monkeypatch.setattr(user_packs, "_PATIENCE", PATIENCE)


@pytest.fixture(autouse=True)
def seeding_whenever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small repositories are seeded from as large ones are."""
    monkeypatch.setattr(seed, "FEWEST_FILES", 0)


class _Prompt(ThreadPoolExecutor):
    def submit(self, work: Callable[..., object], /, *given: object) -> Future[object]:  # type: ignore[override]  # as much as is used
        begun = threading.Event()

        def working() -> object:
            begun.set()
            return work(*given)

        job = super().submit(working)
        begun.wait()
        return job


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads begin at once, so that none of a short budget is spent before they do."""
    monkeypatch.setattr(aio, "ThreadPoolExecutor", _Prompt)
