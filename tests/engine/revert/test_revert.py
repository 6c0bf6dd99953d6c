"""Reverts: what goes back, what stays, and what is told of it."""

from pathlib import Path

import pytest

from kedge.domain.errors import InvalidId, InvalidInput, SessionNotFound
from kedge.domain.events import SessionDiff, SessionUpdated, read_frame
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import Idle, SessionSummary
from kedge.engine.engine import Engine
from tests.engine.engine_factory import stored_log
from tests.engine.repositories import commit, repository
from tests.engine.revert.scene import lines, names, put, shell, told, tree, turn, write


async def test_files_go_back_and_messages_stay(any_engine: Engine, folder: Path) -> None:
    """What was written, created and deleted since the boundary is as it was at it."""
    put(folder / "old", "old\n")
    put(folder / "doomed", "doomed\n")
    (folder / "doomed").chmod(0o600)
    session = await any_engine.sessions.create()
    await turn(session, (folder / "old", "first\n"))
    before = tree(folder)
    prompt = await turn(
        session,
        (folder / "old", "second\n"),
        (folder / "new" / "file", "new\n"),
        (folder / "doomed", None),
    )
    await turn(session, (folder / "old", "third\n"))
    receipt = await session.revert(prompt)
    assert told(receipt) == {"doomed": "recreated", "new/file": "deleted", "old": "restored"}
    assert receipt.applied
    assert {entry.source for entry in receipt.files} == {"declared"}
    assert tree(folder) == before
    assert len((await session.messages()).messages) == 6
    assert session.info.revert is not None
    assert session.info.revert.messageID == prompt
    assert session.info.revert.snapshot
    assert session.info.revert.diff is None
    assert isinstance(await session.status(), Idle)
    assert session.info == (await any_engine.sessions.get(session.id)).info


async def test_the_events_are_those_that_clients_know(engine: Engine, folder: Path) -> None:
    """The diffs of what was reverted, without texts, then the session with its summary."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1\n2\n"), (folder / "b", "3\n"))
    head = (await stored_log(engine))[-1].seq
    await session.revert(prompt)
    events = await stored_log(engine, head)
    assert [event.type for event in events] == [
        "session.status",
        "session.diff",
        "session.updated",
        "session.status",
    ]
    _, diff = read_frame(events[1].payload)
    assert isinstance(diff, SessionDiff)
    assert [(each.file, each.additions, each.status, each.patch) for each in diff.diff] == [
        ("a", 2, "added", None),
        ("b", 1, "added", None),
    ]
    _, updated = read_frame(events[2].payload)
    assert isinstance(updated, SessionUpdated)
    assert updated.info.summary == SessionSummary(additions=3, deletions=0, files=2)
    assert updated.info == session.info


async def test_a_part_is_a_boundary_too(engine: Engine, folder: Path) -> None:
    """Only what came from that part on is undone."""
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        await step.text("One, then two.")
        await write(step, folder / "one", "1\n")
        second = await write(step, folder / "two", "2\n")
    receipt = await session.revert(step.message.id, second)
    assert told(receipt) == {"two": "deleted"}
    assert names(folder) == ["one"]
    assert session.info.revert is not None
    assert session.info.revert.messageID == step.message.id
    assert session.info.revert.partID == second


async def test_what_others_changed_stays(engine: Engine, folder: Path) -> None:
    """Another session's and a person's lines survive; where they collide nothing is written."""
    file, other = folder / "shared", folder / "collision"
    put(file, lines())
    put(other, "base\n")
    one, two = [await engine.sessions.create() for _ in range(2)]
    prompt = await turn(one, (file, lines((1, "one"))), (other, "by one\n"))
    await turn(two, (file, lines((1, "one"), (4, "two"))))
    put(file, lines((1, "one"), (4, "two"), (7, "person")))
    put(other, "by a person\n")
    receipt = await one.revert(prompt)
    assert told(receipt) == {"collision": "conflict", "shared": "merged"}
    assert file.read_text() == lines((4, "two"), (7, "person"))
    assert other.read_text() == "by a person\n"
    assert (await two.refresh()).info.revert is None


async def test_overwrite_puts_everything_back(engine: Engine, folder: Path) -> None:
    """On request only; the bytes that were there are still in the store."""
    file = folder / "file"
    put(file, "base\n")
    session = await engine.sessions.create()
    prompt = await turn(session, (file, "by the session\n"))
    put(file, "by a person\n")
    receipt = await session.revert(prompt, strategy="overwrite")
    assert told(receipt) == {"file": "restored"}
    assert file.read_text() == "base\n"
    await session.unrevert()
    assert file.read_text() == "by a person\n"


async def test_abort_does_nothing_if_there_is_a_conflict(engine: Engine, folder: Path) -> None:
    """Not to the other files, and not to the messages; without a conflict it goes on."""
    session = await engine.sessions.create()
    put(folder / "a", "base\n")
    prompt = await turn(session, (folder / "a", "1\n"), (folder / "b", "2\n"))
    put(folder / "a", "by a person\n")
    before = tree(folder)
    receipt = await session.revert(prompt, strategy="abort")
    assert told(receipt) == {"a": "conflict", "b": "skipped"}
    assert not receipt.applied
    assert tree(folder) == before
    assert session.info.revert is None
    assert isinstance(await session.status(), Idle)
    put(folder / "a", "1\n")
    assert (await session.revert(prompt, strategy="abort")).applied
    assert names(folder) == ["a"]


async def test_a_dry_run_says_what_would_be_done(engine: Engine, folder: Path) -> None:
    """Exactly, and does none of it."""
    session = await engine.sessions.create()
    put(folder / "a", "base\n")
    prompt = await turn(session, (folder / "a", "1\n"), (folder / "b", "2\n"))
    await shell(session, lambda: put(folder / "c", "3\n"))
    before, head = tree(folder), (await stored_log(engine))[-1].seq
    dry = await session.revert(prompt, dry_run=True)
    assert not dry.applied
    assert tree(folder) == before
    assert await stored_log(engine, head) == []
    assert session.info.revert is None
    real = await session.revert(prompt)
    assert (dry.files, dry.notes) == (real.files, real.notes)


async def test_only_some_files_go_back(engine: Engine, folder: Path) -> None:
    """Those that are asked for, and what is below them."""
    session = await engine.sessions.create()
    prompt = await turn(
        session, (folder / "a", "1"), (folder / "b", "2"), (folder / "c" / "d", "3")
    )
    receipt = await session.revert(prompt, files=["a", str(folder / "c")])
    assert told(receipt) == {"a": "deleted", "b": "skipped", "c/d": "deleted"}
    assert names(folder) == ["b"]


async def test_only_messages_go_back(engine: Engine, folder: Path) -> None:
    """Files are left as they are, and named."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1"))
    receipt = await session.revert(prompt, scope="messages")
    assert told(receipt) == {"a": "skipped"}
    assert (folder / "a").read_text() == "1"
    hidden = session.info
    assert hidden.revert is not None
    await session.unrevert()
    assert session.info.revert is None
    assert (folder / "a").read_text() == "1"


async def test_a_session_that_changed_nothing_only_hides(engine: Engine, folder: Path) -> None:
    """There is nothing to say of files."""
    put(folder / "a", "by a person")
    session = await engine.sessions.create()
    prompt = await turn(session)
    receipt = await session.revert(prompt)
    assert receipt == Receipt(files=[], notes=[], applied=True, strategy="merge")
    assert session.info.revert is not None
    assert session.info.revert.messageID == prompt


async def test_what_is_not_there_changes_nothing(engine: Engine, folder: Path) -> None:
    """An unknown message or part: no event, an empty receipt."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1"))
    head = (await stored_log(engine))[-1].seq
    for message, part in [("msg_unknown", None), (prompt, "prt_unknown")]:
        receipt = await session.revert(message, part)
        assert (receipt.files, receipt.applied) == ([], False)
    assert await stored_log(engine, head) == []
    assert (folder / "a").exists()


async def test_bad_requests_are_refused(engine: Engine, folder: Path) -> None:
    """Before anything is done."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1"))
    with pytest.raises(InvalidId):
        await session.revert("bad")
    with pytest.raises(InvalidId):
        await session.revert(prompt, "bad")
    for field, wrong in [
        ("strategy", "best"),
        ("strategy", 1),
        ("scope", "most"),
        ("dry_run", "yes"),
        ("files", "a"),
        ("files", [1]),
        ("files", ["/etc/passwd"]),
    ]:
        with pytest.raises(InvalidInput):
            await session.revert(prompt, **{field: wrong})  # type: ignore[arg-type]  # on purpose
    await session.delete()
    with pytest.raises(SessionNotFound):
        await session.revert(prompt)


async def test_observed_changes_are_told_apart(engine: Engine, folder: Path) -> None:
    """With a note on what nobody looked at, for each call of unknown effect."""
    put(folder / "old", "old\n")
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "mine", "1\n"))
    await shell(session, (folder / "old").unlink, title="rm old")
    receipt = await session.revert(prompt)
    assert {entry.path: entry.source for entry in receipt.files} == {
        "mine": "declared",
        "old": "observed",
    }
    (note,) = receipt.notes
    assert note.endswith("were not inspected: bash (rm old)")
    assert (folder / "old").read_text() == "old\n"


async def test_shared_changes_are_nobodys(engine: Engine, folder: Path) -> None:
    """What changed while calls of two sessions ran is told and left."""
    one, two = [await engine.sessions.create() for _ in range(2)]
    async with (
        one.turn("1") as first,
        first.step() as step,
        two.turn("2") as second,
        second.step() as other,
        step.tool("bash", {}, effects="unknown"),
        other.tool("bash", {}, effects="unknown"),
    ):
        put(folder / "whose", "?\n")
    receipt = await one.revert(first.message.id)
    assert told(receipt) == {"whose": "shared"}
    assert (folder / "whose").exists()


async def test_a_moved_head_is_told(engine: Engine, tmp_path: Path) -> None:
    """HEAD is never touched, so a receipt says that it is not where it was."""
    root = tmp_path / "repo"
    repository(root)
    put(root / "a", "1\n")
    session = await engine.sessions.create(directory=root)
    prompt = await turn(session, (root / "a", "2\n"))
    commit(root, "by the user")
    receipt = await session.revert(prompt)
    assert (root / "a").read_text() == "1\n"
    (note,) = receipt.notes
    assert note.startswith("HEAD moved from refs/heads/")


async def test_subtasks_go_back_with_their_session(engine: Engine, folder: Path) -> None:
    """What a subtask did for a turn is undone with that turn."""
    session = await engine.sessions.create()
    await turn(session, (folder / "first", "1"))
    async with session.turn("Go on") as begun, begun.step() as step, step.tool("task", {}):
        child = await engine.sessions.create(parent=session.id)
        await turn(child, (folder / "child", "2"))
    receipt = await session.revert(begun.message.id)
    assert told(receipt) == {"child": "deleted"}
    assert names(folder) == ["first"]


async def test_after_an_unrevert_the_session_knows_what_it_restored(
    engine: Engine, folder: Path
) -> None:
    """It may edit what it put back, and has to read again what was merged."""
    from kedge.domain.errors import FileChanged

    back, merged = folder / "back", folder / "merged"
    put(back, "base\n")
    put(merged, lines())
    session = await engine.sessions.create()
    prompt = await turn(session, (back, "1\n"), (merged, lines((1, "one"))))
    await session.revert(prompt)
    put(merged, lines((7, "person")))
    await session.unrevert()
    async with session.turn("Again") as begun, begun.step() as step:
        async with step.tool("write", {}, writes=[back]):
            back.write_text("2\n")
        with pytest.raises(FileChanged):
            async with step.tool("write", {}, writes=[merged]):
                pass


async def test_a_path_that_another_call_is_writing_is_left(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a conflict; all the other paths go back."""
    from kedge.engine.revert import prepare

    monkeypatch.setattr(prepare, "PATIENCE", 0.0)
    files = [folder / name for name in "abcde"]
    session = await engine.sessions.create()
    prompt = await turn(session, *((file, "1") for file in files))
    locks = engine.timeline.locks
    async with locks.locked([bytes(files[1]), bytes(files[3])], 0):
        receipt = await session.revert(prompt)
    assert [path for path, outcome in told(receipt).items() if outcome == "conflict"] == ["b", "d"]
    assert names(folder) == ["b", "d"]


async def test_a_folder_that_is_gone_does_not_keep_messages(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    """Files are skipped with the reason."""
    place = tmp_path / "gone"
    place.mkdir()
    session = await engine.sessions.create(directory=place)
    prompt = await turn(session, (place / "a", "1"))
    (place / "a").unlink()
    place.rmdir()
    receipt = await session.revert(prompt)
    assert told(receipt) in ({"a": "skipped"}, {"a": "unchanged"})
    assert session.info.revert is not None
