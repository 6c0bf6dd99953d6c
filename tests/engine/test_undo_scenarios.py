"""The scenarios that docs/undo.md compares with OpenCode, one test per row, on real files."""

import sys
from pathlib import Path

import pytest

from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import git, repository
from tests.engine.revert.scene import lines, put, shell, told, turn

PAGE = Path(__file__).parents[2] / "docs" / "undo.md"
LARGE = "0123456789abcde\n" * (3 << 16)
"""Three MiB, more than OpenCode looks at."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a file of nine lines, committed."""
    made = tmp_path / "work"
    repository(made)
    put(made / "a.txt", lines())
    save(made)
    return made


def save(folder: Path) -> None:
    """Commit everything."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "saved")


def files(folder: Path) -> dict[str, str]:
    """The text of every file that is not git's own."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    texts = {str(path.relative_to(folder)): path for path in paths}
    return {name: path.read_text() for name, path in texts.items() if not name.startswith(".git/")}


async def test_two_sessions_edit_one_file(engine: Engine, folder: Path) -> None:
    """The lines of the session that is undone go, and come back; those of the other stay."""
    one, other = await engine.sessions.create(), await engine.sessions.create()
    prompt = await turn(one, (folder / "a.txt", lines((1, "one"))))
    await turn(other, (folder / "a.txt", lines((1, "one"), (7, "other"))))
    assert told(await one.revert(prompt)) == {"a.txt": "merged"}
    assert files(folder) == {"a.txt": lines((7, "other"))}
    assert told(await one.unrevert()) == {"a.txt": "restored"}
    assert files(folder) == {"a.txt": lines((1, "one"), (7, "other"))}


async def test_another_session_edits_a_file_that_this_one_made(
    engine: Engine, folder: Path
) -> None:
    """The file is not deleted."""
    one, other = await engine.sessions.create(), await engine.sessions.create()
    prompt = await turn(one, (folder / "new.txt", lines()))
    await turn(other, (folder / "new.txt", lines((7, "other"))))
    assert told(await one.revert(prompt)) == {"new.txt": "conflict"}
    assert (folder / "new.txt").read_text() == lines((7, "other"))


async def test_shell_commands_of_two_sessions_at_once(engine: Engine, folder: Path) -> None:
    """What came while both ran is nobody's and stays; what came while one ran alone is its own."""
    one, other = await engine.sessions.create(), await engine.sessions.create()
    async with (
        one.turn("Go on") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        put(folder / "alone.txt", "by one\n")
        await shell(other, lambda: put(folder / "both.txt", "by the other\n"))
    receipt = await one.revert(begun.message.id)
    assert told(receipt) == {"alone.txt": "deleted", "both.txt": "shared"}
    assert files(folder) == {"a.txt": lines(), "both.txt": "by the other\n"}


async def test_the_user_edits_after_the_turn(engine: Engine, folder: Path) -> None:
    """The user's lines are kept by the revert and by the unrevert."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a.txt", lines((1, "agent"))))
    put(folder / "a.txt", lines((1, "agent"), (7, "user")))
    assert told(await session.revert(prompt)) == {"a.txt": "merged"}
    assert files(folder) == {"a.txt": lines((7, "user"))}
    assert told(await session.unrevert()) == {"a.txt": "restored"}
    assert files(folder) == {"a.txt": lines((1, "agent"), (7, "user"))}


async def test_the_user_edits_the_same_line_after_the_turn(engine: Engine, folder: Path) -> None:
    """The file is left as it is, and the receipt says so."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a.txt", lines((1, "agent"))))
    put(folder / "a.txt", lines((1, "user")))
    (entry,) = (await session.revert(prompt)).files
    assert (entry.outcome, entry.reason) == ("conflict", "it was changed since, in the same lines")
    assert files(folder) == {"a.txt": lines((1, "user"))}


async def test_the_user_edits_between_undo_and_redo(engine: Engine, folder: Path) -> None:
    """The redo keeps it."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a.txt", lines((1, "agent"))))
    await session.revert(prompt)
    put(folder / "a.txt", lines((7, "user")))
    assert told(await session.unrevert()) == {"a.txt": "merged"}
    assert files(folder) == {"a.txt": lines((1, "agent"), (7, "user"))}


async def test_the_user_edits_between_two_undos(engine: Engine, folder: Path) -> None:
    """Neither going further back nor the redo takes the user's edits away."""
    put(folder / "user.txt", "old\n")
    session = await engine.sessions.create()
    first = await turn(session, (folder / "one.txt", "1\n"))
    second = await turn(session, (folder / "two.txt", "2\n"))
    await session.revert(second)
    put(folder / "user.txt", "new\n")
    put(folder / "one.txt", "by the user\n")
    assert told(await session.revert(first)) == {"one.txt": "conflict", "two.txt": "unchanged"}
    kept = {"a.txt": lines(), "one.txt": "by the user\n", "user.txt": "new\n"}
    assert files(folder) == kept
    assert told(await session.unrevert()) == {"two.txt": "recreated"}
    assert files(folder) == kept | {"two.txt": "2\n"}


async def test_the_user_edits_during_a_shell_command(engine: Engine, folder: Path) -> None:
    """It cannot be told apart: it goes too, marked as observed, and comes back."""
    put(folder / "user.txt", "old\n")
    session = await engine.sessions.create()
    prompt = await shell(
        session,
        lambda: put(folder / "agent.txt", "agent\n"),
        lambda: put(folder / "user.txt", "new\n"),
    )
    after = files(folder)
    receipt = await session.revert(prompt)
    assert told(receipt) == {"agent.txt": "deleted", "user.txt": "restored"}
    assert {entry.source for entry in receipt.files} == {"observed"}
    assert len(receipt.notes) == 1
    assert files(folder) == {"a.txt": lines(), "user.txt": "old\n"}
    await session.unrevert()
    assert files(folder) == after


async def test_the_user_edits_while_the_model_answers(engine: Engine, folder: Path) -> None:
    """Nobody's call of unknown effect runs, so it is the user's and stays."""
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        async with step.tool("write", {}, writes=["agent.txt"]):
            put(folder / "agent.txt", "agent\n")
            put(folder / "user.txt", "during the call\n")
        put(folder / "a.txt", lines((7, "user")))
    assert told(await session.revert(begun.message.id)) == {"agent.txt": "deleted"}
    assert files(folder) == {"a.txt": lines((7, "user")), "user.txt": "during the call\n"}


async def test_a_turn_deletes_a_file(engine: Engine, folder: Path) -> None:
    """The revert brings it back, the unrevert deletes it again."""
    session = await engine.sessions.create()
    prompt = await shell(session, (folder / "a.txt").unlink)
    assert told(await session.revert(prompt)) == {"a.txt": "recreated"}
    assert files(folder) == {"a.txt": lines()}
    assert told(await session.unrevert()) == {"a.txt": "deleted"}
    assert files(folder) == {}


async def test_a_turn_makes_git_ignore_a_file_of_the_user(engine: Engine, folder: Path) -> None:
    """The file is not touched, neither by the revert nor by the unrevert."""
    put(folder / "data" / "user.csv", "1,2\n")
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / ".gitignore", "data/\n"))
    kept = {"a.txt": lines(), "data/user.csv": "1,2\n"}
    assert told(await session.revert(prompt)) == {".gitignore": "deleted"}
    assert files(folder) == kept
    await session.unrevert()
    assert files(folder) == kept | {".gitignore": "data/\n"}


async def test_a_turn_stops_git_ignoring_a_file_of_the_user(engine: Engine, folder: Path) -> None:
    """The file was there before, though nobody looked at it, so it is not deleted."""
    put(folder / ".gitignore", "*.env\n")
    put(folder / "secret.env", "KEY=1\n")
    before = files(folder)
    session = await engine.sessions.create()
    declared = await turn(session, (folder / ".gitignore", "*.log\n"))
    assert told(await session.revert(declared)) == {".gitignore": "restored"}
    assert files(folder) == before
    observed = await shell(session, lambda: put(folder / ".gitignore", "*.log\n"))
    assert told(await session.revert(observed)) == {".gitignore": "restored"}
    assert files(folder) == before
    await session.unrevert()
    assert files(folder) == before | {".gitignore": "*.log\n"}


async def test_a_folder_without_git(engine: Engine, tmp_path: Path) -> None:
    """All of it works there too."""
    bare = tmp_path / "bare"
    put(bare / "a.txt", "old\n")
    session = await engine.sessions.create(directory=bare)
    prompt = await turn(session, (bare / "a.txt", "agent\n"))
    await shell(session, lambda: put(bare / "b.txt", "agent\n"))
    assert told(await session.revert(prompt)) == {"a.txt": "restored", "b.txt": "deleted"}
    assert files(bare) == {"a.txt": "old\n"}
    await session.unrevert()
    assert files(bare) == {"a.txt": "agent\n", "b.txt": "agent\n"}


async def test_files_of_three_mebibytes(engine: Engine, folder: Path) -> None:
    """New ones are deleted and changed ones restored, whoever wrote them."""
    put(folder / "tracked.txt", LARGE)
    save(folder)
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "declared.txt", LARGE))
    await shell(
        session,
        lambda: put(folder / "observed.txt", LARGE),
        lambda: put(folder / "tracked.txt", LARGE + "more\n"),
    )
    after = files(folder)
    assert told(await session.revert(prompt)) == {
        "declared.txt": "deleted",
        "observed.txt": "deleted",
        "tracked.txt": "restored",
    }
    assert files(folder) == {"a.txt": lines(), "tracked.txt": LARGE}
    await session.unrevert()
    assert files(folder) == after


async def test_a_large_file_of_the_user_is_overwritten(engine: Engine, folder: Path) -> None:
    """Its content was stored before, so the revert restores it."""
    put(folder / "user.txt", LARGE)
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "user.txt", "small\n"))
    assert told(await session.revert(prompt)) == {"user.txt": "restored"}
    assert files(folder) == {"a.txt": lines(), "user.txt": LARGE}


async def test_a_tool_writes_a_file_over_the_size_limit(place: EngineFactory, folder: Path) -> None:
    """It is left as it is, and the receipt says so; the rest is undone."""
    async with place.open(settings=Settings(snapshot_file_size=1 << 20)) as engine:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "b.txt", "b\n"), (folder / "large.txt", LARGE))
        receipt = await session.revert(prompt)
        assert told(receipt) == {"b.txt": "deleted", "large.txt": "skipped"}
        assert "large" in (receipt.files[1].reason or "")
        assert files(folder) == {"a.txt": lines(), "large.txt": LARGE}


async def test_a_tool_writes_ignored_files(engine: Engine, folder: Path) -> None:
    """What a tool declares is undone, ignored or not."""
    put(folder / ".gitignore", "*.env\n")
    put(folder / "user.env", "KEY=user\n")
    before = files(folder)
    session = await engine.sessions.create()
    prompt = await turn(
        session, (folder / "user.env", "KEY=agent\n"), (folder / "new.env", "KEY=agent\n")
    )
    assert told(await session.revert(prompt)) == {"new.env": "deleted", "user.env": "restored"}
    assert files(folder) == before


async def test_a_shell_command_outside_of_the_sub_directory(engine: Engine, folder: Path) -> None:
    """A session of a sub-directory undoes what it did anywhere in the worktree."""
    put(folder / "app" / "a.txt", "old\n")
    put(folder / "lib" / "l.txt", "old\n")
    before = files(folder)
    session = await engine.sessions.create(directory=folder / "app")
    prompt = await shell(
        session,
        lambda: put(folder / "app" / "a.txt", "agent\n"),
        lambda: put(folder / "lib" / "l.txt", "agent\n"),
        lambda: put(folder / "lib" / "new.txt", "agent\n"),
    )
    after = files(folder)
    assert told(await session.revert(prompt)) == {
        "app/a.txt": "restored",
        "lib/l.txt": "restored",
        "lib/new.txt": "deleted",
    }
    assert files(folder) == before
    await session.unrevert()
    assert files(folder) == after


async def test_a_turn_that_changed_nothing(engine: Engine, folder: Path) -> None:
    """No file is touched, whatever the user does before and after."""
    session = await engine.sessions.create()
    prompt = await turn(session)
    put(folder / "a.txt", lines((7, "user")))
    assert told(await session.revert(prompt)) == {}
    assert is_reverted(session)
    assert files(folder) == {"a.txt": lines((7, "user"))}
    put(folder / "a.txt", "all new\n")
    assert told(await session.unrevert()) == {}
    assert not is_reverted(session)
    assert files(folder) == {"a.txt": "all new\n"}


def is_reverted(session: Session) -> bool:
    """Whether messages of the session are hidden."""
    return session.info.revert is not None


async def test_the_agent_runs_git(engine: Engine, folder: Path) -> None:
    """Files go back; the branch and the commit stay, and the receipt says that HEAD moved."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a.txt", lines((1, "agent"))))
    await shell(session, lambda: git(folder, "checkout", "-q", "-b", "x"), lambda: save(folder))
    receipt = await session.revert(prompt)
    assert told(receipt) == {"a.txt": "restored"}
    assert files(folder) == {"a.txt": lines()}
    assert git(folder, "branch", "--show-current") == "x"
    assert git(folder, "status", "--porcelain") == "M a.txt"
    (note,) = [note for note in receipt.notes if note.startswith("HEAD moved")]
    assert "refs/heads/main" in note
    assert "refs/heads/x" in note
    await session.unrevert()
    assert git(folder, "status", "--porcelain") == ""


async def test_the_user_switches_the_branch_before_the_undo(engine: Engine, folder: Path) -> None:
    """What belongs to the other branch is left as it is, and the receipt says that HEAD moved."""
    git(folder, "checkout", "-q", "-b", "feature")
    put(folder / "a.txt", lines((7, "feature")))
    put(folder / "new.txt", "feature\n")
    save(folder)
    git(folder, "checkout", "-q", "main")
    session = await engine.sessions.create()
    prompt = await turn(
        session, (folder / "a.txt", lines((1, "agent"))), (folder / "new.txt", "agent\n")
    )
    save(folder)
    git(folder, "checkout", "-q", "feature")
    receipt = await session.revert(prompt)
    assert told(receipt) == {"a.txt": "unchanged", "new.txt": "conflict"}
    assert git(folder, "status", "--porcelain") == ""
    (note,) = receipt.notes
    assert note.startswith("HEAD moved from refs/heads/main")
    await session.unrevert()
    assert git(folder, "status", "--porcelain") == ""


def test_each_row_of_the_page_is_a_test_here() -> None:
    """And the other way round, in the same order."""
    table = PAGE.read_text(encoding="utf-8").partition("\n## Scenarios\n")[2]
    _, _, *rows = [line for line in table.splitlines() if line.startswith("|")]
    here = [name for name in vars(sys.modules[__name__]) if name.startswith("test_")]
    assert [row.split("|")[-2].strip(" `") for row in rows] == here[:-1]
