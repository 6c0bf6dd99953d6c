"""Paths that would lead a revert astray: nothing outside of the worktree is ever read or written,
whatever is put in its way, and the receipt says what could not be done."""

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
from functools import partial
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.domain import wire
from kedge.domain.receipts import Receipt
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.snapshot.files.steps import IN_THE_WAY, temporary_name
from tests.engine.crash_world import left_over
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import names, put, shell, told, tree, turn
from tests.snapshot.hostile_worktree import seen
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[2]
SECRET = "outside of the worktree\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the worktree that looks like one inside of it."""
    place = tmp_path / "outside"
    for name in ("a", "b", "c", "new"):
        put(place / name, SECRET)
    return place


@pytest.fixture
async def session(engine: Engine) -> Session:
    """A session."""
    return await engine.sessions.create()


async def worked(session: Session, folder: Path) -> str:
    """A turn that edits, deletes and makes a file in a folder; gives its prompt."""
    put(folder / "d/a", "old\n")
    put(folder / "d/b", "old\n")
    d = folder / "d"
    return await turn(session, (d / "a", "new\n"), (d / "b", None), (d / "new", "new\n"))


def lead_away(folder: Path, outside: Path) -> None:
    """Put a symlink to outside in the place of a folder."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(outside)


async def test_a_folder_that_became_a_link_is_not_followed(
    session: Session, folder: Path, outside: Path
) -> None:
    """Between the turn and the revert: all of it is a conflict, and the link stays."""
    prompt = await worked(session, folder)
    around, moved = seen(outside), tree(folder / "d")
    lead_away(folder / "d", outside)
    receipt = await session.revert(prompt)
    assert told(receipt) == {"d/a": "conflict", "d/b": "conflict", "d/new": "unchanged"}
    await session.unrevert()
    assert seen(outside) == around
    assert tree(folder / "moved") == moved
    assert (folder / "d").readlink() == outside


DURING = [
    "plan-stored", "before-apply", "before-set-aside", "after-set-aside", "after-delete",
    "before-temporary", "after-temporary", "after-sync", "before-create", "before-exchange",
    "after-exchange", "after-compare", "before-folder-sync",
]  # fmt: skip


@pytest.mark.parametrize("point", DURING)
async def test_a_folder_that_becomes_a_link_is_not_followed(
    session: Session, folder: Path, outside: Path, point: str
) -> None:
    """In the middle of the revert: what was opened is where it was moved to, nothing is outside."""
    prompt = await worked(session, folder)
    around = seen(outside)
    with armed(point, lambda: lead_away(folder / "d", outside)):
        receipt = await session.revert(prompt)
    assert seen(outside) == around
    assert (folder / "d").readlink() == outside
    for path, outcome in told(receipt).items():
        name, done = path.removeprefix("d/"), {"a": "old\n", "b": "old\n"}
        found = folder / "moved" / name
        assert (found.read_text() if found.exists() else None) in {
            "restored": [done.get(name)],
            "recreated": [done.get(name)],
            "deleted": [None, "new\n"],
            "conflict": [{"a": "new\n", "new": "new\n"}.get(name)],
        }[outcome]
    assert left_over(folder) == []


@pytest.mark.parametrize("time", [1, 2])
async def test_a_folder_that_is_just_made_is_not_followed_either(
    session: Session, folder: Path, outside: Path, time: int
) -> None:
    """A link that takes the place of a folder that the revert made: nothing is made outside."""
    put(folder / "d/deep/a", "old\n")
    prompt = await shell(session, partial(shutil.rmtree, folder / "d"))
    around = seen(outside)
    with armed("folder-made", lambda: lead_away(folder / "d", outside), at=time):
        receipt = await session.revert(prompt)
    assert told(receipt) == {"d/deep/a": "conflict"}
    assert seen(outside) == around
    await session.unrevert()
    assert seen(outside) == around


@pytest.mark.parametrize("point", ["plan-stored", "before-set-aside", "before-exchange"])
async def test_a_root_that_becomes_a_link_is_not_followed(
    session: Session, folder: Path, outside: Path, point: str
) -> None:
    """A revert ends in the folder that it began in, wherever that is moved to."""
    prompt = await worked(session, folder)
    shutil.copytree(folder / "d", outside / "d")
    around = seen(outside)

    def swap() -> None:
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(outside)

    with armed(point, swap):
        await session.revert(prompt)
    assert seen(outside) == around
    assert names(folder.with_name("moved") / "d") == ["a", "b"]


async def test_a_file_that_became_a_link_is_not_followed(
    session: Session, folder: Path, outside: Path
) -> None:
    """Neither is what it leads to written, nor is it taken for the session's."""
    prompt = await worked(session, folder)
    around = seen(outside)
    for name in ("a", "new"):
        (folder / "d" / name).unlink()
        (folder / "d" / name).symlink_to(outside / name)
    put(outside / "new", "new\n")
    around = seen(outside)
    receipt = await session.revert(prompt)
    assert told(receipt) == {"d/a": "conflict", "d/b": "recreated", "d/new": "conflict"}
    await session.revert(prompt, strategy="overwrite")
    assert (folder / "d/a").read_text() == "old\n"
    assert not (folder / "d/a").is_symlink()
    await session.unrevert()
    assert (folder / "d/a").readlink() == outside / "a"
    assert seen(outside) == around


@pytest.mark.parametrize("point", ["before-exchange", "before-set-aside", "before-create"])
async def test_a_file_that_becomes_a_link_is_not_followed(
    session: Session, folder: Path, outside: Path, point: str
) -> None:
    """In the last moment before it is replaced, deleted or made: the link stays, a conflict."""
    prompt = await worked(session, folder)
    around = seen(outside)
    name = {"before-exchange": "a", "before-set-aside": "new", "before-create": "b"}[point]

    def swap() -> None:
        (folder / "d" / name).unlink(missing_ok=True)
        (folder / "d" / name).symlink_to(outside / name)

    with armed(point, swap):
        receipt = await session.revert(prompt)
    assert [path for path, outcome in told(receipt).items() if outcome == "conflict"] == [
        f"d/{name}"
    ]
    assert (folder / "d" / name).readlink() == outside / name
    assert seen(outside) == around


async def test_a_trap_at_a_temporary_name_is_not_followed(
    place: EngineFactory, session: Session, folder: Path, outside: Path
) -> None:
    """Who knows the name of the temporary file gains nothing by putting a symlink there."""
    prompt = await worked(session, folder)
    around = seen(outside)

    def trap() -> None:
        with sqlite3.connect(place.database) as database:
            (id,) = database.execute("SELECT id FROM plan").fetchone()
        database.close()
        for number in range(3):
            own = os.fsdecode(temporary_name(id.removeprefix("pln_"), number))
            (folder / "d" / own).symlink_to(outside / "a")

    with armed("before-apply", trap):
        receipt = await session.revert(prompt)
    assert told(receipt) == {"d/a": "skipped", "d/b": "skipped", "d/new": "deleted"}
    assert {entry.reason for entry in receipt.files} == {None, IN_THE_WAY}
    assert seen(outside) == around


async def test_hard_links_are_other_files(session: Session, folder: Path, outside: Path) -> None:
    """Only the name that the session wrote goes back; every other name keeps what it holds."""
    put(folder / "edited", "old\n")
    os.link(folder / "edited", folder / "twin")
    os.link(folder / "edited", outside / "twin")
    before = tree(folder)
    prompt = await turn(session, (folder / "edited", "new\n"), (folder / "made", "new\n"))
    os.link(folder / "made", outside / "made")
    around = tree(outside)
    after = tree(folder)
    receipt = await session.revert(prompt)
    assert told(receipt) == {"edited": "restored", "made": "deleted"}
    assert tree(folder) == {**before, "twin": after["twin"]}
    await session.unrevert()
    assert tree(folder) == after
    assert tree(outside) == around


@pytest.mark.parametrize("inside", [["theirs"], []])
async def test_a_path_that_became_a_folder_stays_one(
    session: Session, folder: Path, inside: list[str]
) -> None:
    """Empty or not, it is somebody else's."""
    put(folder / "edited", "old\n")
    prompt = await turn(session, (folder / "edited", "new\n"), (folder / "made", "new\n"))
    for name in ("edited", "made"):
        (folder / name).unlink()
        (folder / name).mkdir()
        for each in inside:
            put(folder / name / each, "theirs\n")
    before = tree(folder)
    receipt = await session.revert(prompt)
    assert told(receipt)["edited"] == "conflict"
    assert told(receipt)["made"] in ("conflict", "unchanged")
    assert tree(folder) == before
    await session.unrevert()
    assert tree(folder) == before


async def test_a_pipe_is_left_alone(session: Session, folder: Path) -> None:
    """Nobody waits for somebody to write into it."""
    prompt = await worked(session, folder)
    (folder / "d/a").unlink()
    os.mkfifo(folder / "d/a")
    os.mkfifo(folder / "d/b")
    receipt = await session.revert(prompt)
    assert told(receipt) == {"d/a": "conflict", "d/b": "conflict", "d/new": "deleted"}
    assert (folder / "d/a").is_fifo()
    assert (folder / "d/b").is_fifo()


async def test_nothing_is_written_where_git_keeps_its_own(session: Session, folder: Path) -> None:
    """Not even what a tool wrote there itself, whatever case the name is in."""
    files = [folder / "sub/.git/config", folder / "sub/.GIT/hooks/pre-commit"]
    prompt = await turn(session, *((file, "new\n") for file in files))
    before = tree(folder)
    receipt = await session.revert(prompt)
    assert set(told(receipt).values()) == {"skipped"}
    assert all("inside of .git" in (entry.reason or "") for entry in receipt.files)
    await session.unrevert()
    assert tree(folder) == before


NAMES = [
    b"new\nline", b"-rf", b"--", b":(top)colon", b"quo'te\"s", b"back\\slash", b"*", b"$(touch x)",
    b" ", b"tab\t", b"\xff\xfe", b"caf\xc3\xa9", b"\xe2\x80\xae", b"~", b"x" * 255,
]  # fmt: skip


@pytest.mark.parametrize("work", ["declared", "observed"])
async def test_names_are_bytes(session: Session, folder: Path, work: str) -> None:
    """Whatever a name is made of, revert and unrevert find the file, and the receipt tells it."""
    top = os.fsencode(folder)
    for name in NAMES:
        put(Path(os.fsdecode(top + b"/edited " + name[:200] + b"/" + name)), "old\n")
    before = tree(folder)
    files: list[tuple[Path, str | None]] = []
    for name in NAMES:
        files.append((Path(os.fsdecode(top + b"/edited " + name[:200] + b"/" + name)), "new\n"))
        files.append((Path(os.fsdecode(top + b"/made " + name[:200] + b"/" + name)), "new\n"))
    if work == "declared":
        prompt = await turn(session, *files)
    else:
        prompt = await shell(session, *(partial(put, *each) for each in files))
    after = tree(folder)
    receipt = await session.revert(prompt)
    assert [entry.path_bytes for entry in receipt.files] == sorted(
        os.fsencode(path).removeprefix(top + b"/") for path, _ in files
    )
    assert {entry.outcome.value for entry in receipt.files} == {"restored", "deleted"}
    assert plain(tree(folder)) == plain(before)
    assert await session.reverted_diff()
    await session.unrevert()
    assert tree(folder) == after


def plain(found: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """A tree without its folders."""
    return {path: each for path, each in found.items() if each[1] != b"/"}


async def test_what_is_private_stays_private(session: Session, folder: Path) -> None:
    """Through revert and unrevert, and nobody else can read it in between."""
    secret = folder / "secret"
    put(secret, "old\n")
    secret.chmod(0o600)
    prompt = await turn(session, (secret, "new\n"))
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    bits: list[int] = []

    def look() -> None:
        bits.extend(stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir())

    for act in (partial(session.revert, prompt), session.unrevert):
        with armed("after-temporary", look), armed("after-exchange", look):
            await act()
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(bits) == 8
    assert set(bits) == {0o600}


async def test_what_is_read_only_is_told(place: EngineFactory, folder: Path) -> None:
    """A folder that may not be written, or not even read, is left as it is; all else goes back."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        locked, hidden = folder / "locked", folder / "hidden"
        for name in ("locked/a", "locked/b", "hidden/a", "free"):
            put(folder / name, "old\n")
        base = tree(folder)
        prompt = await turn(
            session,
            (locked / "a", "new\n"),
            (locked / "b", None),
            (locked / "new", "new\n"),
            (hidden / "a", "new\n"),
            (folder / "free", "new\n"),
        )
    done = tree(folder)
    locked.chmod(0o555)
    hidden.chmod(0o000)
    reverted, unreverted = await revert_without_privileges(place, session.id, prompt)
    locked.chmod(stat.S_IMODE(done["locked"][0]))
    hidden.chmod(stat.S_IMODE(done["hidden"][0]))
    assert [(entry.path, entry.outcome.value, entry.reason) for entry in reverted.files] == [
        ("free", "restored", None),
        ("hidden/a", "skipped", "its folder cannot be read"),
        ("locked/a", "skipped", "permission denied"),
        ("locked/b", "skipped", "permission denied"),
        ("locked/new", "skipped", "permission denied"),
    ]
    assert told(unreverted) == {"free": "restored"}
    assert tree(folder) == done
    async with place.open() as engine:
        await (await engine.sessions.get(session.id)).revert(prompt)
    assert tree(folder) == base


async def revert_without_privileges(
    place: EngineFactory, session: str, prompt: str
) -> list[Receipt]:
    """The receipts of a revert and an unrevert by a process that permission bits hold for."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.unprivileged_process"),
        *(str(place.folder), place.database, session, prompt),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    return [wire.decode(line, Receipt) for line in said.splitlines()]
