"""Plain git finds a store whole at any moment, also while processes write to it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.snapshot.objects import gc, git_cli, journals, packs, store
from kedge.snapshot.objects.formats import EMPTY_TREE
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import git, keep_files


def assert_whole(folder: Path) -> None:
    """Git has nothing to complain of in a store, in whichever tone."""
    said = git(folder, "fsck", "--full", "--strict", "--no-dangling", also_errors=True)
    assert [line for line in said.splitlines() if not line.startswith("notice: ")] == []


def keep(opened: ObjectStore, session: str, number: int) -> bytes:
    """Keep one more snapshot for a session, durably."""
    tree = keep_files(opened, session, {b"file": b"%d" % number, b"same": b"same"})
    opened.flush()
    return tree


def test_a_sealed_chain_needs_no_other_journal(tmp_path: Path) -> None:
    """What follows a commit in another process's journal is sealed together with that commit."""
    folder = tmp_path / "s"
    with ObjectStore(folder) as running:
        keep(running, "a", 1)
        keep(running, "a", 2)
        with ObjectStore(folder) as short:
            keep(short, "a", 3)
        assert_whole(folder)
        assert git(folder, "rev-list", "--count", "refs/kedge/session/a") == "3\n"
        with ObjectStore(folder) as short:
            keep(running, "a", 4)
            keep(short, "a", 5)
        assert_whole(folder)
        assert git(folder, "rev-list", "--count", "refs/kedge/session/a") == "5\n"
    assert_whole(folder)


def test_a_sealed_fork_needs_no_other_journal(tmp_path: Path) -> None:
    """The same where a session inherits what another process keeps."""
    folder = tmp_path / "s"
    with ObjectStore(folder) as running:
        keep(running, "a", 1)
        with ObjectStore(folder) as short:
            short.inherit("a", "b")
        assert_whole(folder)
        assert git(folder, "rev-list", "--count", "refs/kedge/session/b") == "2\n"


def test_a_sealed_keep_needs_no_other_journal(tmp_path: Path) -> None:
    """The same where a process keeps a tree that another one has put."""
    folder = tmp_path / "s"
    with ObjectStore(folder) as running:
        tree = keep(running, "a", 1)
        with ObjectStore(folder) as short:
            found = short.find(tree)
            assert found is not None
            short.keep("b", files=tree, notes=EMPTY_TREE, base=found.base)
        assert_whole(folder)


def test_a_chain_is_sealed_although_its_beginning_is_lost(tmp_path: Path) -> None:
    """What is in nobody's journal and in no pack cannot be sealed; the rest can."""
    folder = tmp_path / "s"
    with ObjectStore(folder) as running:
        keep(running, "a", 1)
        with ObjectStore(folder) as short:
            tree = keep(short, "a", 2)
            for journal in (folder / "journals").iterdir():
                if journal.name in running._own.names():
                    journal.unlink()
        assert list((folder / "journals").iterdir()) == []
    with ObjectStore(folder) as later:
        assert later.read(tree)


def test_an_unfinished_pack_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has its name, git does not see a pack that is sealed or rewritten."""
    folder = tmp_path / "s"
    looks = []

    def look_first(publish: Callable[..., Path]) -> Callable[..., Path]:
        def looking(*arguments: object) -> Path:
            assert_whole(folder)
            looks.append(git(folder, "count-objects", "-v"))
            return publish(*arguments)

        return looking

    for module in (packs, git_cli):
        monkeypatch.setattr(module, "publish", look_first(module.publish))
    monkeypatch.setattr(gc, "MANY_PACKS", 1)
    for number in range(4):
        with ObjectStore(folder) as opened:
            keep(opened, "a", number)
    with ObjectStore(folder) as opened:
        opened.collect(keep_taken_for=0)
    assert len(looks) == 5
    assert all("packs: 4" in look for look in looks[-1:])


def test_a_store_under_load_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many processes keep, seal and fork, git finds nothing missing."""
    monkeypatch.setattr(journals, "SEAL_OBJECTS", 40)
    monkeypatch.setattr(store, "UNCHANGED_SECONDS", 0)
    folder, over = tmp_path / "s", threading.Event()

    def keep_on(name: str) -> None:
        number = 0
        while not over.is_set():
            with ObjectStore(folder) as opened:
                for _ in range(30):
                    number += 1
                    keep(opened, "abc"[number % 3], number)
                opened.inherit("a", f"{name}{number}")

    with ObjectStore(folder):
        writers = [threading.Thread(target=keep_on, args=(name,)) for name in ("one", "two")]
        for writer in writers:
            writer.start()
        try:
            for _ in range(30):
                assert_whole(folder)
        finally:
            over.set()
            for writer in writers:
                writer.join()
    assert_whole(folder)
