"""Snapshots through an engine: one for each worktree, closed with the engine."""

import asyncio
from pathlib import Path

import pytest

import kedge
from kedge.errors import EngineClosed
from kedge.snapshot import Protection


async def test_sessions_of_one_worktree_share_its_snapshots(tmp_path: Path) -> None:
    """A session has the snapshots of its worktree, whoever asks for them at the same time."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("one\n")
    async with kedge.open(root, data_dir=tmp_path / "data") as engine:
        first, second = await engine.sessions.create(), await engine.sessions.create()
        one, two, three = await asyncio.gather(
            first.snapshots(), second.snapshots(), engine.snapshots()
        )
        assert one is two is three
        snapshot = await one.track(session=first.id)
        (root / "a").write_text("two\n")
        await two.restore(snapshot)
        assert (root / "a").read_text() == "one\n"
    with pytest.raises(EngineClosed):
        await engine.snapshots()
    async with kedge.open(root, data_dir=tmp_path / "data") as engine:
        again = await engine.snapshots()
        assert (await again.track()).id == snapshot.id


async def test_the_settings_reach_the_snapshots(tmp_path: Path) -> None:
    """What the engine was told about files holds for its snapshots."""
    root = tmp_path / "root"
    root.mkdir()
    for name in "abc":
        (root / name).write_text(name)
    settings = kedge.Settings(snapshot_files=2, snapshot_budget=600.5, snapshot_file_size=10)
    async with kedge.open(root, data_dir=tmp_path / "data", settings=settings) as engine:
        snapshots = await (await engine.sessions.create()).snapshots()
        with pytest.raises(kedge.errors.SnapshotRefused, match="snapshot_files"):
            await snapshots.track()
        assert snapshots.status().protection is Protection.REFUSED
        assert snapshots.snapshots.settings.budget == 600.5
        assert snapshots.snapshots.settings.file_size == 10
