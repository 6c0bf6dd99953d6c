"""What calls of a turn did to files, as it is recorded with their parts."""

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from kedge.domain.errors import FileBusy, FileChanged, InvalidInput
from kedge.domain.file_states import Absent, Present
from kedge.domain.parts import PatchPart, StepFinishPart, StepStartPart, ToolPart
from kedge.domain.sessions import Idle, SessionSummary
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from kedge.engine.steps import Step
from kedge.engine.timeline import declared
from kedge.snapshot.aio import AsyncOrdered
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Snapshot
from kedge.store.queries.changes import StoredChange, changes_between
from kedge.store.queries.timeline import StoredCall, calls_of_machine
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child
from tests.engine.repositories import repository


async def changes(session: Session) -> list[StoredChange]:
    """All that is recorded of a session."""
    return await session._engine.store.scan(partial(changes_between, session.id, 0))


async def told(session: Session) -> list[tuple[str, bytes]]:
    """Source and path of everything recorded."""
    return [(each.source, each.path) for each in await changes(session)]


async def calls(engine: Engine) -> list[StoredCall]:
    """Everything that is or was at work, as the machine knows it."""
    return await engine.store.scan(partial(calls_of_machine, engine.timeline.machine))


async def one_step(session: Session, work: Callable[[Step], object]) -> list[object]:
    """A turn of one step; gives the parts of its message."""
    async with session.turn("Go on") as turn, turn.step() as step:
        await work(step)  # type: ignore[misc]  # each is a coroutine function
    return list((await session.message(step.message.id)).parts)


async def shell(step: Step, *works: Callable[[], object]) -> None:
    """A call of unknown effect that does all of this."""
    async with step.tool("bash", {}, effects="unknown"):
        for work in works:
            work()


async def write(step: Step, path: Path, text: str) -> None:
    """A declared call that writes a file."""
    async with step.tool("write", {}, writes=[path]):
        put(path, text)


def put(path: Path, text: str) -> None:
    """Write a file, whatever folders that takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_a_declared_write_is_recorded_with_its_part(any_engine: Engine, folder: Path) -> None:
    """Path, content and mode before and after, and the folders that it made."""
    session = await any_engine.sessions.create()
    file = folder / "new" / "deep" / "file"
    parts = await one_step(session, lambda step: write(step, file, "text\n"))
    made, deeper, change = await changes(session)
    assert [(each.source, each.path) for each in (made, deeper)] == [
        ("folder", b"new"),
        ("folder", b"new/deep"),
    ]
    assert (change.source, change.path, change.before) == ("declared", b"new/deep/file", Absent())
    assert isinstance(change.after, Present)
    assert change.after.mode == file.stat().st_mode
    (tool,) = [part for part in parts if isinstance(part, ToolPart)]
    assert change.part_id == tool.id
    snapshots = await session.snapshots()
    assert await snapshots.read(change.after.blob) == b"text\n"


async def test_what_a_shell_did_is_observed(any_engine: Engine, folder: Path) -> None:
    """What changed between its two snapshots is its own; what changed outside of calls is not."""
    session = await any_engine.sessions.create()
    (folder / "old").write_text("old")
    (folder / "gone").write_text("gone")

    async def work(step: Step) -> None:
        (folder / "outside").write_text("by somebody")
        await shell(step, (folder / "gone").unlink, lambda: (folder / "old").chmod(0o755))
        (folder / "outside").write_text("by somebody else")

    await one_step(session, work)
    assert await told(session) == [("observed", b"gone"), ("observed", b"old")]


async def test_a_step_has_its_snapshots_and_a_patch(engine: Engine, folder: Path) -> None:
    """Clients see the files of this session's calls, and the snapshots around them."""
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        (folder / "foreign").write_text("not ours")
        await write(step, folder / "b", "1")
        await shell(step, partial((folder / "a").write_text, "2"))

    parts = await one_step(session, work)
    start, _, _, finish, patch = parts
    assert isinstance(start, StepStartPart)
    assert isinstance(finish, StepFinishPart)
    assert isinstance(patch, PatchPart)
    assert start.snapshot
    assert finish.snapshot not in (None, start.snapshot)
    assert patch.hash == start.snapshot
    assert patch.files == [str(folder / "a"), str(folder / "b")]
    assert session.info.summary == SessionSummary(additions=2, deletions=0, files=2)
    (prompt, _) = (await session.messages()).messages
    summary = prompt.info.summary
    assert [each.file for each in summary.diffs] == ["a", "b"]  # type: ignore[union-attr]
    assert [each.patch for each in summary.diffs] == [None, None]  # type: ignore[union-attr]


async def test_a_step_that_changed_nothing_has_no_patch(engine: Engine, folder: Path) -> None:
    """Nor has the session a summary of changes."""
    session = await engine.sessions.create()
    parts = await one_step(session, shell)
    assert not any(isinstance(part, PatchPart) for part in parts)
    assert await changes(session) == []
    assert session.info.summary is None


async def test_sessions_at_work_together_share_what_changes(engine: Engine, folder: Path) -> None:
    """While both run nobody can tell whose it is; before and after, each has its own."""
    one, two = [await engine.sessions.create() for _ in range(2)]
    async with (
        one.turn("a") as first,
        two.turn("b") as second,
        first.step() as step,
        second.step() as other,
    ):
        async with step.tool("bash", {}, effects="unknown"):
            (folder / "first").touch()
            call = other.tool("bash", {}, effects="unknown")
            await call.__aenter__()
            (folder / "both").touch()
        (folder / "second").touch()
        await call.__aexit__(None, None, None)
    assert await told(one) == [("observed", b"first"), ("shared", b"both")]
    assert await told(two) == [("shared", b"both"), ("observed", b"second")]


async def test_what_is_shared_has_to_be_read(engine: Engine, folder: Path) -> None:
    """It may be what another session wrote: an edit that nobody has seen is refused."""
    one, two = [await engine.sessions.create() for _ in range(2)]
    file = folder / "file"
    async with (
        two.turn("b") as second,
        second.step() as other,
        other.tool("bash", {}, effects="unknown"),
    ):
        await one_step(one, lambda step: shell(step, partial(put, file, "whose?")))
    assert await told(one) == [("shared", b"file")]

    async def work(step: Step) -> None:
        with pytest.raises(FileChanged, match="read it first"):
            await write(step, file, "mine")

    await one_step(one, work)
    assert file.read_text() == "whose?"


async def test_folders_on_the_way_to_what_is_read_are_not_made_by_it(
    engine: Engine, folder: Path
) -> None:
    """Only those on the way to what a tool writes can be its own."""
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        async with step.tool("copy", {}, reads=["elsewhere/file"], writes=["file"]):
            put(folder / "elsewhere" / "other", "by somebody")
            put(folder / "file", "x")

    await one_step(session, work)
    assert await told(session) == [("declared", b"file")]


async def test_a_declared_write_is_nobody_elses(engine: Engine, folder: Path) -> None:
    """A shell that runs meanwhile in another session is not charged for it."""
    one, two = [await engine.sessions.create() for _ in range(2)]
    async with one.turn("a") as first, two.turn("b") as second:
        async with (
            first.step() as step,
            second.step() as other,
            step.tool("bash", {}, effects="unknown"),
        ):
            await write(other, folder / "file", "declared")
            (folder / "own").touch()
        # The same while the other one is not over when the shell ends.
        async with first.step() as step, second.step() as other:
            call = other.tool("write", {}, writes=["late"])
            async with step.tool("bash", {}, effects="unknown"):
                await call.__aenter__()
                (folder / "late").write_text("declared")
            await call.__aexit__(None, None, None)
    assert await told(one) == [("observed", b"own")]
    assert await told(two) == [("declared", b"file"), ("declared", b"late")]


async def test_a_shell_in_a_nested_root_is_at_work_in_the_outer_one(
    place: EngineFactory, folder: Path
) -> None:
    """A call counts in every root that holds its own or lies in it."""
    inner = folder / "inner"
    repository(inner)
    async with place.open() as engine:
        one = await engine.sessions.create()
        two = await engine.sessions.create(directory=inner)
        assert one.worktree != two.worktree
        async with (
            one.turn("a") as first,
            two.turn("b") as second,
            first.step() as step,
            second.step() as other,
            step.tool("bash", {}, effects="unknown"),
            other.tool("bash", {}, effects="unknown"),
        ):
            (inner / "file").touch()
        assert await told(one) == [("shared", b"inner/file")]
        assert await told(two) == [("shared", b"file")]


async def test_calls_of_one_session_side_by_side(engine: Engine, folder: Path) -> None:
    """What changed while both ran is recorded once, and is the session's own."""
    session = await engine.sessions.create()
    async with (
        session.turn("a") as turn,
        turn.step() as step,
        step.tool("bash", {}, effects="unknown"),
        step.tool("bash", {}, effects="unknown"),
    ):
        (folder / "file").touch()
    assert await told(session) == [("observed", b"file")]


@pytest.mark.parametrize("known", [False, True])
async def test_a_file_that_the_session_does_not_know_is_not_written(
    engine: Engine, folder: Path, known: bool
) -> None:
    """The call is refused before the tool does anything, and its part says why."""
    session = await engine.sessions.create()
    file = folder / "file"
    if known:
        await one_step(session, lambda step: write(step, file, "mine"))
    file.write_text("somebody's")

    async def work(step: Step) -> None:
        with pytest.raises(FileChanged, match="read it again" if known else "read it first"):
            await write(step, file, "mine again")

    parts = await one_step(session, work)
    (tool,) = [part for part in parts if isinstance(part, ToolPart)]
    assert tool.state.error.startswith("file was not written")  # type: ignore[union-attr]
    assert file.read_text() == "somebody's"


async def test_what_was_read_may_be_written(engine: Engine, folder: Path) -> None:
    """So may what the session's own shell wrote, and what is read in the same call."""
    session = await engine.sessions.create()
    read, written, both = (folder / name for name in ("read", "written", "both"))
    for file in (read, both):
        file.write_text("somebody's")

    async def work(step: Step) -> None:
        async with step.tool("read", {}, reads=[read]):
            pass
        await write(step, read, "mine")
        await shell(step, partial(written.write_text, "shell's"))
        await write(step, written, "mine")
        async with step.tool("format", {}, reads=[both], writes=[both]):
            both.write_text("mine")

    await one_step(session, work)
    assert {file.read_text() for file in (read, written, both)} == {"mine"}


async def test_writers_of_one_file_wait_for_each_other(engine: Engine, folder: Path) -> None:
    """Two sessions that write the same file do so one after the other, and both are recorded."""
    sessions = [await engine.sessions.create() for _ in range(2)]
    file = folder / "file"
    inside = 0

    async def work(step: Step) -> None:
        nonlocal inside
        async with step.tool("write", {}, reads=[file], writes=[file]):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            file.write_text(step.message.id)
            inside -= 1

    await asyncio.gather(*(one_step(session, work) for session in sessions))
    found = [each for session in sessions for each in await changes(session)]
    first, second = sorted(found, key=lambda each: each.timeline)
    assert first.before == Absent()
    assert first.after == second.before


async def test_a_file_that_is_being_written_for_long_is_refused(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for another writer."""
    monkeypatch.setattr(declared, "PATIENCE", 0.01)
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        async with step.tool("write", {}, writes=["file"]):
            with pytest.raises(FileBusy):
                await write(step, folder / "file", "second")

    await one_step(session, work)


async def test_an_ignored_file_is_covered_when_it_is_declared(engine: Engine, folder: Path) -> None:
    """What a tool says it writes is recorded, whatever the ignore rules say."""
    (folder / ".gitignore").write_text("secret\n")
    session = await engine.sessions.create()
    await one_step(session, lambda step: write(step, folder / "secret", "x"))
    assert await told(session) == [("declared", b"secret")]


async def test_what_is_not_covered_says_why(place: EngineFactory, folder: Path) -> None:
    """A file that is too large to be kept is on the record, with the reason."""
    settings = Settings(snapshot_file_size=10)
    async with place.open(settings=settings) as engine:
        session = await engine.sessions.create()
        await one_step(session, lambda step: write(step, folder / "large", "more than ten bytes"))
        (change,) = await changes(session)
        assert (change.source, change.path, change.reason) == ("uncovered", b"large", "large")


async def test_a_large_file_of_a_shell_is_on_the_record(place: EngineFactory, folder: Path) -> None:
    """What it made too large to be kept is told with the reason; what is ignored is not."""
    (folder / ".gitignore").write_text("ignored\n")
    (folder / "grown").write_text("small")
    settings = Settings(snapshot_file_size=20)
    async with place.open(settings=settings) as engine:
        session = await engine.sessions.create()
        files = [folder / name for name in ("new", "grown", "ignored")]
        works: list[Callable[[], object]] = []
        works += [partial(file.write_text, "more than twenty bytes of text") for file in files]
        works += [(folder / "gone").unlink, partial(os.mkfifo, folder / "pipe")]
        put(folder / "gone", "more than twenty bytes of text")
        await one_step(session, lambda step: shell(step, *works))
        found = [(each.path, each.reason) for each in await changes(session)]
        assert found == [
            (b"gone", "large"),
            (b"grown", f"large; what it held before is kept as {blob_id(b'small').hex()}"),
            (b"new", "large"),
            (b"pipe", "special"),
        ]


async def test_a_declared_folder_is_on_the_record(engine: Engine, folder: Path) -> None:
    """Only files can be declared; what a tool put into a folder is not known, and is told so."""
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        async with step.tool("unpack", {}, writes=["made"]):
            put(folder / "made" / "file", "x")

    await one_step(session, work)
    (change,) = await changes(session)
    assert (change.source, change.path) == ("uncovered", b"made")


async def test_what_lies_outside_is_not_kept(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """A tool may write elsewhere; kedge keeps nothing of it, and says so."""
    outside = tmp_path / "outside"
    (folder / "link").symlink_to(outside)
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        async with step.tool("write", {}, writes=[outside], reads=[folder / "link"]):
            outside.write_text("x")

    await one_step(session, work)
    (change,) = await changes(session)
    assert (change.source, change.path) == ("uncovered", bytes(outside))
    assert change.reason == "it is outside of the worktree"


async def test_a_link_is_two_paths(engine: Engine, folder: Path) -> None:
    """What a tool writes through a symlink is recorded where the link leads."""
    (folder / "target").write_text("old")
    (folder / "link").symlink_to("target")
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        async with step.tool("write", {}, reads=["link"], writes=["link"]):
            (folder / "link").write_text("new")

    await one_step(session, work)
    assert await told(session) == [("declared", b"target")]


async def test_a_failed_call_is_recorded_too(engine: Engine, folder: Path) -> None:
    """What a tool did before it raised is its own."""
    session = await engine.sessions.create()

    async def fail(step: Step) -> None:
        async with step.tool("write", {}, writes=["file"]):
            (folder / "file").write_text("half")
            raise ZeroDivisionError

    async def work(step: Step) -> None:
        with pytest.raises(ZeroDivisionError):
            await fail(step)

    await one_step(session, work)
    assert await told(session) == [("declared", b"file")]


async def test_an_aborted_shell_is_recorded(engine: Engine, folder: Path) -> None:
    """The closing snapshot is taken before the session is idle."""
    session = await engine.sessions.create()
    started = asyncio.Event()

    async def work(step: Step) -> None:
        async with step.tool("bash", {}, effects="unknown"):
            (folder / "file").touch()
            started.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(one_step(session, work))
    await started.wait()
    assert await session.abort()
    assert await told(session) == [("observed", b"file")]
    with pytest.raises(Exception, match="aborted"):
        await running


async def test_a_call_that_outlives_its_step_is_closed(engine: Engine, folder: Path) -> None:
    """What it did until then is recorded, and nobody thinks that it still runs."""
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        await step.tool("bash", {}, effects="unknown").__aenter__()
        (folder / "file").touch()
        await step.tool("write", {}, writes=["other"]).__aenter__()
        (folder / "other").touch()

    await one_step(session, work)
    assert sorted(await told(session)) == [("declared", b"other"), ("observed", b"file")]
    assert await calls(engine) == []


async def test_a_call_left_open_by_a_failed_step_is_closed(engine: Engine, folder: Path) -> None:
    """What it did is recorded although the step failed, and its files are free again."""
    session = await engine.sessions.create()

    async def fail(step: Step) -> None:
        await step.tool("bash", {}, effects="unknown").__aenter__()
        (folder / "file").touch()
        await step.tool("write", {}, writes=["other"]).__aenter__()
        (folder / "other").touch()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one_step(session, fail)
    assert sorted(await told(session)) == [("declared", b"other"), ("observed", b"file")]
    assert await calls(engine) == []
    await one_step(session, lambda step: write(step, folder / "other", "again"))


async def test_a_turn_goes_on_where_the_folder_is_gone(engine: Engine, folder: Path) -> None:
    """There is no snapshot and nothing is recorded, until the folder is there again."""
    session = await engine.sessions.create()
    shutil.rmtree(folder)

    async def work(step: Step) -> None:
        await shell(step)
        async with step.tool("write", {}, writes=["file"]):
            pass

    start, *_ = await one_step(session, work)
    assert isinstance(start, StepStartPart)
    assert start.snapshot is None
    put(folder / "kept", "")
    await one_step(session, lambda step: shell(step, (folder / "file").touch))
    assert ("observed", b"file") in await told(session)


async def test_an_engine_without_snapshots_records_nothing(
    place: EngineFactory, folder: Path
) -> None:
    """Everything else works as ever, and nothing is kept of the files."""
    async with place.open(settings=Settings(snapshots=False)) as engine:
        session = await engine.sessions.create()
        start, *_ = await one_step(session, lambda step: write(step, folder / "file", "x"))
        assert isinstance(start, StepStartPart)
        assert start.snapshot is None
        assert await changes(session) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"effects": "some"}, "effects must be one of"),
        ({"effects": "unknown", "writes": ["a"]}, "cannot say what it reads or writes"),
        ({"writes": "file"}, "writes must be a list"),
        ({"writes": [""]}, "contains an impossible path"),
        ({"reads": ["a\0b"]}, "contains an impossible path"),
        ({"reads": [7]}, "reads must be a list of paths"),
    ],
)
async def test_mistakes_are_named(
    engine: Engine, arguments: dict[str, object], message: str
) -> None:
    """A call that cannot be meant is refused before it begins."""
    session = await engine.sessions.create()

    async def work(step: Step) -> None:
        with pytest.raises(InvalidInput, match=message):
            step.tool("write", {}, **arguments)  # type: ignore[arg-type]  # the point of it

    await one_step(session, work)


async def test_a_subtask_works_for_its_parent(engine: Engine, folder: Path) -> None:
    """The parent's step names the files that its subtask changed."""
    parent = await engine.sessions.create()
    child = await engine.sessions.create(parent=parent.id)

    async def work(step: Step) -> None:
        async with step.tool("task", {}):
            await one_step(child, lambda inner: write(inner, folder / "file", "x"))

    parts = await one_step(parent, work)
    (patch,) = [part for part in parts if isinstance(part, PatchPart)]
    assert patch.files == [str(folder / "file")]
    assert await changes(parent) == []


async def test_what_a_dead_process_left_running_is_observed(
    any_place: EngineFactory, folder: Path, children: AsyncExitStack
) -> None:
    """Recovery takes the closing snapshot before the session is idle; then nothing is at work."""
    async with any_place.open() as engine:
        session = await engine.sessions.create()
        child = await children.enter_async_context(Child(any_place, "touch_files", session.id))
        assert await child.hear() == "touched"
        await child.kill()
        await engine.recovery.recover()
        assert engine.recovery.sessions == [session.id]
        assert sorted(await told(session)) == [("observed", b"declared"), ("observed", b"shell")]
        assert await calls(engine) == []
        assert await session.status() == Idle()


@pytest.mark.parametrize("kind", ["declared", "nested"])
async def test_who_ends_during_an_opening_snapshot_is_not_forgotten(
    place: EngineFactory, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What another session did while a call looked at the worktree first is not that call's."""
    inner = folder / "inner"
    repository(inner)
    async with place.open() as engine:
        one = await engine.sessions.create()
        two = await engine.sessions.create(directory=inner if kind == "nested" else folder)
        whole = AsyncOrdered.track

        async def track_and_more(ordered: AsyncOrdered, *, session: str | None = None) -> Snapshot:
            found = await whole(ordered, session=session)
            monkeypatch.setattr(AsyncOrdered, "track", whole)
            # The snapshot has passed the file; now the other session writes it.
            file = inner / "file"
            if kind == "declared":
                await write(other, file, "by another")
            else:
                await shell(other, partial(put, file, "by another"))
            return found

        async with (
            one.turn("a") as first,
            two.turn("b") as second,
            first.step() as step,
            second.step() as other,
        ):
            monkeypatch.setattr(AsyncOrdered, "track", track_and_more)
            async with step.tool("bash", {}, effects="unknown"):
                pass
        assert [source for source, _ in await told(one)] in ([], ["shared"])
        assert len(await told(two)) == 1


async def test_a_call_whose_end_is_unknown_is_not_forgotten(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may have written is nobody's, not that of a shell that ran beside it."""
    one, two = [await engine.sessions.create() for _ in range(2)]
    async with (
        one.turn("a") as first,
        first.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        with pytest.raises(ZeroDivisionError):
            await one_step(two, partial(write_and_fail, folder / "file", monkeypatch))
        monkeypatch.undo()
    assert await told(one) == []


async def write_and_fail(file: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    """A declared call that writes, and whose end cannot be recorded."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError

    async with step.tool("write", {}, writes=[file]):
        put(file, "x")
        monkeypatch.setattr(declared, "end_call", broken)


async def test_a_prompt_closes_what_a_dead_process_left_at_work(
    place: EngineFactory, folder: Path, children: AsyncExitStack
) -> None:
    """Whoever takes the session over first finds out what its calls did."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        child = await children.enter_async_context(Child(place, "touch_files", session.id))
        assert await child.hear() == "touched"
        await child.kill()
        await one_step(session, lambda step: write(step, folder / "own", "x"))
        assert sorted(await told(session)) == [
            ("declared", b"own"),
            ("observed", b"declared"),
            ("observed", b"shell"),
        ]
