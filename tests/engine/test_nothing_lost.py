"""Ways in which an undo once lost somebody's bytes, or was silent about them; see issue G1."""

import hashlib
import re
import shutil
import subprocess
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from kedge.snapshot.files.reader import file_clock
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import repository
from tests.engine.revert.scene import Crash, crash, lines, names, put, shell, told, turn, write

USER = "SECRET=user\n"
AGENT = "SECRET=agent\n"


async def rewrite_ignored(shelling: Session, writing: Session, env: Path) -> None:
    """While one session's command runs, a session deletes an ignored file and writes it anew, and
    a snapshot falls in between."""
    async with AsyncExitStack() as stack:
        command = await stack.enter_async_context(shelling.turn("Run it"))
        step = await stack.enter_async_context(command.step())
        await stack.enter_async_context(step.tool("bash", {}, effects="unknown"))
        if writing is not shelling:
            own = await stack.enter_async_context(writing.turn("Write it"))
            step = await stack.enter_async_context(own.step())
        await write(step, env, None)
        await (await shelling.snapshots()).track()
        async with step.tool("bash", {}, effects="unknown"):
            pass
        await write(step, env, AGENT)


def pass_a_tick() -> None:
    """Let the clock of the file system move on."""
    before = file_clock()
    while file_clock() == before:
        pass


def append(path: Path) -> None:
    """Write behind what is in a file, as `>>` does."""
    with path.open("a") as file:
        file.write(AGENT)


def ignore_env(folder: Path) -> Path:
    """A file of the user that git does not know."""
    repository(folder)
    put(folder / ".gitignore", ".env\n")
    put(folder / ".env", USER)
    return folder / ".env"


async def test_an_ignored_file_of_the_user_comes_back(engine: Engine, folder: Path) -> None:
    """Declared calls deleted and rewrote it while a command of the same session ran."""
    env = ignore_env(folder)
    session = await engine.sessions.create()
    await rewrite_ignored(session, session, env)
    first = (await session.messages()).messages[0].info.id
    receipt = await session.revert(first)
    assert told(receipt) == {".env": "restored"}
    assert env.read_text() == USER
    await session.unrevert()
    assert env.read_text() == AGENT


async def test_an_ignored_file_belongs_to_the_session_that_wrote_it(
    engine: Engine, folder: Path
) -> None:
    """Not to the one whose command ran meanwhile."""
    env = ignore_env(folder)
    shelling, writing = await engine.sessions.create(), await engine.sessions.create()
    await rewrite_ignored(shelling, writing, env)
    first = (await shelling.messages()).messages[0].info.id
    assert told(await shelling.revert(first)) == {}
    assert env.read_text() == AGENT
    first = (await writing.messages()).messages[0].info.id
    assert told(await writing.revert(first)) == {".env": "restored"}
    assert env.read_text() == USER


async def test_a_file_that_becomes_ignored_between_two_snapshots_is_not_taken_for_absent(
    engine: Engine, folder: Path
) -> None:
    """It is deleted, then ignored and there again, and a declared call finds it."""
    repository(folder)
    note = folder / "note"
    put(note, "old\n")
    session = await engine.sessions.create()
    async with (
        session.turn("Go on") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        note.unlink()
        async with step.tool("bash", {}, effects="unknown"):
            pass
        put(folder / ".gitignore", "note\n")
        put(note, "private\n")
        async with step.tool("bash", {}, effects="unknown"):
            pass
        await write(step, note, "agent\n")
    receipt = await session.revert(begun.message.id)
    assert note.exists()
    assert told(receipt)["note"] in ("restored", "conflict", "skipped")


async def test_undoing_a_move_keeps_what_a_person_wrote(engine: Engine, folder: Path) -> None:
    """The old name is in conflict, so the new one holds the only copy and stays."""
    notes, archive = folder / "notes.txt", folder / "archive.txt"
    put(notes, lines())
    session = await engine.sessions.create()
    first = await turn(session, (notes, lines((4, "agent"))))
    put(notes, lines((4, "person")))
    await shell(session, partial(notes.rename, archive))
    preview = await session.revert(first, dry_run=True)
    receipt = await session.revert(first)
    assert told(receipt) == told(preview) == {"archive.txt": "conflict", "notes.txt": "conflict"}
    assert archive.read_text() == lines((4, "person"))
    reasons = {entry.path: entry.reason or "" for entry in receipt.files}
    assert "only copy" in reasons["archive.txt"]
    await turn(session)
    assert archive.read_text() == lines((4, "person"))


async def test_undoing_a_plain_move_moves_back(engine: Engine, folder: Path) -> None:
    """What is deleted at the new name is written at the old one."""
    put(folder / "a", "text\n")
    session = await engine.sessions.create()
    first = await shell(session, partial((folder / "a").rename, folder / "b"))
    assert told(await session.revert(first)) == {"a": "recreated", "b": "deleted"}
    assert names(folder) == ["a"]
    await session.unrevert()
    assert names(folder) == ["b"]


async def test_a_move_back_that_somebody_prevents_leaves_the_new_name(
    engine: Engine, folder: Path
) -> None:
    """Removals come last, and only where what they take was written elsewhere."""
    old, new = folder / "old", folder / "new"
    put(old, "text\n")
    session = await engine.sessions.create()
    first = await shell(session, partial(old.rename, new))
    with armed("before-apply", partial(put, old, "by a person\n")):
        receipt = await session.revert(first)
    assert told(receipt) == {"old": "conflict", "new": "conflict"}
    assert new.read_text() == "text\n"
    assert old.read_text() == "by a person\n"


@pytest.mark.parametrize(("old", "new"), [("a", "d"), ("d", "a/q")])
async def test_a_move_over_a_folder_that_somebody_prevents_to_go_back(
    engine: Engine, folder: Path, old: str, new: str
) -> None:
    """What stands in the way of other files goes only when its copy is written."""
    put(folder / old, "moved\n")
    put(folder / new / "x" if new == "d" else folder / "a", "in the way\n")

    def move() -> None:
        shutil.rmtree(folder / new) if new == "d" else (folder / "a").unlink()
        (folder / new).parent.mkdir(exist_ok=True)
        (folder / old).rename(folder / new)

    session = await engine.sessions.create()
    first = await shell(session, move)
    with armed("before-apply", partial(put, folder / old, "by a person\n")):
        receipt = await session.revert(first)
    assert told(receipt)[old] == told(receipt)[new] == "conflict"
    assert (folder / new).read_text() == "moved\n"
    assert (folder / old).read_text() == "by a person\n"


async def test_a_file_comes_back_where_an_empty_folder_is(engine: Engine, folder: Path) -> None:
    """As the dry run says."""
    put(folder / "a", "text\n")

    def replace_by_a_folder() -> None:
        (folder / "a").unlink()
        (folder / "a").mkdir()

    session = await engine.sessions.create()
    first = await shell(session, replace_by_a_folder)
    assert told(await session.revert(first, dry_run=True)) == {"a": "recreated"}
    assert told(await session.revert(first)) == {"a": "recreated"}
    assert (folder / "a").read_text() == "text\n"


async def test_a_move_is_not_lost_by_a_crash_and_a_person_after_it(place: EngineFactory) -> None:
    """What a step needs is stored with the plan."""
    old, new = place.folder / "old", place.folder / "new"
    put(old, "text\n")
    async with place.open() as engine:
        session = await engine.sessions.create()
        first = await shell(session, partial(old.rename, new))
        with armed("before-apply", crash), pytest.raises(Crash):
            await session.revert(first)
    put(old, "by a person\n")
    async with place.open() as engine:
        session = await engine.sessions.get(session.id)
        await engine.reverts.recover_session(session.id)
        assert new.read_text() == "text\n"
        assert old.read_text() == "by a person\n"


async def test_what_an_interrupted_revert_did_not_do_is_not_taken_for_done(
    place: EngineFactory,
) -> None:
    """A person moved the file away before the revert could go on: it is in conflict, also when the
    revert is asked for again."""
    file = place.folder / "a"
    put(file, "old\n")
    async with place.open() as engine:
        session = await engine.sessions.create()
        first = await turn(session, (file, "new\n"))
        with armed("after-temporary", crash), pytest.raises(Crash):
            await session.revert(first)
    file.rename(place.folder / "b")
    async with place.open() as engine:
        session = await engine.sessions.get(session.id)
        await engine.reverts.recover_session(session.id)
        assert told(await session.revert(first)) == {"a": "conflict"}
        receipt = await session.revert(first, strategy="overwrite")
        assert told(receipt) == {"a": "recreated"}
        assert file.read_text() == "old\n"


async def test_a_step_that_never_happened_is_not_counted_later(place: EngineFactory) -> None:
    """It could not go on after a crash; what is reverted then stays so, however often it is
    asked for."""
    old, new = place.folder / "old", place.folder / "new"
    put(old, "moved\n")
    put(new, "replaced\n")
    async with place.open() as engine:
        session = await engine.sessions.create()
        first = await shell(session, partial(old.rename, new))
        with armed("before-apply", crash), pytest.raises(Crash):
            await session.revert(first)
    put(old, "by a person\n")
    async with place.open() as engine:
        session = await engine.sessions.get(session.id)
        await session.revert(first, strategy="overwrite")
        assert (old.read_text(), new.read_text()) == ("moved\n", "replaced\n")
        await session.revert(first)
        assert (old.read_text(), new.read_text()) == ("moved\n", "replaced\n")


async def test_an_unreverted_move_keeps_what_it_cannot_move(engine: Engine, folder: Path) -> None:
    """The new name is taken by then, so that the old one holds the only copy."""
    old, new = folder / "old", folder / "new"
    put(old, "text\n")
    session = await engine.sessions.create()
    await session.revert(await shell(session, partial(old.rename, new)))
    put(new, "by a person\n")
    assert told(await session.unrevert()) == {"new": "conflict", "old": "conflict"}
    assert old.read_text() == "text\n"
    assert new.read_text() == "by a person\n"


async def test_a_copy_whose_original_a_person_removed_stays(engine: Engine, folder: Path) -> None:
    """It is the last copy of what was there before the session."""
    put(folder / "original", "theirs\n")
    session = await engine.sessions.create()
    first = await shell(session, lambda: put(folder / "copy", "theirs\n"))
    (folder / "original").unlink()
    assert told(await session.revert(first)) == {"copy": "conflict"}
    assert (folder / "copy").read_text() == "theirs\n"


async def test_a_copy_goes_while_its_original_is_there(engine: Engine, folder: Path) -> None:
    """Nothing is lost with it."""
    put(folder / "original", "theirs\n")
    session = await engine.sessions.create()
    first = await shell(session, lambda: put(folder / "copy", "theirs\n"))
    assert told(await session.revert(first)) == {"copy": "deleted"}
    assert names(folder) == ["original"]


async def test_a_turn_that_put_the_old_text_back_can_be_undone(
    engine: Engine, folder: Path
) -> None:
    """The session had taken that text out itself, in a turn that stays."""
    put(folder / "a", "old\n")
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "new\n"))
    second = await turn(session, (folder / "a", "old\n"))
    assert told(await session.revert(second)) == {"a": "restored"}
    assert (folder / "a").read_text() == "new\n"
    assert told(await session.revert(first)) == {"a": "restored"}
    assert (folder / "a").read_text() == "old\n"


def lose(data: Path, content: str) -> None:
    """Remove a blob from the closed stores of a data folder, as a damaged disk would."""
    name = hashlib.sha1(b"blob %d\0" % len(content) + content.encode()).hexdigest()
    for store in (data / "snapshots").iterdir():
        for pack in (store / "objects" / "pack").glob("*.pack"):
            packed = pack.read_bytes()
            for file in pack.parent.glob(f"{pack.stem}.*"):
                file.unlink()
            subprocess.run(
                ["git", "--git-dir", store, "unpack-objects", "-q"], input=packed, check=True
            )
        (store / "objects" / name[:2] / name[2:]).unlink()


async def test_a_missing_object_costs_its_own_path_alone(
    place: EngineFactory, tmp_path: Path
) -> None:
    """A dry run says so, a revert does all the others, and so does the way back."""
    data = tmp_path / "data"
    for name in "ab":
        put(place.folder / name, f"old {name}\n")
    async with place.open(data_dir=data) as engine:
        session = await engine.sessions.create()
        changes = [(place.folder / name, f"new {name}\n") for name in "abc"]
        first = await turn(session, *changes)
    lose(data, "old a\n")
    async with place.open(data_dir=data) as engine:
        session = await engine.sessions.get(session.id)
        preview = await session.revert(first, dry_run=True)
        receipt = await session.revert(first)
        expected = {"a": "skipped", "b": "restored", "c": "deleted"}
        assert told(receipt) == told(preview) == expected
        assert "lacks the object" in (receipt.files[0].reason or "")
        assert (place.folder / "a").read_text() == "new a\n"
        assert (place.folder / "b").read_text() == "old b\n"
        assert told(await session.unrevert()) == {"b": "restored", "c": "recreated"}
        for path, text in changes:
            assert path.read_text() == text


# What comes from where kedge does not look


@pytest.mark.parametrize("there", [None, "another\n"])
async def test_an_ignored_file_that_a_command_moved_is_not_deleted(
    engine: Engine, folder: Path, there: str | None
) -> None:
    """Where it was, nobody knows: the receipt says so, and the file stays."""
    env = ignore_env(folder)
    if there is not None:
        put(folder / "moved", there)
    pass_a_tick()
    session = await engine.sessions.create()
    first = await shell(session, partial(env.rename, folder / "moved"))
    receipt = await session.revert(first)
    assert told(receipt) == {"moved": "skipped"}
    assert "moved here" in (receipt.files[0].reason or "")
    assert (folder / "moved").read_text() == USER


@pytest.mark.parametrize("edits_first", [True, False])
@pytest.mark.parametrize("there", [None, "another\n"])
async def test_an_ignored_file_that_a_command_changed_and_moved_is_not_deleted(
    engine: Engine, folder: Path, there: str | None, *, edits_first: bool
) -> None:
    """It is the person's file all the same, though it was written last by the command."""
    env, moved = ignore_env(folder), folder / "moved"
    if there is not None:
        put(moved, there)
    put(folder / "gone", "by a person\n")
    pass_a_tick()
    session = await engine.sessions.create()

    def work() -> None:
        (folder / "gone").unlink()
        if edits_first:
            append(env)
        env.rename(moved)
        if not edits_first:
            append(moved)

    receipt = await session.revert(await shell(session, work))
    assert told(receipt) == {"gone": "recreated", "moved": "skipped"}
    assert "moved here" in (receipt.files[0].reason or receipt.files[1].reason or "")
    assert moved.read_text() == USER + AGENT


async def test_a_folder_of_ignored_files_that_were_changed_and_moved_is_not_deleted(
    engine: Engine, folder: Path
) -> None:
    """What a person had there is kept, file by file."""
    repository(folder)
    put(folder / ".gitignore", "build/\n")
    put(folder / "build" / "in" / "notes", USER)
    pass_a_tick()
    session = await engine.sessions.create()

    def work() -> None:
        append(folder / "build" / "in" / "notes")
        (folder / "build").rename(folder / "kept")

    assert told(await session.revert(await shell(session, work))) == {"kept/in/notes": "skipped"}
    assert (folder / "kept" / "in" / "notes").read_text() == USER + AGENT


async def test_files_that_a_command_changed_where_they_were_known_are_undone(
    engine: Engine, folder: Path
) -> None:
    """Older than the command, and written by it: in place, after a move, by another name, in a
    folder that was moved, or moved there and back; and what a tool declared meanwhile."""
    env = ignore_env(folder)
    known = ("a", "b", "c", "d/x", "e/x")
    for name in known:
        put(folder / name, f"{name}\n")
    pass_a_tick()
    session = await engine.sessions.create()
    first = await shell(session)

    def work() -> None:
        put(folder / "a", "agent in a\n")
        (folder / "b").rename(folder / "moved b")
        put(folder / "moved b", "agent in moved b\n")
        (folder / "linked c").hardlink_to(folder / "c")
        put(folder / "linked c", "agent in linked c\n")
        (folder / "d").rename(folder / "moved d")
        put(folder / "moved d" / "x", "agent in d\n")
        (folder / "e").rename(folder / "moved e")
        (folder / "moved e").rename(folder / "e")
        put(folder / "e" / "x", "agent in e\n")

    await shell(session, work)
    async with (
        session.turn("Go on") as later,
        later.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        await write(step, env, AGENT)
        await (await session.snapshots()).track()
        put(env, "SECRET=later\n")
    assert set(told(await session.revert(first)).values()) == {"restored", "recreated", "deleted"}
    assert not any((folder / name).exists() for name in ("moved b", "linked c", "moved d/x"))
    assert [(folder / name).read_text() for name in known] == [f"{name}\n" for name in known]
    assert env.read_text() == USER


async def test_what_a_command_moved_in_and_moved_on_is_not_deleted(
    engine: Engine, folder: Path
) -> None:
    """The first name may not be touched, and still tells what the second one holds."""
    env = ignore_env(folder)
    pass_a_tick()
    session = await engine.sessions.create()
    first = await shell(session, partial(env.rename, folder / "one"))
    await shell(session, partial((folder / "one").rename, folder / "two"))
    assert told(await session.revert(first)) == {"one": "skipped", "two": "conflict"}
    assert (folder / "two").read_text() == USER


async def test_the_copy_of_a_file_that_became_too_large_is_not_deleted(
    place: EngineFactory,
) -> None:
    """In one command it was moved, and something that no snapshot holds took its place."""
    async with place.open(settings=Settings(snapshot_file_size=1000)) as engine:
        session = await engine.sessions.create()
        first = await shell(session)
        put(place.folder / "old", "by a person\n")
        pass_a_tick()

        def work() -> None:
            (place.folder / "old").rename(place.folder / "new")
            put(place.folder / "old", "x" * 2000)

        await shell(session, work)
        assert told(await session.revert(first)) == {"new": "conflict", "old": "skipped"}
    assert (place.folder / "new").read_text() == "by a person\n"


async def test_the_copy_of_a_file_that_went_while_others_worked_is_not_deleted(
    engine: Engine, folder: Path
) -> None:
    """Its removal is shared, so that nobody puts it back."""
    notes, archive = folder / "notes", folder / "archive"
    put(notes, "one line\nanother line\n")
    one, other = await engine.sessions.create(), await engine.sessions.create()
    first = await shell(one, lambda: put(archive, notes.read_text() + "agent\n"))
    async with (
        other.turn("Run it") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        await shell(one, notes.unlink)
    assert told(await one.revert(first)) == {"archive": "conflict", "notes": "shared"}
    assert archive.read_text() == "one line\nanother line\nagent\n"


async def test_a_file_moved_and_changed_by_one_command_is_kept_with_its_lines(
    engine: Engine, folder: Path
) -> None:
    """Its old name is taken by now; files that are only alike go."""
    session = await engine.sessions.create()
    put(folder / "src" / "0", lines((4, "first")))
    put(folder / "src" / "1", lines((4, "second")))

    def move_and_change() -> None:
        for name in "01":
            old = folder / "src" / name
            put(folder / "lib" / name, old.read_text() + "agent\n")
            old.unlink()

    first = await shell(session, move_and_change)
    put(folder / "src" / "0", "by a person\n")
    assert told(await session.revert(first)) == {
        "lib/0": "conflict",
        "lib/1": "deleted",
        "src/0": "conflict",
        "src/1": "recreated",
    }


@pytest.mark.parametrize("chosen", ["a", "b"])
async def test_one_of_several_alike_files_can_be_reverted_alone(
    engine: Engine, folder: Path, chosen: str
) -> None:
    """What is not asked for still holds its own lines."""
    for name in "ab":
        put(folder / name, "import os\n" + lines())
    session = await engine.sessions.create()
    first = await turn(session, *((folder / name, lines((3, "agent"))) for name in "ab"))
    receipt = await session.revert(first, files=[chosen])
    assert told(receipt)[chosen] == "restored"
    assert (folder / chosen).read_text() == "import os\n" + lines()


async def test_a_copy_that_keeps_its_times_is_undone(engine: Engine, folder: Path) -> None:
    """It looks as old as the file it was copied from, which is still there."""
    put(folder / "template", "template\n")
    put(folder / "conf", "by a person\n")
    pass_a_tick()
    session = await engine.sessions.create()
    copy = partial(shutil.copy2, folder / "template", folder / "conf")
    assert told(await session.revert(await shell(session, copy))) == {"conf": "restored"}
    assert (folder / "conf").read_text() == "by a person\n"


async def test_what_a_command_moved_and_wrote_itself_is_undone(
    engine: Engine, folder: Path
) -> None:
    """It made the file, or wrote over it, or it was known where it came from."""
    put(folder / "known", "known\n")
    put(folder / "written", "old\n")
    pass_a_tick()
    session = await engine.sessions.create()

    def work() -> None:
        put(folder / ".gitignore", "hidden\n")
        put(folder / "hidden", "new\n")
        (folder / "hidden").rename(folder / "made")
        (folder / "known").rename(folder / "renamed")
        put(folder / "written", "new\n")

    first = await shell(session, work)
    assert told(await session.revert(first)) == {
        ".gitignore": "deleted",
        "known": "recreated",
        "made": "deleted",
        "renamed": "deleted",
        "written": "restored",
    }


# What is told


async def test_a_diff_shows_what_the_session_deleted_of_others(
    engine: Engine, folder: Path
) -> None:
    """A person added a line between two edits of the session, and the second took it out."""
    file = folder / "a"
    put(file, lines())
    session = await engine.sessions.create()
    first = await turn(session, (file, lines((1, "one"))))
    put(file, lines((1, "one")) + "by a person\n")
    await turn(session, (file, lines((1, "one"), (3, "three"))))
    (diff,) = await session.diff()
    assert (diff.additions, diff.deletions) == (2, 3)
    assert "-by a person" in (diff.patch or "")
    assert session.info.summary is not None
    assert (session.info.summary.additions, session.info.summary.deletions) == (2, 3)
    await session.revert(first)
    assert file.read_text() == lines() + "by a person\n"


async def test_a_file_that_the_session_made_and_a_person_wrote_on_was_deleted(
    engine: Engine, folder: Path
) -> None:
    """The diff says that the person's lines went."""
    file = folder / "a"
    session = await engine.sessions.create()
    await turn(session, (file, "1\n"))
    put(file, "1\n2\n3\n")
    await turn(session, (file, None))
    assert sum(diff.deletions for diff in await session.diff()) == 3


async def test_a_receipt_names_a_file_that_was_overwritten_and_ignored(
    engine: Engine, folder: Path
) -> None:
    """Its old bytes are in the snapshot before the command; one that was only ignored is not
    named."""
    repository(folder)
    put(folder / "mine", "by a person\n")
    put(folder / "same", "by a person too\n")
    session = await engine.sessions.create()

    def overwrite() -> None:
        put(folder / "mine", "by the command\n")
        put(folder / ".gitignore", "mine\nsame\n")

    first = await shell(session, overwrite)
    receipt = await session.revert(first)
    assert told(receipt) == {".gitignore": "deleted", "mine": "skipped"}
    reason = {entry.path: entry.reason or "" for entry in receipt.files}["mine"]
    (blob,) = re.findall("[0-9a-f]{40}", reason)
    assert await (await session.snapshots()).read(blob) == b"by a person\n"


async def test_a_receipt_names_a_file_over_the_limit_that_a_command_wrote(
    place: EngineFactory,
) -> None:
    """Made, changed or deleted; one that nobody touched is not named."""
    for name in ("changed", "same", "gone"):
        put(place.folder / name, "x" * 2000)
    async with place.open(settings=Settings(snapshot_file_size=1000)) as engine:
        session = await engine.sessions.create()

        def work() -> None:
            put(place.folder / "changed", "y" * 2000)
            put(place.folder / "made", "y" * 2000)
            (place.folder / "gone").unlink()

        first = await shell(session, work)
        receipt = await session.revert(first)
    assert told(receipt) == dict.fromkeys(("changed", "gone", "made"), "skipped")
    assert all("large" in (entry.reason or "") for entry in receipt.files)


async def test_what_was_shared_is_told_again_after_a_final_revert(
    engine: Engine, folder: Path
) -> None:
    """At a path where the session's own change went, what several sessions did stays, and later
    receipts say so."""
    file = folder / "a"
    put(file, lines())
    one, other = await engine.sessions.create(), await engine.sessions.create()
    kept = await turn(one)
    async with AsyncExitStack() as stack:
        for session in (one, other):
            begun = await stack.enter_async_context(session.turn("Run it"))
            step = await stack.enter_async_context(begun.step())
            await stack.enter_async_context(step.tool("bash", {}, effects="unknown"))
        put(file, lines((1, "shared")))
    own = await turn(one, (file, lines((1, "shared"), (7, "own"))))
    boundary = (await one.messages()).messages[2].info.id
    assert boundary != own
    receipt = await one.revert(boundary)
    assert told(receipt) == {"a": "restored"}
    assert file.read_text() == lines((1, "shared"))
    assert "whose it is" in (receipt.files[0].reason or "")
    await turn(one)
    assert told(await one.revert(kept)) == {"a": "shared"}
