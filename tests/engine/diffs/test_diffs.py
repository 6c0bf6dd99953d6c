"""The diffs of sessions: which changes are in them, and what they look like."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.domain.file_states import Absent, Present
from kedge.domain.sessions import FileDiff
from kedge.engine.diffs.diffs import ROOM
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.errors import (
    EngineClosed,
    InvalidId,
    InvalidInput,
    MessageNotFound,
    ObjectMissing,
    SessionNotFound,
)
from kedge.snapshot.objects.store import ObjectStore
from kedge.store.queries.changes import NewChange
from kedge.testing.store import undoing
from kedge.testing.store.scene import Scene
from tests.engine.diffs.scene import PLAIN, Talk
from tests.engine.engine_factory import EngineFactory


def files(diffs: list[FileDiff]) -> list[str | None]:
    """The names of the files."""
    return [diff.file for diff in diffs]


async def two_turns(engine: Engine) -> Talk:
    """Two prompts; the first is answered in two steps. Each step makes a file of its own."""
    talk = await Talk.begin(engine)
    for steps in (["a", "b"], ["c"]):
        await talk.prompt()
        for name in steps:
            await talk.answer()
            await talk.change(name, None, f"{name}\n")
    return talk


async def test_the_whole_session(any_engine: Engine) -> None:
    """Without a message, all that the session changed, as OpenCode tells it."""
    talk = await two_turns(any_engine)
    await talk.change("a", "a\n", "b\n")
    diffs = await talk.session.diff()
    assert files(diffs) == ["a", "b", "c"]
    rule = "=" * 67
    assert diffs[0] == FileDiff(
        file="a",
        patch=f"Index: a\n{rule}\n--- a\t\n+++ a\t\n@@ -0,0 +1,1 @@\n+b\n",
        additions=1,
        deletions=0,
        status="added",
    )


async def test_one_message(any_engine: Engine) -> None:
    """A prompt has the changes of its whole turn, an answer those of its step."""
    talk = await two_turns(any_engine)
    diff = talk.session.diff
    assert [files(await diff(id)) for id in talk.prompts] == [["a", "b"], ["c"]]
    assert [files(await diff(id)) for id in talk.answers] == [["a"], ["b"], ["c"]]


async def test_a_turn_is_what_answers_the_prompt(engine: Engine) -> None:
    """A prompt that came while the one before it was being answered is not in between."""
    talk = await Talk.begin(engine)
    first = await talk.prompt()
    await talk.answer(first)
    await talk.change("a", None, "a\n")
    second = await talk.prompt()
    await talk.answer(first)
    await talk.change("b", None, "b\n")
    await talk.answer(second)
    await talk.change("c", None, "c\n")
    assert files(await talk.session.diff(first)) == ["a", "b"]
    assert files(await talk.session.diff(second)) == ["c"]


async def test_from_one_message_to_another(any_engine: Engine) -> None:
    """The last message is not included; without a first one it is from the beginning."""
    talk = await two_turns(any_engine)
    (_, b, c), (_, second) = talk.answers, talk.prompts
    diff = talk.session.diff
    assert files(await diff(b, until=c)) == ["b"]
    assert files(await diff(talk.prompts[0], until=second)) == ["a", "b"]
    assert files(await diff(until=b)) == ["a"]


async def test_what_cannot_be_asked(engine: Engine) -> None:
    """A message that is not there, an order that makes no sense, something that is no id."""
    talk = await two_turns(engine)
    diff = talk.session.diff
    with pytest.raises(MessageNotFound, match="msg_nope"):
        await diff("msg_nope")
    with pytest.raises(MessageNotFound, match="msg_nope"):
        await diff(until="msg_nope")
    for until in (talk.answers[0], talk.answers[1]):
        with pytest.raises(InvalidInput, match="until must come after"):
            await diff(talk.answers[1], until=until)
    with pytest.raises(InvalidId):
        await diff("ses_1")
    await talk.session.delete()
    with pytest.raises(SessionNotFound):
        await diff()


async def test_others_in_the_same_file(engine: Engine) -> None:
    """Lines of others are context in a session's diff, also those that came in between."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", "1\n2\n3\n4\n5\n", "mine\n2\n3\n4\n5\n")
    await talk.change("a", "mine\n2\ntheirs\n4\n5\n", "mine\n2\ntheirs\n4\nmine too\n")
    (diff,) = await talk.session.diff()
    assert (diff.additions, diff.deletions) == (2, 2)
    assert diff.patch is not None
    assert "\n theirs\n" in diff.patch
    assert "+mine too\n" in diff.patch


async def test_subtasks_are_included(engine: Engine, tmp_path: Path) -> None:
    """What a subtask changed for a step belongs to the step, wherever the subtask worked."""
    other = tmp_path / "other"
    other.mkdir()
    talk = await Talk.begin(engine)
    await talk.prompt()
    first = await talk.answer()
    await talk.step_start(first, None)
    await talk.change("a", None, "a\n")
    for directory in (engine.directory, other):
        child = await Talk.begin(engine, parent=talk.session.id, directory=str(directory))
        await child.prompt()
        await child.work_for(talk.session, 0)
        await child.answer()
        await child.change("b", None, "b\n")
        assert files(await child.session.diff()) == ["b"]
    second = await talk.answer()
    assert files(await talk.session.diff()) == ["../other/b", "a", "b"]
    assert files(await talk.session.diff(first)) == ["../other/b", "a", "b"]
    assert await talk.session.diff(second) == []


async def test_the_room_for_patches(engine: Engine) -> None:
    """An answer has at most 1 MiB of patches; what does not fit is still named and counted."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    large = "x" * 99 + "\n"
    await talk.change("a", None, large * 6_000)
    await talk.change("b", None, large * 6_001)
    await talk.change("c", None, "c\n")
    await talk.change("d", None, large * 20_000)
    for _ in range(2):
        diffs = await talk.session.diff()
        assert files(diffs) == ["a", "b", "c", "d"]
        assert [diff.additions for diff in diffs] == [6_000, 6_001, 1, 20_000]
        assert [diff.patch is None for diff in diffs] == [False, True, False, True]
        assert sum(len((diff.patch or "").encode()) for diff in diffs) <= ROOM


async def test_what_had_no_room_is_remembered_too(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, it is not read to find that it has none, but it is where there is more."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    large = "x" * 99 + "\n"
    await talk.change("a", None, large * 6_000)
    await talk.answer()
    await talk.change("b", None, large * 6_001)
    both = await talk.session.diff()
    reads: list[bytes] = []
    read = ObjectStore.read

    def counting(store: ObjectStore, id: bytes) -> tuple[bytes, bytes]:
        reads.append(id)
        return read(store, id)

    monkeypatch.setattr(ObjectStore, "read", counting)
    assert await talk.session.diff() == both
    assert reads == []
    (alone,) = await talk.session.diff(talk.answers[-1])
    assert alone.patch is not None
    assert len(reads) == 1


async def test_diffs_are_remembered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again, nothing is read."""
    talk = await two_turns(engine)
    diffs = await talk.session.diff()
    turn = await engine.diffs.turn_diffs(talk.session, talk.prompts[0])

    def read(store: ObjectStore, id: bytes) -> tuple[bytes, bytes]:
        raise AssertionError(f"{id.hex()} was read again")

    monkeypatch.setattr(ObjectStore, "read", read)
    assert await talk.session.diff() == diffs
    assert await engine.diffs.turn_diffs(talk.session, talk.prompts[0]) == turn


async def test_the_diffs_of_a_turn(engine: Engine) -> None:
    """What is stored with a prompt has no patches."""
    talk = await two_turns(engine)
    await talk.change("a", "a\n", None)
    turn_diffs = engine.diffs.turn_diffs
    assert await turn_diffs(talk.session, talk.prompts[1]) == [
        FileDiff(file="a", additions=0, deletions=1, status="deleted"),
        FileDiff(file="c", additions=1, deletions=0, status="added"),
    ]
    nothing = await talk.prompt()
    assert await turn_diffs(talk.session, nothing) == []


async def test_binary_and_mode_only_changes(engine: Engine) -> None:
    """Binary content has no patch and no lines; of new permissions there is only the header."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("binary", b"\0", b"\0\0")
    blob = await talk.blob("x\n")
    assert isinstance(blob, Present)
    mode = NewChange(path=b"m", before=blob, after=Present(blob.blob, 0o100755), source="observed")
    await talk.add([mode])
    binary, mode_only = await talk.session.diff()
    assert binary == FileDiff(file="binary", patch="", additions=0, deletions=0, status="modified")
    assert mode_only.patch == f"Index: m\n{'=' * 67}\n--- m\t\n+++ m\t\n"
    assert (mode_only.additions, mode_only.deletions) == (0, 0)


async def test_names_that_are_not_utf8(engine: Engine) -> None:
    """They are shown with U+FFFD."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change(b"\xff\n", None, "x\n")
    (diff,) = await talk.session.diff()
    assert diff.file == "\ufffd\n"


async def test_a_thousand_files(engine: Engine) -> None:
    """Many files are one answer."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    contents = [f"{n}\n".encode() for n in range(1000)]
    blobs = await talk.snapshots.put_blobs(contents, session=talk.session.id)
    changes = [
        NewChange(path=b"%04d" % n, before=Absent(), after=Present(blob, PLAIN), source="observed")
        for n, blob in enumerate(blobs)
    ]
    await talk.add(changes)
    diffs = await talk.session.diff()
    assert len(diffs) == 1000
    assert all(diff.additions == 1 and diff.patch for diff in diffs)


async def test_the_worktree_may_be_gone(place: EngineFactory, tmp_path: Path) -> None:
    """Diffs are read from objects, after the folder and the process that made them."""
    async with place.open(data_dir=tmp_path / "data") as engine:
        talk = await two_turns(engine)
        expected = await talk.session.diff()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(place.folder)
    async with EngineFactory(elsewhere, place.database).open(data_dir=tmp_path / "data") as engine:
        session = await engine.sessions.get(talk.session.id)
        assert await session.diff() == expected
    with pytest.raises(EngineClosed):
        await session.diff()


async def test_a_missing_object_is_said(engine: Engine) -> None:
    """What cannot be read is an error, not an empty diff."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.add(
        [NewChange(path=b"a", before=Absent(), after=Present("1" * 40, PLAIN), source="declared")]
    )
    with pytest.raises(ObjectMissing, match="1111111"):
        await talk.session.diff()


async def test_closing_the_engine_meanwhile(place: EngineFactory) -> None:
    """Who asks while the engine closes gets an answer or hears that it is closed."""
    async with place.open() as engine:
        talk = await two_turns(engine)
        asking = [asyncio.create_task(talk.session.diff()) for _ in range(8)]
        await asyncio.sleep(0)
    for answer in await asyncio.gather(*asking, return_exceptions=True):
        if not isinstance(answer, EngineClosed):
            assert isinstance(answer, list)
            assert files(answer) == ["a", "b", "c"]


def test_a_session_without_changes_imports_nothing(tmp_path: Path) -> None:
    """Nobody waits for the snapshot package to learn that nothing changed."""
    program = """
import asyncio, sys, kedge
from kedge.engine.diffs.summaries import Summaries

async def main(root):
    async with kedge.open(root, data_dir=root + "/data") as engine:
        session = await engine.sessions.create()
        assert await session.diff() == []
        assert await Summaries(session).summary() is None
    for name in ("kedge.snapshot.snapshots", "kedge.snapshot.objects", "pygit2"):
        assert name not in sys.modules, name

asyncio.run(main(sys.argv[1]))
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert not (tmp_path / "data" / "snapshots").exists()


async def test_a_handle_can_be_old(engine: Engine) -> None:
    """What happened after the handle was made is in the diff."""
    talk = await Talk.begin(engine)
    old = Session(engine, talk.session.info)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "a\n")
    assert files(await old.diff()) == ["a"]


async def test_while_a_revert_is_pending(any_engine: Engine) -> None:
    """The whole session is without what was undone, but with what was left; a message is as it
    was."""
    talk = await two_turns(any_engine)
    await talk.change("left", None, "x\n")
    scene = Scene(any_engine.store)
    await undoing.revert(scene, talk.session.info, talk.prompts[1], left=[b"left"])
    assert files(await talk.session.diff()) == ["a", "b", "left"]
    assert files(await talk.session.diff(talk.prompts[1])) == ["c", "left"]
    await undoing.revert(scene, talk.session.info, None, kind="unrevert")
    assert files(await talk.session.diff()) == ["a", "b", "c", "left"]


async def test_a_pending_revert_of_messages_alone(engine: Engine) -> None:
    """Files that were left as they are stand in the diff."""
    talk = await two_turns(engine)
    scene = Scene(engine.store)
    await undoing.revert(scene, talk.session.info, talk.prompts[0], leaves_files=True)
    assert files(await talk.session.diff()) == ["a", "b", "c"]
