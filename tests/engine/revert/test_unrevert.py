"""Unreverts, and moving the boundary while a revert is pending."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from kedge.domain.receipts import Receipt, RevertScope
from kedge.engine.engine import Engine
from tests.engine.engine_factory import stored_log
from tests.engine.revert.scene import lines, names, put, shell, told, tree, turn


async def test_revert_and_unrevert_give_the_same_tree(any_engine: Engine, folder: Path) -> None:
    """Modes, links, deletions and all."""
    put(folder / "old", "old\n")
    put(folder / "gone", "gone\n")
    session = await any_engine.sessions.create()
    first = await turn(session, (folder / "old", "1\n"), (folder / "gone", None))
    await shell(
        session,
        lambda: (folder / "old").chmod(0o755),
        lambda: (folder / "link").symlink_to("old"),
        lambda: put(folder / "deep" / "er" / "file", "2\n"),
    )
    summary = session.info.summary
    after = tree(folder)
    await session.revert(first)
    assert tree(folder).keys() == {"old", "gone", "deep", "deep/er"}
    receipt = await session.unrevert()
    assert told(receipt) == {
        "deep/er/file": "recreated",
        "gone": "deleted",
        "link": "recreated",
        "old": "restored",
    }
    assert tree(folder) == after
    assert session.info.revert is None
    assert session.info.summary == summary


@pytest.mark.parametrize("scope", ["all", "files"])
async def test_folders_that_a_revert_made_go_with_it(
    engine: Engine, folder: Path, scope: RevertScope
) -> None:
    """Unless somebody uses them by then."""
    put(folder / "deep" / "er" / "file", "1\n")
    put(folder / "used" / "file", "1\n")
    session = await engine.sessions.create()
    prompt = await shell(session, partial(shutil.rmtree, folder / "deep"))
    await shell(session, partial(shutil.rmtree, folder / "used"))
    after = tree(folder)
    await session.revert(prompt, scope=scope)
    assert (folder / "deep" / "er" / "file").read_text() == "1\n"
    put(folder / "used" / "other", "2\n")
    await session.unrevert()
    assert names(folder) == ["used"]
    assert names(folder / "used") == ["other"]
    shutil.rmtree(folder / "used")
    assert tree(folder) == after


async def test_what_changed_after_the_revert_survives_the_unrevert(
    engine: Engine, folder: Path
) -> None:
    """It is merged, as a revert merges."""
    file = folder / "file"
    put(file, lines())
    session = await engine.sessions.create()
    prompt = await turn(session, (file, lines((1, "one"))))
    await session.revert(prompt)
    put(file, lines((7, "person")))
    assert told(await session.unrevert()) == {"file": "merged"}
    assert file.read_text() == lines((1, "one"), (7, "person"))


async def test_without_a_revert_nothing_happens(engine: Engine, folder: Path) -> None:
    """No event, an empty receipt."""
    session = await engine.sessions.create()
    await turn(session, (folder / "a", "1"))
    head = (await stored_log(engine))[-1].seq
    receipt = await session.unrevert()
    assert receipt == Receipt(files=[], notes=[], applied=False, strategy="merge")
    assert await stored_log(engine, head) == []


async def test_the_boundary_moves_both_ways(engine: Engine, folder: Path) -> None:
    """Each time the tree is as it was at the boundary, and one unrevert takes all of it back."""
    file = folder / "file"
    session = await engine.sessions.create()
    states, prompts = [], []
    for n in range(5):
        states.append(tree(folder))
        prompts.append(await turn(session, (file, f"{n}\n"), (folder / f"file{n}", "x\n")))
    whole = tree(folder)
    snapshot = None
    for boundary in (3, 1, 2, 4, 0, 3):
        receipt = await session.revert(prompts[boundary])
        assert tree(folder) == states[boundary]
        assert "conflict" not in told(receipt).values()
        assert session.info.revert is not None
        assert session.info.revert.messageID == prompts[boundary]
        snapshot = snapshot or session.info.revert.snapshot
        assert session.info.revert.snapshot == snapshot
    await session.unrevert()
    assert tree(folder) == whole
    assert session.info.revert is None


async def test_a_files_only_revert_hides_nothing_and_composes(engine: Engine, folder: Path) -> None:
    """Reverts after it start from what it left; unrevert takes it back too."""
    file = folder / "file"
    session = await engine.sessions.create()
    states, prompts = [], []
    for n in range(3):
        states.append(tree(folder))
        prompts.append(await turn(session, (file, f"{n}\n")))
    whole = tree(folder)
    await session.revert(prompts[2], scope="files")
    assert tree(folder) == states[2]
    assert session.info.revert is None
    await session.revert(prompts[1], scope="files")
    assert tree(folder) == states[1]
    await session.revert(prompts[2], scope="files")
    assert tree(folder) == states[2]
    await session.revert(prompts[0])
    assert tree(folder) == states[0]
    await session.unrevert()
    assert tree(folder) == whole
    assert await session.diff() != []


async def test_a_files_only_revert_counts_after_the_next_prompt(
    engine: Engine, folder: Path
) -> None:
    """It is a change of the session like any other from then on."""
    file = folder / "file"
    put(file, "base\n")
    session = await engine.sessions.create()
    first = await turn(session, (file, "1\n"))
    second = await turn(session, (file, "2\n"))
    await session.revert(second, scope="files")
    third = await turn(session, (file, "3\n"))
    assert told(await session.unrevert()) == {}
    await session.revert(third)
    assert file.read_text() == "1\n"
    await session.revert(first)
    assert file.read_text() == "base\n"


async def test_the_diff_of_a_revert_is_made_when_it_is_read(engine: Engine, folder: Path) -> None:
    """From before the first pending revert to what the last one left; empty when none is."""
    file = folder / "a.txt"
    put(file, "one\n")
    session = await engine.sessions.create()
    first = await turn(session, (file, "uno\n"))
    second = await turn(session, (folder / "c.txt", "two\n"))
    assert await session.reverted_diff() == ""
    await session.revert(second)
    await session.revert(first)
    text = await session.reverted_diff()
    assert text.startswith("diff --git a/a.txt b/a.txt\nindex e438487..5626abf 100644\n")
    assert "-uno\n+one\ndiff --git a/c.txt b/c.txt\ndeleted file mode 100644\n" in text
    await session.unrevert()
    assert await session.reverted_diff() == ""


async def test_an_unrevert_that_met_a_conflict_can_be_made_again(
    any_engine: Engine, folder: Path
) -> None:
    """What it had to leave is told of as gone until then, also when the boundary had been moved."""
    put(folder / "b", "0\n")
    session = await any_engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"), (folder / "b", "1\n"))
    second = await turn(session, (folder / "a", "2\n"))
    await session.revert(second)
    await session.revert(first)
    put(folder / "a", "by a person\n")
    assert told(await session.unrevert()) == {"a": "conflict", "b": "restored"}
    assert session.info.revert is None
    assert [diff.file for diff in await session.diff()] == ["b"]
    assert told(await session.unrevert()) == {"a": "conflict"}
    (folder / "a").unlink()
    assert told(await session.unrevert()) == {"a": "recreated"}
    assert (folder / "a").read_text() == "2\n"
    assert [diff.file for diff in await session.diff()] == ["a", "b"]
    assert told(await session.unrevert()) == {}
    assert told(await session.revert(first)) == {"a": "deleted", "b": "restored"}


@pytest.mark.parametrize("scope", ["all", "files"])
async def test_reverts_go_on_from_an_unrevert_that_met_a_conflict(
    engine: Engine, folder: Path, scope: RevertScope
) -> None:
    """Back to before the session as ever; the next prompt makes what is missing final."""
    file = folder / "deep" / "a"
    session = await engine.sessions.create()
    first = await turn(session, (file, "1\n"))
    await session.revert(first, scope=scope)
    put(file, "by a person\n")
    assert told(await session.unrevert()) == {"deep/a": "conflict"}
    file.unlink()
    assert told(await session.revert(first, dry_run=True)) == {"deep/a": "unchanged"}
    second = await turn(session, (folder / "c", "2\n"))
    assert told(await session.unrevert()) == {}
    assert [diff.file for diff in await session.diff()] == ["c"]
    assert told(await session.revert(second)) == {"c": "deleted"}
    assert await session.diff() == []
