"""Blame of single files: what it says of odd contents, paths and histories."""

import asyncio
import os
from pathlib import Path

import pytest

import kedge
from kedge.domain.clock import SystemClock
from kedge.domain.ids import IdMaker
from kedge.engine.blame import blame as module
from kedge.engine.engine import Engine
from kedge.snapshot.diffs.lines import MOST_BYTES
from kedge.snapshot.objects.store import ObjectStore
from kedge.store.queries.retention import purge_session, stop_and_delete
from tests.engine.blame.conftest import Worker
from tests.engine.engine_factory import EngineFactory


async def test_each_line_names_its_call(engine: Engine, folder: Path, worker: Worker) -> None:
    """Session, title, prompt, message, call, tool and time, and each origin once."""
    (folder / "a").write_text("one\ntwo\nthree\n")
    await worker.write("a", "one\nTWO\nthree\n")
    blame = await engine.blame("a")
    assert (blame.path, blame.pathBase64) == ("a", None)
    assert [line.text for line in blame.lines] == ["one", "TWO", "three"]
    assert [line.origin for line in blame.lines] == [0, 1, 0]
    before, session = blame.origins
    assert before == kedge.LineOrigin(kind="before")
    message = (await worker.session.messages()).messages[1]
    (part,) = [each for each in message.parts if isinstance(each, kedge.ToolPart)]
    assert isinstance(part.state, kedge.ToolCompleted)
    assert session.time is not None
    assert session == kedge.LineOrigin(
        kind="session",
        sessionID=worker.session.id,
        title=worker.session.title,
        promptID=worker.prompts[0],
        messageID=message.info.id,
        partID=part.id,
        tool="write",
        time=session.time,
    )
    assert part.state.time.start <= session.time


async def test_what_a_person_wrote_is_from_outside(folder: Path, worker: Worker) -> None:
    """Recorded or not; and what was there before the first change was there before kedge."""
    (folder / "a").write_text("one\n")
    (folder / "b").write_text("one\n")
    await worker.write("a", "one\ntwo\n")
    (folder / "a").write_text("zero\none\ntwo\n")
    assert await worker.blame("a") == [("zero", "outside"), ("one", "before"), ("two", "0")]
    await worker.write("a", "zero\none\ntwo\nthree\n")
    (folder / "b").write_text("one\ntwo\n")
    (folder / "c").write_text("new\n")
    assert [kind for _, kind in await worker.blame("a")] == ["outside", "before", "0", "1"]
    assert await worker.blame("b") == [("one", "before"), ("two", "outside")]
    assert await worker.blame("c") == [("new", "outside")]


async def test_whoever_reverts_wrote_nothing(folder: Path, worker: Worker, other: Worker) -> None:
    """Lines that a revert and an unrevert restore, whole or merged, are still their authors'."""
    lines = [f"line {n}" for n in range(8)]
    (folder / "a").write_text("\n".join((*lines, "")))
    await other.write("a", "\n".join(("other", *lines, "")))
    await worker.write("a", "\n".join((*lines[2:], "")))
    person = "\n".join((*lines[2:], "person", ""))
    (folder / "a").write_text(person)
    receipt = await worker.session.revert(worker.prompts[0])
    assert [entry.outcome for entry in receipt.files] == ["merged"]
    kinds = ["another", *["before"] * 8, "outside"]
    assert [kind for _, kind in await worker.blame("a")] == kinds
    await worker.session.unrevert()
    assert (folder / "a").read_text() == person
    assert [kind for _, kind in await worker.blame("a")] == [*["before"] * 6, "outside"]


async def test_a_restored_line_is_that_of_its_version(folder: Path, worker: Worker) -> None:
    """A line that a session deleted, wrote again and deleted again: a revert of the last call
    restores the session's own, one of all three calls the line from before."""
    (folder / "a").write_text("one\ntwo\n")
    await worker.write("a", "one\n")
    await worker.write("a", "one\ntwo\n")
    await worker.write("a", "one\n")
    await worker.session.revert(worker.prompts[2])
    assert await worker.blame("a") == [("one", "before"), ("two", "1")]
    await worker.session.unrevert()
    await worker.session.revert(worker.prompts[0])
    assert await worker.blame("a") == [("one", "before"), ("two", "before")]


async def test_an_undo_restores_the_line_of_its_call(folder: Path, worker: Worker) -> None:
    """As a revert does, for the chosen call alone, also when others were undone and redone."""
    (folder / "a").write_text("one\ntwo\n")
    await worker.write("a", "one\n")
    await worker.write("a", "one\ntwo\n")
    await worker.write("a", "one\n")
    await worker.session.undo(parts=[worker.calls[2]])
    assert await worker.blame("a") == [("one", "before"), ("two", "1")]
    await worker.session.redo(parts=[worker.calls[2]])
    assert await worker.blame("a") == [("one", "before")]
    await worker.session.undo(parts=[worker.calls[0]])
    assert await worker.blame("a") == [("one", "before"), ("two", "before")]
    await worker.session.redo(parts=[worker.calls[0]])
    await worker.session.undo(parts=[worker.calls[1], worker.calls[2]])
    assert await worker.blame("a") == [("one", "before")]


async def test_a_moved_file_keeps_its_lines(folder: Path, worker: Worker) -> None:
    """By a command or a tool, changed on the way, again and again, over another file and back; but
    not if most of it is new."""
    text = "one\ntwo\nthree\nfour\n"
    (folder / "a").write_text(text)
    (folder / "c").write_text("other\n")
    await worker.write("a", text + "five\n")
    async with worker.call():
        (folder / "a").rename(folder / "b")
    async with worker.call("b", "c"):
        (folder / "b").unlink()
        (folder / "c").unlink()
        (folder / "d").write_text("one\n")
    (folder / "d").unlink()
    await worker.session.revert(worker.prompts[2])
    async with worker.call("b", "e"):
        (folder / "b").unlink()
        (folder / "e").write_text("zero\n" + text + "five\n")
    kinds = ["3", *["before"] * 4, "0"]
    assert [kind for _, kind in await worker.blame("e")] == kinds
    async with worker.call():
        (folder / "e").rename(folder / "a")
    assert [kind for _, kind in await worker.blame("a")] == kinds
    async with worker.call("a", "f"):
        (folder / "a").unlink()
        (folder / "f").write_text("one\n" + "".join(f"new {n}\n" for n in range(9)))
    assert {kind for _, kind in await worker.blame("f")} == {"5"}


async def test_both_databases_know_it(any_engine: Engine, folder: Path) -> None:
    """Edits, a move and an undo, asked of each kind of database."""
    worker = Worker(any_engine, await any_engine.sessions.create(), folder)
    (folder / "a").write_text("one\ntwo\nthree\n")
    await worker.write("a", "one\nTWO\nthree\n")
    async with worker.call():
        (folder / "a").rename(folder / "b")
    assert [kind for _, kind in await worker.blame("b")] == ["before", "0", "before"]
    await worker.session.revert(worker.prompts[1])
    assert [kind for _, kind in await worker.blame("a")] == ["before", "0", "before"]


async def test_what_was_too_large_for_a_while(folder: Path, worker: Worker) -> None:
    """What is left of it is nobody's, rather than of who cut it."""
    await worker.write("a", "one\n")
    await worker.write("a", "one\ntwo\n" + "x" * MOST_BYTES + "\n")
    await worker.write("a", "one\ntwo\n")
    assert await worker.blame("a") == [("one", "0"), ("two", "unknown")]


async def test_subtasks_calls_are_their_own(engine: Engine, folder: Path, worker: Worker) -> None:
    """What a subtask wrote is said of its session, and reverting the parent's turn restores what
    was there before."""
    (folder / "a").write_text("one\ntwo\n")
    parent = worker.session
    async with parent.turn("Go on") as turn, turn.step() as step, step.tool("task", {}):
        child = Worker(engine, await engine.sessions.create(parent=parent.id), folder)
        await child.write("a", "one\nchild\n")
    assert await child.blame("a") == [("one", "before"), ("child", "0")]
    blame = await engine.blame("a")
    assert blame.origins[1].sessionID == child.session.id
    await parent.revert(turn.message.id)
    assert await child.blame("a") == [("one", "before"), ("two", "before")]


ODD: tuple[tuple[bytes, bytes, list[str]], ...] = (
    (b"one\r\ntwo\r\n", b"one\r\nTWO\r\n", ["before", "own"]),
    (b"one\r\ntwo\r\n", b"one\ntwo\n", ["own", "own"]),
    (b"one\ntwo", b"one\ntwo\nthree", ["before", "own", "own"]),
    (b"one\r\rtwo\n", b"one\r\rtwo\nthree\n", ["before", "own"]),
    (b"\xff\xfe\n", b"\xff\xfe\n\xf0\n", ["before", "own"]),
    (b"", b"one\n", ["own"]),
    (b"one\n", b"", []),
    (b"\n\n", b"\n\n\n", ["before", "before", "own"]),
    (b"bi\0nary\none\n", b"one\ntwo\n", ["before", "own"]),
)
"""Contents before and after a call, and whose the lines are."""


async def test_odd_contents(folder: Path, worker: Worker) -> None:
    """Only a line feed ends a line, and an unfinished last line is another than a finished one."""
    for name, (before, _, _) in enumerate(ODD):
        (folder / f"{name}").write_bytes(before)
    for name, (_, after, kinds) in enumerate(ODD):
        await worker.write(f"{name}", after)
        found = await worker.blame(f"{name}")
        own = str(len(worker.calls) - 1)
        assert ["own" if kind == own else kind for _, kind in found] == kinds, after
        texts = [line.decode(errors="replace") for line in after.split(b"\n")]
        assert [text for text, _ in found] == (texts if texts[-1] else texts[:-1])


async def test_what_was_not_text_for_a_while(folder: Path, worker: Worker) -> None:
    """A file that was a symlink, a folder, binary, too large or not there in between."""
    text = "one\ntwo\n"
    (folder / "a").write_text(text)
    for name in ("symlink", "folder", "binary", "large", "gone"):
        async with worker.call():
            (folder / "a").unlink()
            if name == "symlink":
                (folder / "a").symlink_to("b")
            elif name == "folder":
                (folder / "a").mkdir()
            elif name != "gone":
                more = b"\0" if name == "binary" else b"x\n" * MOST_BYTES
                (folder / "a").write_bytes(text.encode() + more)
        is_folder = (folder / "a").is_dir()
        await worker.session.revert(worker.prompts[-1])
        assert not is_folder or (folder / "a").is_file()
        assert await worker.blame("a") == [("one", "before"), ("two", "before")], name
    async with worker.call():
        (folder / "a").unlink()
        (folder / "a").symlink_to("b")
    async with worker.call():
        (folder / "a").unlink()
        (folder / "a").write_text(text)
    number = str(len(worker.calls) - 1)
    assert await worker.blame("a") == [("one", number), ("two", number)]


async def test_what_cannot_be_blamed(engine: Engine, folder: Path, worker: Worker) -> None:
    """Each case has a message that says why."""
    (folder / "d").mkdir()
    (folder / "binary").write_bytes(b"a\0b\n")
    (folder / "link").symlink_to("binary")
    os.truncate(os.open(folder / "large", os.O_CREAT | os.O_WRONLY), 100 * 2**20)
    os.mkfifo(folder / "pipe")
    (folder / "long").write_text("\n" * 100_001)
    (folder / ".gitignore").write_text("ignored\n")
    (folder / "ignored").write_text("a\n")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("")
    await worker.write("a", "one\n")
    cases: list[tuple[str | bytes, type[kedge.errors.KedgeError], str]] = [
        ("missing", kedge.errors.PathNotFound, "missing"),
        ("missing/b", kedge.errors.PathNotFound, "missing/b"),
        ("a/b", kedge.errors.PathNotFound, "a/b"),
        ("d", kedge.errors.InvalidPath, "d is a folder"),
        (".", kedge.errors.InvalidPath, "is a folder"),
        ("binary", kedge.errors.InvalidPath, "binary is binary"),
        ("link", kedge.errors.InvalidPath, "link is a symlink to binary"),
        ("large", kedge.errors.TooLarge, "large is larger than 4 MiB"),
        ("long", kedge.errors.TooLarge, "long has more than 100,000 lines"),
        ("pipe", kedge.errors.InvalidPath, "pipe is a pipe"),
        ("ignored", kedge.errors.PathUncovered, "ignored"),
        (".git/config", kedge.errors.PathRefused, "not protected"),
        ("../a", kedge.errors.PathRefused, "outside of"),
        (b"d/../../a", kedge.errors.PathRefused, "outside of"),
        ("/etc/passwd", kedge.errors.PathRefused, "outside of"),
        ("a\0b", kedge.errors.InvalidInput, "NUL"),
        ("\ud800", kedge.errors.InvalidInput, "half a character"),
        ("x" * 300, kedge.errors.PathNotFound, "xxx"),
    ]
    for path, error, words in cases:
        with pytest.raises(error, match=words):
            await engine.blame(path)
    with pytest.raises(kedge.errors.InvalidInput):
        await engine.blame(None)  # type: ignore[arg-type]  # a mistake


async def test_paths_are_found_as_tools_find_them(
    engine: Engine, folder: Path, worker: Worker
) -> None:
    """From a folder below, by an absolute path, through a symlink, with `..`, not UTF-8."""
    odd = b"d/\xff name"
    (folder / "d").mkdir()
    (folder / "to").symlink_to("d")
    await worker.write("d/a", "one\n")
    async with worker.call(odd):
        (folder / os.fsdecode(odd)).write_text("odd\n")
    for path in ("d/a", "to/a", "to/../d/a", str(folder / "d/a"), folder / "to/a"):
        assert (await engine.blame(path)).path == "d/a"
    below = await engine.blame("a", directory=folder / "d")
    # Without a repository, each folder is a worktree; the file is the same.
    assert (below.path, below.origins[0].kind) == ("a", "session")
    found = await engine.blame(odd)
    assert (found.path, found.pathBase64) == ("d/\ufffd name", "ZC//IG5hbWU=")
    assert found.origins[0].partID == worker.calls[1]
    (folder / "out").symlink_to(folder.parent)
    (folder.parent / "secret").write_text("x\n")
    with pytest.raises(kedge.errors.PathRefused, match="outside"):
        await engine.blame("out/secret")


async def test_what_a_running_call_wrote_is_not_recorded_yet(
    engine: Engine, folder: Path, worker: Worker, other: Worker
) -> None:
    """A command may write any file, a tool only those that it declares."""
    await worker.write("a", "one\n")
    await worker.write("b", "one\n")
    async with other.call():
        (folder / "a").write_text("one\ntwo\n")
        assert await worker.blame("a") == [("one", "0"), ("two", "unrecorded")]
    assert await other.blame("a") == [("one", "another"), ("two", "0")]
    async with other.call("a"):
        for name in ("a", "b"):
            (folder / name).write_text("one\ntwo\nthree\n")
        assert (await worker.blame("a"))[2] == ("three", "unrecorded")
        assert (await worker.blame("b"))[2] == ("three", "outside")


async def test_a_call_that_begins_meanwhile_is_no_other_program(
    engine: Engine, folder: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins and writes between the look at its history and the look at the file."""
    await worker.write("a", "one\n")
    loop, read = asyncio.get_running_loop(), module._read
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        async with worker.call("a"):
            (folder / "a").write_text("one\ntwo\n")
            begun.set()
            await may_end.wait()

    def late(*arguments: bytes) -> bytes:
        asyncio.run_coroutine_threadsafe(begun.wait(), loop).result()
        return read(*arguments)

    monkeypatch.setattr(module, "_read", late)
    asked = asyncio.create_task(worker.blame("a"))
    writing = asyncio.create_task(call())
    assert await asked == [("one", "0"), ("two", "unrecorded")]
    may_end.set()
    await writing
    assert await worker.blame("a") == [("one", "0"), ("two", "1")]


async def test_contents_that_are_gone_cost_only_their_lines(
    engine: Engine, folder: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where versions were collected, a line of one of two calls is nobody's; older ones are."""
    (folder / "a").write_text("one\n")
    await worker.write("a", "one\ntwo\n")
    kept = kedge_blob("one\ntwo\n")
    await worker.write("a", "one\ntwo\nthree\n")
    await worker.write("a", "one\ntwo\nthree\nfour\n")
    await worker.write("a", "one\ntwo\nthree\nfour\nfive\n")
    now = kedge_blob("one\ntwo\nthree\nfour\nfive\n")
    read = ObjectStore.read

    def lost(self: ObjectStore, id: bytes) -> tuple[object, bytes]:
        type, data = read(self, id)
        if b"three" in data and id not in (kept, now):
            raise kedge.errors.ObjectMissing(id.hex())
        return type, data

    monkeypatch.setattr(ObjectStore, "read", lost)
    kinds = ["before", "0", "unknown", "unknown", "unknown"]
    assert [kind for _, kind in await worker.blame("a")] == kinds


def kedge_blob(text: str) -> bytes:
    """The id of a content."""
    from kedge.snapshot.objects.formats import blob_id

    return blob_id(text.encode())


async def test_a_purged_session_wrote_nothing_any_more(
    engine: Engine, folder: Path, worker: Worker, other: Worker
) -> None:
    """Its lines are as if another program had written them, and nothing that was remembered
    says otherwise."""
    await other.write("b", "before kedge is before this\n")
    await worker.write("a", "one\n")
    await other.write("a", "one\ntwo\n")
    assert await other.blame("a") == [("one", "another"), ("two", "1")]
    id, now = worker.session.id, engine.clock.now()
    ids = IdMaker(SystemClock())
    await engine.store.write(lambda: stop_and_delete(id, "me", ids, now))
    assert await engine.store.write_bulk(lambda: purge_session(id, now + 1))
    assert await other.blame("a") == [("one", "outside"), ("two", "1")]


async def test_a_purged_session_wrote_nothing_before_a_move(
    engine: Engine, folder: Path, worker: Worker, other: Worker
) -> None:
    """What is remembered of a file is not that of the one that it was moved from."""
    await other.write("b", "before kedge is before this\n")
    await worker.write("a", "one\n")
    await other.write("a", "one\ntwo\n")
    async with other.call("a", "c"):
        (folder / "a").rename(folder / "c")
    assert await other.blame("c") == [("one", "another"), ("two", "1")]
    id, now = worker.session.id, engine.clock.now()
    ids = IdMaker(SystemClock())
    await engine.store.write(lambda: stop_and_delete(id, "me", ids, now))
    assert await engine.store.write_bulk(lambda: purge_session(id, now + 1))
    assert await other.blame("c") == [("one", "outside"), ("two", "1")]


async def test_a_call_that_nobody_watched_may_have_written_it(
    engine: Engine, place: EngineFactory, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came while a command ran that could not be watched is nobody's, rather than another
    program's: on disk, and as the next call found it."""
    path = place.folder / "a"
    await worker.write("a", "one\n")
    path.write_text("one\ntwo\n")
    await worker.write("a", "one\ntwo\nthree\n")
    with monkeypatch.context() as home:
        home.setenv("HOME", str(place.folder))
        async with place.open() as blind:
            session = await blind.sessions.get(worker.session.id)
            async with Worker(blind, session, place.folder).call():
                path.write_text("one\ntwo\nthree\nfour\n")
    kinds = ["0", "outside", "1", "unknown"]
    assert [kind for _, kind in await worker.blame("a")] == kinds
    await worker.write("a", "one\ntwo\nthree\nfour\nfive\n")
    path.write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    kinds += ["2", "outside"]
    assert [kind for _, kind in await worker.blame("a")] == kinds
    entries = (await engine.timeline.list()).entries
    assert [each.kind for each in entries] == ["session", "session", "outside", "session"]


async def test_a_folder_above_begins_later(engine: Engine, folder: Path, worker: Worker) -> None:
    """Its first snapshot is no older than what was written below it before."""
    (folder / "d").mkdir()
    (folder / "d/a").write_text("one\ntwo\n")
    below = await engine.sessions.create(directory=folder / "d")
    inside = Worker(engine, below, folder / "d")
    await inside.write("a", "one\n")
    await worker.write("b", "x\n")
    await below.revert(inside.prompts[0])
    for path in ("d/a", folder / "d/a"):
        assert await worker.blame(str(path)) == [("one", "before"), ("two", "before")]
    assert {each.kind for each in (await engine.blame("a", directory=folder / "d")).origins} == {
        "before"
    }


async def test_only_what_is_new_is_read(
    engine: Engine, folder: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found for a version is remembered: one more change costs one comparison."""
    text = "".join(f"line {n}\n" for n in range(50))
    for n in range(6):
        await worker.write("a", text := f"{n}\n{text}")
    first = await worker.blame("a")
    read: list[str] = []
    reader = module._reader

    def counted(*arguments: object) -> object:
        inner = reader(*arguments)  # type: ignore[arg-type]  # passed on

        def one(blob: str) -> bytes | None:
            read.append(blob)
            return inner(blob)

        return one

    monkeypatch.setattr(module, "_reader", counted)
    assert await worker.blame("a") == first
    again = len(read)
    await worker.write("a", f"new\n{text}")
    assert await worker.blame("a") == [("new", "6"), *first]
    assert again == 0
    assert len(read) <= 3


async def test_nothing_is_known_where_nothing_is_protected(place: EngineFactory) -> None:
    """With snapshots switched off; a folder without any change is all from before kedge."""
    (place.folder / "a").write_text("one\n")
    async with place.open(settings=kedge.Settings(snapshots=False)) as engine:
        with pytest.raises(kedge.errors.SnapshotRefused, match="switched off"):
            await engine.blame("a")
    async with place.open() as engine:
        assert (await engine.blame("a")).origins == [kedge.LineOrigin(kind="before")]


async def test_the_home_folder_is_not_protected(
    place: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says so."""
    (place.folder / "a").write_text("one\n")
    monkeypatch.setenv("HOME", str(place.folder))
    async with place.open() as engine:
        with pytest.raises(kedge.errors.SnapshotRefused, match="home folder"):
            await engine.blame("a")
