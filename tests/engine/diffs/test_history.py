"""The files of a session as they were at a message."""

import base64
import os
import shutil
from pathlib import Path

import pytest

from kedge.domain.worktrees import TreeEntry
from kedge.engine.diffs.history import MOST_OPEN, Archives
from kedge.engine.engine import Engine
from kedge.errors import (
    EngineClosed,
    InvalidInput,
    MessageNotFound,
    ObjectMissing,
    PathNotFound,
    PathRefused,
    PathUncovered,
    SnapshotError,
    SnapshotNotFound,
)
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore
from tests.engine.diffs.scene import Talk
from tests.engine.engine_factory import EngineFactory


async def stepped(talk: Talk, content: str) -> str:
    """An answer whose step writes a file; the id of its message."""
    message = await talk.answer()
    await talk.step_start(message, await talk.snapshot())
    talk.write("a", content)
    await talk.step_finish(message, await talk.snapshot())
    return message


async def test_the_files_as_of_each_message(any_engine: Engine) -> None:
    """An answer: as its step left them; a prompt: as they were when it was answered."""
    talk = await Talk.begin(any_engine)
    talk.write("a", "0")
    first = await talk.prompt()
    one = await stepped(talk, "1")
    two = await stepped(talk, "2")
    talk.write("a", "by hand")
    second = await talk.prompt()
    three = await stepped(talk, "3")
    last = await talk.prompt()
    talk.write("a", "4")
    messages = (first, one, two, second, three, last)
    contents = [await talk.session.file(message, "a") for message in messages]
    assert contents == [b"0", b"1", b"2", b"by hand", b"3", b"3"]


async def test_a_step_that_never_ended(engine: Engine) -> None:
    """The files are shown as it found them."""
    talk = await Talk.begin(engine)
    talk.write("a", "0")
    prompt = await talk.prompt()
    answer = await talk.answer()
    await talk.step_start(answer, await talk.snapshot())
    assert await talk.session.file(answer, "a") == b"0"
    assert await talk.session.file(prompt, "a") == b"0"


async def test_where_there_is_no_snapshot(any_engine: Engine) -> None:
    """It is said, and why; an older snapshot is never given out for it."""
    talk = await Talk.begin(any_engine)
    talk.write("a", "0")
    lonely = await talk.prompt()
    with pytest.raises(SnapshotNotFound, match=f"of message {lonely}: no step has begun"):
        await talk.session.tree(lonely)
    bare = await talk.answer()
    for message in (lonely, bare):
        with pytest.raises(SnapshotNotFound, match="no step has begun"):
            await talk.session.file(message, "a")
    failed = await talk.answer()
    await talk.step_start(failed, await talk.snapshot())
    await talk.step_finish(failed, None)
    later = await talk.prompt()
    for message in (failed, later):
        with pytest.raises(SnapshotNotFound, match="none could be taken"):
            await talk.session.file(message, "a")
    with pytest.raises(MessageNotFound):
        await talk.session.file("msg_nope", "a")


async def test_a_snapshot_that_nobody_keeps_any_more(engine: Engine) -> None:
    """The message knows it, the store does not."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    answer = await talk.answer()
    await talk.step_finish(answer, "1" * 40)
    with pytest.raises(SnapshotNotFound, match="1111"):
        await talk.session.tree(answer)


async def test_what_lies_in_a_folder(engine: Engine, folder: Path) -> None:
    """Files, folders and symlinks with their sizes; what is empty or ignored is not there."""
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "run").write_text("#!\n")
    (folder / "run").chmod(0o755)
    (folder / "sub" / "b").write_text("bb")
    (folder / "sub" / "deep" / "c").write_text("")
    (folder / "link").symlink_to("sub/b")
    (folder / os.fsdecode(b"\xff")).write_text("x")
    talk = await Talk.begin(engine)
    await talk.prompt()
    message = await stepped(talk, "a")
    raw = base64.b64encode(b"\xff").decode()
    assert await talk.session.tree(message) == [
        TreeEntry(name="a", path="a", type="file", size=1, executable=False),
        TreeEntry(name="link", path="link", type="symlink", size=5),
        TreeEntry(name="run", path="run", type="file", size=3, executable=True),
        TreeEntry(name="sub", path="sub", type="directory"),
        TreeEntry(
            name="\ufffd", path="\ufffd", pathBase64=raw, type="file", size=1, executable=False
        ),
    ]
    assert [entry.path for entry in await talk.session.tree(message, "sub")] == [
        "sub/b",
        "sub/deep",
    ]
    assert await talk.session.file(message, "link") == b"sub/b"
    assert await talk.session.file(message, "./sub/../sub/b") == b"bb"
    assert await talk.session.file(message, str(folder / "sub" / "deep" / "c")) == b""
    assert await talk.session.file(message, base64.b64decode(raw)) == b"x"


async def test_what_was_not_there(engine: Engine, folder: Path) -> None:
    """No such file, a folder where a file is asked for and the reverse, and beyond a symlink."""
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_text("b")
    (folder / "link").symlink_to("sub")
    talk = await Talk.begin(engine)
    await talk.prompt()
    message = await stepped(talk, "a")
    (folder / "late").write_text("x")
    for path in ("late", "sub/late", "a/b", "link/b"):
        with pytest.raises(PathNotFound, match=path):
            await talk.session.file(message, path)
    for path in ("late", "a/b", "link/b"):
        with pytest.raises(PathNotFound):
            await talk.session.tree(message, path)
    for path in ("sub", ""):
        with pytest.raises(InvalidInput, match="was a folder"):
            await talk.session.file(message, path)
    for path in ("a", "link"):
        with pytest.raises(InvalidInput, match="was not a folder"):
            await talk.session.tree(message, path)
    for path in ("..", "/etc/passwd"):
        with pytest.raises(PathRefused):
            await talk.session.tree(message, path)
        with pytest.raises(PathRefused):
            await talk.session.file(message, path)


async def test_what_was_not_looked_at(engine: Engine, folder: Path) -> None:
    """What is ignored is not said to be absent, nor is what is below it."""
    (folder / ".git").mkdir()
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    (folder / "x.log").write_text("x")
    (folder / "build" / "deep").mkdir(parents=True)
    (folder / "build" / "deep" / "out").write_text("x")
    talk = await Talk.begin(engine)
    await talk.prompt()
    message = await stepped(talk, "a")
    for path in ("x.log", "build/deep/out"):
        with pytest.raises(PathUncovered, match="it was ignored") as caught:
            await talk.session.file(message, path)
        assert caught.value.data["reason"] == "ignored"
    for path in ("build", "build/deep"):
        with pytest.raises(PathUncovered):
            await talk.session.tree(message, path)
    with pytest.raises(PathUncovered, match="repository"):
        await talk.session.file(message, ".git/HEAD")


async def test_a_session_of_a_folder_below_the_root(engine: Engine, folder: Path) -> None:
    """Paths are seen from the session's directory, and lead up to the worktree's root."""
    (folder / ".git").mkdir()
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_text("b")
    talk = await Talk.begin(engine, directory=str(folder / "sub"))
    assert talk.session.worktree == str(folder)
    await talk.prompt()
    message = await stepped(talk, "a")
    assert [entry.path for entry in await talk.session.tree(message)] == ["b"]
    above = await talk.session.tree(message, "..")
    assert [(entry.name, entry.path) for entry in above] == [("a", "../a"), ("sub", "../sub")]
    assert await talk.session.file(message, above[0].path) == b"a"
    assert await talk.session.tree(message, above[1].path) == await talk.session.tree(message)
    with pytest.raises(PathRefused):
        await talk.session.tree(message, "../..")


async def test_the_worktree_may_be_gone(place: EngineFactory, tmp_path: Path) -> None:
    """Its files can still be read as of every message."""
    async with place.open(data_dir=tmp_path / "data") as engine:
        talk = await Talk.begin(engine)
        await talk.prompt()
        message = await stepped(talk, "a")
    shutil.rmtree(place.folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with EngineFactory(elsewhere, place.database).open(data_dir=tmp_path / "data") as engine:
        session = await engine.sessions.get(talk.session.id)
        assert [entry.name for entry in await session.tree(message)] == ["a"]
        assert await session.file(message, "a") == b"a"


def stored(data: Path, project: str, content: bytes) -> str:
    """The id of a blob in the store of a project."""
    with ObjectStore(data / "snapshots" / project) as store:
        return store.put(BLOB, content).hex()


def is_open(store: ObjectStore) -> bool:
    """Whether it can be read."""
    try:
        store.read(b"1" * 20)
    except ObjectMissing:
        return True
    except SnapshotError:
        return False
    raise AssertionError


def test_objects_are_found_in_any_of_the_projects(tmp_path: Path) -> None:
    """A blob is read from the project that has it; one that none has is missing."""
    one, two = stored(tmp_path, "one", b"1"), stored(tmp_path, "two", b"2")
    archives = Archives(tmp_path)
    with archives.reading(["one", "two"]) as read:
        assert (read(one), read(two)) == (b"1", b"2")
        with pytest.raises(ObjectMissing, match="3333"):
            read("3" * 40)
    archives.close()


def test_what_is_written_meanwhile_is_seen(tmp_path: Path) -> None:
    """Another store of the same project writes while this one is open."""
    archives = Archives(tmp_path)
    with ObjectStore(tmp_path / "snapshots" / "one") as writer, archives.reading(["one"]) as read:
        id = writer.put(BLOB, b"new")
        writer.flush()
        assert read(id.hex()) == b"new"
    archives.close()


def test_only_so_many_stay_open(tmp_path: Path) -> None:
    """The one that was not used for longest is closed, but never one that is being read."""
    archives = Archives(tmp_path)
    with archives.opened("first") as first:
        stores = []
        for n in range(MOST_OPEN):
            with archives.opened(str(n)) as store:
                stores.append(store)
        assert [is_open(store) for store in stores] == [False, *[True] * (MOST_OPEN - 1)]
        assert is_open(first)
    with archives.opened("first") as again:
        assert again is first
    archives.close()
    assert not any(map(is_open, [first, *stores]))


def test_closing_waits_for_no_reader(tmp_path: Path) -> None:
    """Who reads at the moment goes on; the store is closed behind it, and nobody begins."""
    archives = Archives(tmp_path)
    with archives.opened("one") as store:
        archives.close()
        assert is_open(store)
        with pytest.raises(EngineClosed), archives.opened("one"):
            pass
    assert not is_open(store)
