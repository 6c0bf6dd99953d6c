"""What a receipt tells beside what was undone: HEAD, calls of unknown effect, what is too large."""

from pathlib import Path

import pytest

from kedge.domain.sessions import SessionSummary
from kedge.engine.engine import Engine
from kedge.engine.settings import Settings
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import commit, git, repository
from tests.engine.revert.scene import lines, put, shell, told, turn

LARGE = "0123456789abcde\n" * (3 << 16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one file, committed."""
    made = tmp_path / "work"
    repository(made)
    put(made / "a.txt", lines())
    git(made, "add", "-A")
    commit(made)
    return made


async def test_head_is_that_of_the_boundary(engine: Engine, folder: Path) -> None:
    """A later snapshot with the same files but another HEAD is not taken for it."""
    session = await engine.sessions.create()
    prompt = await shell(session, lambda: git(folder, "checkout", "-q", "-b", "x"))
    await turn(session, (folder / "b.txt", "b\n"))
    (note,) = [n for n in (await session.revert(prompt)).notes if n.startswith("HEAD")]
    assert "from refs/heads/main" in note


async def test_a_commit_alone_is_told(engine: Engine, folder: Path) -> None:
    """Though no file changed."""
    session = await engine.sessions.create()
    prompt = await shell(session, lambda: commit(folder, "two"))
    receipt = await session.revert(prompt)
    assert [note for note in receipt.notes if note.startswith("HEAD")]


async def test_each_unknown_call_has_its_note(engine: Engine, folder: Path) -> None:
    """Also one that changed nothing that was looked at: it may have changed what was not."""
    put(folder / ".gitignore", "*.db\n")
    put(folder / "user.db", "data\n")
    session = await engine.sessions.create()
    prompt = await shell(session, (folder / "user.db").unlink)
    receipt = await session.revert(prompt)
    assert len(receipt.notes) == 1


async def test_a_large_file_of_a_shell_command_is_told(place: EngineFactory, folder: Path) -> None:
    """It was absent, it is too large to be covered now: it is skipped, with that reason."""
    async with place.open(settings=Settings(snapshot_file_size=1 << 20)) as engine:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "b.txt", "b\n"))
        await shell(session, lambda: put(folder / "large.txt", LARGE))
        assert told(await session.revert(prompt)) == {"b.txt": "deleted", "large.txt": "skipped"}


async def test_a_large_declared_file_is_told(place: EngineFactory, folder: Path) -> None:
    """It is too large to be covered: it is skipped, with that reason."""
    async with place.open(settings=Settings(snapshot_file_size=1 << 20)) as engine:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "large.txt", LARGE))
        assert told(await session.revert(prompt)) == {"large.txt": "skipped"}


async def test_an_unrevert_tells_whose_changes_they_are(engine: Engine, folder: Path) -> None:
    """What was observed is observed when it comes back."""
    session = await engine.sessions.create()
    prompt = await shell(session, lambda: put(folder / "made.txt", "1\n"))
    await turn(session, (folder / "b.txt", "b\n"))
    for receipt in (await session.revert(prompt), await session.unrevert()):
        assert [each.source for each in receipt.files] == ["declared", "observed"]


async def test_paths_that_match_nothing_are_named(engine: Engine, folder: Path) -> None:
    """A mistyped path is no silent success; a `Path` is as good as text."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "b.txt", "b\n"))
    files: list[str | Path] = [folder / "b.txt", "typo.txt"]
    receipt = await session.revert(prompt, files=files, dry_run=True)
    assert told(receipt) == {"b.txt": "deleted"}
    assert receipt.notes == ["the session changed nothing at typo.txt"]


async def test_an_unknown_message_is_told(engine: Engine, folder: Path) -> None:
    """Nothing happens, and the receipt says why."""
    session = await engine.sessions.create()
    receipt = await session.revert("msg_nothing")
    assert (receipt.applied, receipt.files) == (False, [])
    assert receipt.notes == ["there is no such message or part in this session"]


async def test_a_fork_tells_what_is_not_its_own(engine: Engine, folder: Path) -> None:
    """Copied messages name files that only their origin can undo."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "b.txt", "b\n"))
    fork = await session.fork()
    first = (await fork.messages()).messages[0].info.id
    receipt = await fork.revert(first)
    assert receipt.files == []
    assert [note for note in receipt.notes if session.id in note]
    assert (folder / "b.txt").exists()
    own = await turn(fork, (folder / "c.txt", "c\n"))
    assert not [note for note in (await fork.revert(own)).notes if session.id in note]
    assert told(await session.revert(prompt)) == {"b.txt": "deleted"}


async def test_overwriting_tells_what_went_with_it(engine: Engine, folder: Path) -> None:
    """The receipt says that somebody else's work is gone from the file."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "b.txt", "b\n"))
    put(folder / "b.txt", "somebody's\n")
    (entry,) = (await session.revert(prompt, strategy="overwrite")).files
    assert entry.outcome == "deleted"
    assert entry.reason is not None
    said, _, blob = entry.reason.partition("; it is kept as ")
    assert said == "what others changed in it since went with it"
    assert await (await session.snapshots()).read(blob) == b"somebody's\n"
    await session.unrevert()
    assert (folder / "b.txt").read_text() == "somebody's\n"


async def test_overwriting_tells_what_others_did_before_the_last_change(
    engine: Engine, folder: Path
) -> None:
    """The file is as the session left it, and holds a line of somebody else all the same."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "b.txt", "b\n"))
    put(folder / "b.txt", "b\nsomebody's\n")
    await turn(session, (folder / "b.txt", "b\nsomebody's\nmine\n"))
    (entry,) = (await session.revert(prompt, strategy="overwrite")).files
    assert "what others changed in it since went with it" in (entry.reason or "")


@pytest.mark.parametrize("settings", [Settings(snapshot_files=1), Settings(snapshots=False)])
async def test_what_was_not_protected_is_told(
    place: EngineFactory, folder: Path, settings: Settings
) -> None:
    """Where no snapshot could be taken, nothing is undone, and the receipt says why."""
    put(folder / "c.txt", "c\n")
    async with place.open(settings=settings) as engine:
        session = await engine.sessions.create()
        prompt = await shell(session, lambda: put(folder / "b.txt", "b\n"))
        receipt = await session.revert(prompt)
        assert receipt.files == []
        (note,) = receipt.notes
        assert "not known" in note
        assert (folder / "b.txt").exists()


async def test_a_session_in_an_outer_worktree_counts_as_another(
    place: EngineFactory, folder: Path
) -> None:
    """A file that it wrote later is not deleted, though its bytes are the same again."""
    inner = folder / "inner"
    repository(inner)
    async with place.open() as engine:
        one = await engine.sessions.create(directory=inner)
        prompt = await turn(one, (inner / "x.txt", "x\n"))
        two = await engine.sessions.create()
        await turn(two, (inner / "x.txt", "y\n"))
        await turn(two, (inner / "x.txt", "x\n"))
        (entry,) = (await one.revert(prompt)).files
        assert (entry.outcome, entry.reason) == ("conflict", "another session changed it later")


async def test_a_files_only_revert_is_in_the_summary(engine: Engine, folder: Path) -> None:
    """Nothing is hidden, so that the session tells what is left of its changes; and again what is
    there when it is taken back."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "b.txt", "b\n"))
    await session.revert(prompt, scope="files")
    assert session.info.summary == SessionSummary(additions=0, deletions=0, files=0)
    await session.unrevert()
    assert session.info.summary == SessionSummary(additions=1, deletions=0, files=1)
