"""Processes killed while write, edit and apply_patch change files: nothing is left beside the
files, nobody's bytes are lost, and a revert takes back exactly what the call had done."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import pytest

import kedge
from kedge._failpoints import POINTS, TOOL_POINTS
from kedge.domain.parts import ToolError, ToolPart
from kedge.engine.engine import Engine
from kedge.engine.revert import prepare
from kedge.engine.session import Session
from kedge.engine.settings import data_folder
from kedge.snapshot.files.locks import FileLocks
from kedge.store.queries.retention import stop_and_delete
from kedge.store.queries.timeline import calls_of_machine
from tests.agent.tools.writer_process import Order
from tests.engine.crash_world import files, left_over
from tests.engine.revert.scene import tree
from tests.engine.revert_process import save
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[3]
LONG = pytest.mark.torture
SAVED = "somebody's day's work\n"

PATCH = """\
*** Begin Patch
*** Update File: a.txt
@@
 one
-two
+zwei
*** Add File: sub/new.txt
+new
*** Delete File: old.txt
*** Update File: m.txt
*** Move to: deep/moved.txt
@@
-m
+M
*** End Patch
"""
BEFORE = {"a.txt": b"one\ntwo\n", "old.txt": b"old\n", "m.txt": b"m\n"}
PATCHED = {"a.txt": b"one\nzwei\n", "sub/new.txt": b"new\n", "deep/moved.txt": b"M\n"}
MODES = {"a.txt": 0o755, "m.txt": 0o700}


@dataclass(frozen=True)
class Job:
    """A call, and the files that it leads to."""

    tool: str
    input: Mapping[str, Any]
    after: Mapping[str, bytes]
    reads: tuple[str, ...] = ()


JOBS = {
    "new": Job(
        "write",
        {"filePath": "sub/new.txt", "content": "new\n"},
        {**BEFORE, "sub/new.txt": b"new\n"},
    ),
    "write": Job(
        "write",
        {"filePath": "a.txt", "content": "all new\n"},
        {**BEFORE, "a.txt": b"all new\n"},
        ("a.txt",),
    ),
    "edit": Job(
        "edit",
        {"filePath": "a.txt", "oldString": "two", "newString": "zwei"},
        {**BEFORE, "a.txt": b"one\nzwei\n"},
    ),
    "patch": Job("apply_patch", {"patchText": PATCH}, PATCHED),
}
POINTS_OF = {
    "new": [
        "steps-stored", "folder-made", "before-temporary", "after-temporary", "after-sync",
        "before-create", "after-create", "before-folder-sync", "after-folder-sync", "steps-done",
    ],
    "edit": [
        "steps-stored", "before-temporary", "after-temporary", "after-sync", "before-exchange",
        "after-exchange", "after-compare", "after-replace", "before-folder-sync",
        "after-folder-sync", "steps-done",
    ],
}  # fmt: skip
POINTS_OF["write"] = POINTS_OF["edit"]
NOT_FOR_TOOLS = ("plan-stored", "folder-removed", "before-settle", "after-settle")
POINTS_OF["patch"] = [
    point
    for point in (*POINTS, *TOOL_POINTS)
    if point not in NOT_FOR_TOOLS and not point.endswith(("apply", "outcome"))
]
EVERY = [(job, point) for job, points in POINTS_OF.items() for point in points]
SHORT = [each for each in EVERY if each[0] == "patch"] + [
    ("new", "before-create"),
    ("edit", "after-exchange"),
    ("write", "before-exchange"),
]
ALL = [*SHORT, *(pytest.param(*each, marks=LONG) for each in EVERY if each not in SHORT)]


@dataclass(frozen=True)
class World:
    """A worktree with a few files, and a session for the process that dies."""

    folder: Path
    database: str
    session: str

    @classmethod
    async def made(cls, root: Path, database: str | None = None) -> "World":
        """Lay the files."""
        folder = root / "work"
        folder.mkdir(parents=True)
        for name, content in BEFORE.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(MODES.get(name, 0o644))
        address = database or str(root / "kedge.db")
        async with kedge.open(folder, database=address) as engine:
            return cls(folder, address, (await engine.sessions.create()).id)

    async def runs(self, job: Job, point: str, **options: Any) -> int:  # noqa: ANN401
        """Have a process do a job; gives how it ended."""
        known = {"tool": job.tool, "input": job.input, "reads": list(job.reads), **options}
        return await self._start(point, known)

    async def recovers(self, point: str) -> int:
        """Have a process open an engine, and no more."""
        return await self._start(point, {})

    async def dies(self, job: Job, point: str, **options: Any) -> None:  # noqa: ANN401
        """Have a process be killed in the middle of a job."""
        assert await self.runs(job, point, **options) == -signal.SIGKILL

    async def _start(self, point: str, known: Mapping[str, Any]) -> int:
        text = msgspec.json.encode({"session": self.session, **known}).decode()
        msgspec.json.decode(text, type=Order)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.agent.tools.writer_process"),
            *(str(self.folder), self.database, text),
            cwd=ROOT,
            env={**os.environ, "KEDGE_FAILPOINT": point},
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(PATIENCE):
            return await process.wait()

    @asynccontextmanager
    async def reopened(self, **options: Any) -> AsyncIterator[tuple[Engine, Session]]:  # noqa: ANN401
        """The next process: it has found what the dead one left."""
        async with kedge.open(self.folder, database=self.database, **options) as engine:
            yield engine, await engine.sessions.get(self.session)

    @property
    def found(self) -> dict[str, bytes]:
        """The content of every file, kedge's own included."""
        return {path: content for path, (_, content) in files(tree(self.folder)).items()}


async def told(session: Session) -> tuple[str, str]:
    """The prompt of the last call, and what became of the call."""
    *_, prompt, answer = (await session.messages()).messages
    (part,) = [part for part in answer.parts if isinstance(part, ToolPart)]
    assert isinstance(part.state, ToolError)
    return prompt.info.id, part.state.error


def assert_old_or_new(found: Mapping[str, bytes], job: Job) -> set[str]:
    """Each file is as before or as the call wanted it; gives those that are as it wanted them."""
    for path in {*found, *BEFORE, *job.after}:
        assert found.get(path) in (BEFORE.get(path), job.after.get(path)), path
    return {
        path
        for path in {*BEFORE, *job.after}
        if found.get(path) == job.after.get(path) != BEFORE.get(path)
    }


async def assert_recovered(world: World, job: Job, before: Mapping[str, object]) -> None:
    """What a dead process left is in order, told of, and can be undone and redone."""
    async with world.reopened() as (engine, session):
        assert left_over(world.folder) == []
        done = assert_old_or_new(world.found, job)
        prompt, error = await told(session)
        words = error.replace(",", "").removesuffix(".").split()
        assert {path for path in {*BEFORE, *job.after} if path in words} == done
        assert ("No file was changed" in error) == (not done)
        now = tree(world.folder)
        receipt = await session.revert(prompt)
        assert {entry.path for entry in receipt.files} == done
        assert {entry.source for entry in receipt.files} <= {"declared"}
        assert tree(world.folder) == before
        await session.unrevert()
        assert files(tree(world.folder)) == files(now)
        machine = engine.timeline.machine
        assert await engine.store.scan(partial(calls_of_machine, machine)) == []


@pytest.mark.parametrize(("job", "point"), ALL)
async def test_killed_anywhere(tmp_path: Path, job: str, point: str) -> None:
    """Each file is old or new, and a revert takes back those that are new."""
    world = await World.made(tmp_path)
    before = tree(world.folder)
    await world.dies(JOBS[job], point)
    await assert_recovered(world, JOBS[job], before)


@pytest.mark.parametrize("point", ["after-temporary", "after-exchange", "after-set-aside"])
async def test_killed_with_postgresql(tmp_path: Path, postgres_url: str, point: str) -> None:
    """The same on the other kind of database."""
    world = await World.made(tmp_path, postgres_url)
    before = tree(world.folder)
    await world.dies(JOBS["patch"], point)
    await assert_recovered(world, JOBS["patch"], before)


@LONG
@pytest.mark.parametrize("point", POINTS_OF["patch"])
async def test_killed_each_time_it_comes_by(tmp_path: Path, point: str) -> None:
    """At the second file, the third, and so on."""
    for time in count(2):
        world = await World.made(tmp_path / str(time))
        before = tree(world.folder)
        if await world.runs(JOBS["patch"], f"{point}:{time}") == 0:
            break
        await assert_recovered(world, JOBS["patch"], before)


BACK = """\
*** Begin Patch
*** Update File: a.txt
@@
 one
-zwei
+two
*** Delete File: sub/new.txt
*** Add File: old.txt
+old
*** Update File: deep/moved.txt
*** Move to: m.txt
@@
-M
+m
*** End Patch
"""
KILLS = 100


@LONG
async def test_killed_at_any_time(tmp_path: Path) -> None:
    """A process that patches files to and fro, killed again and again: each time nothing is left,
    each file is old or new, and a revert of all leads back to the beginning."""
    world = await World.made(tmp_path)
    chance = Random(7)
    for _ in range(KILLS):
        order = {
            "session": world.session,
            "tool": "apply_patch",
            "input": {"patchText": PATCH},
            "back": {"patchText": BACK},
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.agent.tools.writer_process"),
            *(str(world.folder), world.database, msgspec.json.encode(order).decode()),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.read(1) == b"."
        # Until it is somewhere: there is no event to wait for.
        await asyncio.sleep(chance.uniform(0, 0.2))
        process.kill()
        await process.communicate()
        async with world.reopened() as (engine, session):
            assert left_over(world.folder) == []
            assert_old_or_new(world.found, JOBS["patch"])
            await session.revert((await session.messages()).messages[0].info.id)
            assert world.found == BEFORE
            world = replace(world, session=(await engine.sessions.create()).id)
    print(f"{KILLS} kills, nothing left behind and nothing lost")  # noqa: T201 - the figure


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize("point", ["before-settle", "after-settle"])
async def test_killed_again_while_that_is_put_in_order(
    tmp_path: Path, point: str, swaps: bool
) -> None:
    """It does not matter how many processes it takes."""
    world = await World.made(tmp_path)
    before = tree(world.folder)
    first = "after-exchange" if swaps else "after-set-aside"
    await world.dies(JOBS["patch"], first, swaps=swaps)
    for time in (1, 2, 3):
        assert await world.recovers(f"{point}:{time}") == -signal.SIGKILL
    await assert_recovered(world, JOBS["patch"], before)


async def test_killed_while_it_takes_files_back(tmp_path: Path) -> None:
    """A patch that cannot be applied whole is taken back; killed in the middle of that, each file
    is old or new, and what somebody saved is there."""
    world = await World.made(tmp_path)
    saves = {"after-delete": ("m.txt", SAVED)}
    await world.dies(JOBS["patch"], "before-create:3", saves=saves)
    async with world.reopened() as (_, session):
        assert left_over(world.folder) == []
        found = world.found
        assert found.pop("m.txt") == SAVED.encode()
        assert_old_or_new({**found, "m.txt": BEFORE["m.txt"]}, JOBS["patch"])
        prompt, _ = await told(session)
        await session.revert(prompt)
        assert world.found == {**BEFORE, "m.txt": SAVED.encode()}


async def test_what_cannot_be_put_back_stays_where_it_was_moved(tmp_path: Path) -> None:
    """A patch that is taken back does not delete the only copy that is left."""
    world = await World.made(tmp_path)
    outside = laid_outside(tmp_path, {"x": "x\n", "y": "y\n"})
    job = patch(
        f"*** Update File: {outside / 'x'}\n*** Move to: {outside / 'moved x'}",
        f"*** Update File: {outside / 'y'}\n*** Move to: {outside / 'moved y'}",
    )
    # The second deletion fails, and then there is no room for what the first one deleted.
    saves = {
        "after-create": (str(outside / "y"), SAVED),
        "after-delete": (str(outside / "x"), SAVED),
    }
    assert await world.runs(job, "steps-done", saves=saves) == 1
    found = contents_of(outside)
    assert (found["x"], found["y"], found["moved x"]) == (SAVED, SAVED, "x\n")
    async with world.reopened() as (_, session):
        _, error = await told(session)
    stays = [outside / name for name in ("x", "moved y", "moved x")]
    assert f"could not be taken back: {', '.join(map(str, stays))}." in error


async def test_no_file_makes_room_for_a_folder(tmp_path: Path) -> None:
    """Nor the other way round, so that no deletion has to come before a write."""
    world = await World.made(tmp_path)
    for outside in (world.folder, laid_outside(tmp_path, {})):
        (outside / "folder").mkdir()
        for path in (outside / "file", outside / "folder" / "file"):
            path.write_text("x\n")
        before = tree(outside)
        for job in (
            patch(f"*** Update File: {outside / 'file'}\n*** Move to: {outside / 'file' / 'x'}"),
            patch(
                f"*** Delete File: {outside / 'folder' / 'file'}",
                f"*** Add File: {outside / 'folder'}\n+x",
            ),
        ):
            assert await world.runs(job, "steps-stored") == 1
            assert tree(outside) == before


@pytest.mark.parametrize(
    "point",
    [
        *("after-exchange", "after-set-aside", "steps-done"),
        *(pytest.param(point, marks=LONG) for point in POINTS_OF["patch"][::-1]),
    ],
)
@pytest.mark.parametrize("deed", ["save", "delete", "rename"])
async def test_what_a_person_does_before_the_next_start(
    tmp_path: Path, deed: str, point: str
) -> None:
    """To files that the call was writing, and to others: theirs stays, through revert and
    unrevert."""
    world = await World.made(tmp_path)
    await world.dies(JOBS["patch"], point)
    paths = {path for path in (*BEFORE, *PATCHED) if crc32(f"{point} {path}".encode()) % 2}
    theirs = act(world.folder, deed, paths)
    async with world.reopened() as (_, session):
        assert_theirs(world, theirs)
        prompt, _ = await told(session)
        for undo in (session.revert, session.unrevert):
            await (undo(prompt) if undo == session.revert else undo())  # type: ignore[call-arg]
            assert_theirs(world, theirs)
    assert left_over(world.folder) == []


def act(folder: Path, deed: str, paths: set[str]) -> dict[str, bytes | None]:
    """Do something to files; gives what should be where from then on."""
    theirs: dict[str, bytes | None] = {"theirs.txt": b"new"}
    (folder / "theirs.txt").write_bytes(b"new")
    for path in sorted(paths):
        place = folder / path
        if deed == "save":
            place.parent.mkdir(exist_ok=True)
            save(place, f"{path} {SAVED}")
            theirs[path] = f"{path} {SAVED}".encode()
        elif place.exists():
            content = place.read_bytes()
            if path in PATCHED:
                # What the call was to delete counts as deleted by it: a revert brings it back.
                theirs[path] = None
            if deed == "delete":
                place.unlink()
            else:
                place.rename(folder / f"renamed {place.name}")
                theirs[f"renamed {place.name}"] = content
    return theirs


def assert_theirs(world: World, theirs: Mapping[str, bytes | None]) -> None:
    """What a person did is as they did it."""
    found = world.found
    assert {path: found.get(path) for path in theirs} == theirs


@pytest.mark.parametrize("job", ["edit", "patch"])
async def test_a_save_in_the_last_moment_goes_back_in_place(tmp_path: Path, job: str) -> None:
    """Saved between the look and the exchange, and then the process died: it is theirs again, and
    the call says so."""
    world = await World.made(tmp_path)
    saves = {"before-exchange": ("a.txt", SAVED)}
    await world.dies(JOBS[job], "after-exchange", saves=saves)
    assert world.found["a.txt"] == JOBS[job].after["a.txt"]
    async with world.reopened() as (_, session):
        assert left_over(world.folder) == []
        assert world.found["a.txt"] == SAVED.encode()
        prompt, error = await told(session)
        assert "a.txt: it was changed at the last moment." in error
        receipt = await session.revert(prompt)
        (entry,) = [each for each in receipt.files if each.path == "a.txt"]
        assert entry.outcome == "shared"
        assert world.found == {**BEFORE, "a.txt": SAVED.encode()}


async def test_two_saves_are_both_kept(tmp_path: Path) -> None:
    """Of one in the last moment and one after the crash, the newer is in place, the older beside
    it, under a name that the call tells."""
    world = await World.made(tmp_path)
    saves = {"before-exchange": ("a.txt", SAVED)}
    await world.dies(JOBS["edit"], "after-exchange", saves=saves)
    save(world.folder / "a.txt", "saved once more\n")
    async with world.reopened() as (_, session):
        (kept,) = left_over(world.folder)
        assert not kept.endswith("~")
        _, error = await told(session)
        assert error.endswith(f"one version is kept as {kept}.")
        assert world.found["a.txt"] == b"saved once more\n"
        assert world.found[kept] == SAVED.encode()


async def test_folders_that_were_made_for_nothing(tmp_path: Path) -> None:
    """They go, inside of the worktree and outside, unless somebody uses them by now."""
    world = await World.made(tmp_path)
    outside = tmp_path / "outside" / "deep" / "new.txt"
    for path in ("one/deep/new.txt", "two/deep/new.txt", str(outside)):
        job = Job("write", {"filePath": path, "content": "new\n"}, BEFORE)
        await world.dies(job, "before-create")
        if path.startswith("two"):
            (world.folder / "two" / "theirs.txt").write_text("theirs\n")
    async with world.reopened():
        assert not outside.parents[1].exists()
        theirs = {"two/theirs.txt": b"theirs\n"}
        assert {path: data for path, (_, data) in tree(world.folder).items()} == {
            **BEFORE,
            "two": b"/",
            **theirs,
        }


OUTSIDE = ("before-exchange", "after-exchange", "after-compare", "after-replace")


@pytest.mark.parametrize(
    ("point", "swaps"),
    [
        *((point, True) for point in OUTSIDE),
        *(pytest.param(point, True, marks=LONG) for point in POINTS_OF["edit"]),
        *((point, False) for point in ("after-sync", "after-set-aside", "steps-done")),
    ],
)
async def test_outside_of_the_worktree(tmp_path: Path, point: str, swaps: bool) -> None:
    """Nothing is left there either, and what only a temporary file holds is put back."""
    world = await World.made(tmp_path)
    file = tmp_path / "outside" / "file"
    file.parent.mkdir()
    file.write_text("uno\ndos\n")
    job = Job("edit", {"filePath": str(file), "oldString": "dos", "newString": "tres"}, BEFORE)
    await world.dies(job, point, swaps=swaps)
    held = {each.read_bytes() for each in file.parent.iterdir()}
    async with world.reopened() as (_, session):
        assert [each.name for each in file.parent.iterdir()] == ["file"]
        is_new = file.read_text() == "uno\ntres\n"
        assert is_new or file.read_text() == "uno\ndos\n"
        assert not is_new or b"uno\ndos\n" not in held
        prompt, error = await told(session)
        assert (str(file) in error) == is_new
        receipt = await session.revert(prompt)
        assert [(each.path, each.outcome) for each in receipt.files] == (
            [(str(file), "skipped")] if is_new else []
        )


def patch(*files: str) -> Job:
    """A patch of a few files."""
    text = "\n".join(["*** Begin Patch", *files, "*** End Patch"])
    return Job("apply_patch", {"patchText": text}, {})


def laid_outside(root: Path, texts: Mapping[str, str]) -> Path:
    """A folder outside of the worktree, with files."""
    folder = root / "outside"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def contents_of(folder: Path) -> dict[str, str]:
    """The text of each file of a folder, kedge's own included."""
    return {each.name: each.read_text() for each in folder.iterdir()}


MOVING = ("before-create", "after-create", "before-set-aside", "after-set-aside", "after-delete")


@pytest.mark.parametrize("point", MOVING)
@pytest.mark.parametrize("protects", [True, False])
async def test_a_move_where_nothing_is_kept(tmp_path: Path, protects: bool, point: str) -> None:
    """At any time, one of the two names has the text."""
    world = await World.made(tmp_path)
    folder = laid_outside(tmp_path, {"old": "text\n"}) if protects else world.folder
    (folder / "old").write_text("text\n")
    job = patch(f"*** Update File: {folder / 'old'}\n*** Move to: {folder / 'new'}")
    await world.dies(job, point, protects=protects)
    async with world.reopened(settings=kedge.Settings(snapshots=protects)):
        found = contents_of(folder)
    assert {name: found.get(name) for name in ("old", "new")} == {
        "old": None if point == "after-delete" else "text\n",
        "new": None if point == "before-create" else "text\n",
    }
    assert left_over(folder) == []


@pytest.mark.parametrize("other", ["*** Add File: {}/c\n+A", "*** Update File: {}/b\n@@\n-B\n+A"])
@pytest.mark.parametrize("swaps", [True, False])
async def test_a_content_that_another_file_was_to_get(
    tmp_path: Path, other: str, swaps: bool
) -> None:
    """It is not anywhere yet: what is beside the first file goes back in place."""
    world = await World.made(tmp_path)
    folder = laid_outside(tmp_path, {"a": "A\n", "b": "B\n"})
    job = patch(f"*** Update File: {folder}/a\n@@\n-A\n+B", other.format(folder))
    await world.dies(job, "after-exchange" if swaps else "after-set-aside", swaps=swaps)
    async with world.reopened():
        assert contents_of(folder) == {"a": "A\n", "b": "B\n"}


async def test_a_content_that_another_file_has_by_now(tmp_path: Path) -> None:
    """Two files that exchange their texts: with the second in place, all is done."""
    world = await World.made(tmp_path)
    folder = laid_outside(tmp_path, {"a": "A\n", "b": "B\n"})
    exchange = (f"*** Update File: {folder}/{name}" for name in "ab")
    job = patch(f"{next(exchange)}\n@@\n-A\n+B", f"{next(exchange)}\n@@\n-B\n+A")
    await world.dies(job, "after-exchange:2")
    async with world.reopened():
        assert contents_of(folder) == {"a": "B\n", "b": "A\n"}


@pytest.mark.parametrize("point", ["before-temporary", "before-exchange", "after-exchange"])
async def test_an_engine_that_takes_no_snapshots(tmp_path: Path, point: str) -> None:
    """Nothing can be undone, and still nothing is left behind or lost."""
    world = await World.made(tmp_path)
    await world.dies(JOBS["patch"], point, protects=False)
    async with world.reopened(settings=kedge.Settings(snapshots=False)):
        assert left_over(world.folder) == []
        assert_old_or_new(world.found, JOBS["patch"])
        assert world.found["a.txt"] == BEFORE["a.txt"]


async def test_a_file_that_another_one_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left alone, with what is beside it, until that one is done."""
    monkeypatch.setattr(prepare, "PATIENCE", 0)
    world = await World.made(tmp_path)
    await world.dies(JOBS["edit"], "after-exchange")
    locks = FileLocks(data_folder(None))
    async with (
        locks.locked([bytes(world.folder / "a.txt")], 0),
        world.reopened() as (engine, _),
    ):
        assert len(left_over(world.folder)) == 1
        await engine.recovery.recover()
        assert len(left_over(world.folder)) == 1
    async with world.reopened():
        assert left_over(world.folder) == []
        assert world.found["a.txt"] == b"one\nzwei\n"


async def test_the_session_is_deleted_before_anything_is_put_in_order(tmp_path: Path) -> None:
    """What is left is put in order all the same: by who deletes it, or by who comes after one that
    could not."""
    world = await World.made(tmp_path)
    async with world.reopened() as (engine, _):
        await world.dies(JOBS["edit"], "after-exchange")
        now = engine.clock.now()
        delete = partial(stop_and_delete, world.session, engine.runs.owner, engine.ids, now)
        await engine.store.write_bulk(delete)
        assert len(left_over(world.folder)) == 1
        await engine.recovery.recover()
        assert left_over(world.folder) == []
        assert world.found["a.txt"] == b"one\nzwei\n"


async def test_another_machine_takes_the_session_over(tmp_path: Path) -> None:
    """It does not touch files; the one that they belong to puts them in order when it is back."""
    world = await World.made(tmp_path)
    async with world.reopened() as (engine, _):
        await world.dies(JOBS["edit"], "after-exchange")
        here = engine.timeline.machine
        engine.timeline.machine = "another one"
        await engine.recovery.recover()
        assert engine.recovery.sessions == [world.session]
        assert len(left_over(world.folder)) == 1
        engine.timeline.machine = here
        await engine.recovery.recover()
        assert left_over(world.folder) == []


async def test_files_of_that_name_that_are_not_kedges(tmp_path: Path) -> None:
    """Nothing is removed for its name."""
    world = await World.made(tmp_path)
    (world.folder / ".kedge-mine~").write_text("mine\n")
    await world.dies(JOBS["edit"], "after-exchange")
    async with world.reopened():
        assert left_over(world.folder) == [".kedge-mine~"]
