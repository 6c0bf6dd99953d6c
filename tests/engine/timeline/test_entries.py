"""The timeline of a worktree: who did what to which files, page by page."""

from pathlib import Path

import pytest

import kedge
from kedge.domain.timeline import TimelineEntry
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from tests.engine.blame.histories import PATHS, History
from tests.engine.engine_factory import EngineFactory


async def write(session: Session, folder: Path, *paths: str, text: str = "x\n") -> str:
    """One turn that writes files; its prompt."""
    turn = session.turn("Go on")
    async with turn, turn.step() as step, step.tool("write", {}, reads=paths, writes=paths):
        for path in paths:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
    return turn.message.id


def told(entries: list[TimelineEntry]) -> list[tuple[str, dict[str, str]]]:
    """Kind and files of each entry."""
    return [(each.kind, {file.path: file.status for file in each.files}) for each in entries]


async def everything(engine: Engine, limit: int = 50, **chosen: object) -> list[TimelineEntry]:
    """All pages together."""
    found: list[TimelineEntry] = []
    cursor: str | None = None
    while True:
        page = await engine.timeline.list(limit=limit, cursor=cursor, **chosen)  # type: ignore[arg-type]  # passed on
        found += page.entries
        cursor = page.cursor
        if cursor is None:
            return found


async def test_everything_that_happened_is_told(any_engine: Engine, folder: Path) -> None:
    """Calls, what others wrote in between, reverts and unreverts; newest first."""
    engine = any_engine
    (folder / "a").write_text("one\n")
    session = await engine.sessions.create("Writer")
    prompt = await write(session, folder, "a", "b")
    (folder / "a").write_text("outside\n")
    (folder / "b").unlink()
    await write(session, folder, "a", "b", text="two\n")
    await session.revert(prompt, strategy="overwrite")
    await session.unrevert()
    page = await engine.timeline.list()
    assert page.cursor is None
    assert told(page.entries) == [
        ("unrevert", {"a": "modified", "b": "added"}),
        ("revert", {"a": "modified", "b": "deleted"}),
        ("session", {"a": "modified", "b": "added"}),
        ("outside", {"a": "modified", "b": "deleted"}),
        ("session", {"a": "modified", "b": "added"}),
    ]
    last, found = page.entries[-1], page.entries[3]
    message = (await session.messages()).messages[1]
    (part,) = [each for each in message.parts if isinstance(each, kedge.ToolPart)]
    assert (last.sessionID, last.title, last.promptID) == (session.id, "Writer", prompt)
    assert (last.messageID, last.partID, last.tool) == (message.info.id, part.id, "write")
    assert last.time is not None
    assert (found.sessionID, found.partID, found.number) == (None, None, page.entries[2].number)
    assert [each.title for each in page.entries[:2]] == ["Writer", "Writer"]


async def test_undos_of_calls_are_told(engine: Engine, folder: Path) -> None:
    """And what puts them back; a revert of files alone is one like others."""
    session = await engine.sessions.create()
    prompt = await write(session, folder, "a")
    await session.undo(messages=[prompt])
    await session.redo(messages=[prompt])
    await session.revert(prompt, scope="files")
    assert told((await engine.timeline.list()).entries) == [
        ("revert", {"a": "deleted"}),
        ("redo", {"a": "added"}),
        ("undo", {"a": "deleted"}),
        ("session", {"a": "added"}),
    ]


async def test_what_is_shared_is_told_by_each(engine: Engine, folder: Path) -> None:
    """Commands of two sessions ran at once: an entry for each, at one place."""
    one, two = await engine.sessions.create(), await engine.sessions.create()
    await write(one, folder, "a")
    async with (
        one.turn("x") as first,
        first.step() as step,
        two.turn("x") as second,
        second.step() as other,
        step.tool("bash", {}, effects="unknown"),
        other.tool("bash", {}, effects="unknown"),
    ):
        (folder / "a").write_text("shared\n")
    page = await engine.timeline.list(limit=1)
    assert told(page.entries) == [("shared", {"a": "modified"})] * 2
    assert {each.sessionID for each in page.entries} == {one.id, two.id}
    rest = await engine.timeline.list(cursor=page.cursor)
    assert told(rest.entries) == [("session", {"a": "added"})]


async def test_a_list_is_filtered(engine: Engine, folder: Path) -> None:
    """By file or folder, by session, by time."""
    one, two = await engine.sessions.create(), await engine.sessions.create()
    prompt = await write(one, folder, "a", "d/b")
    await write(two, folder, "d/c")
    (folder / "a").write_text("outside\n")
    await write(two, folder, "a", text="two\n")
    await one.revert(prompt)
    ids = [(each.kind, each.sessionID) for each in await everything(engine, path="a")]
    assert ids == [("session", two.id), ("outside", None), ("session", one.id)]
    assert told(await everything(engine, path="d")) == [
        ("revert", {"d/b": "deleted"}),
        ("session", {"d/c": "added"}),
        ("session", {"d/b": "added"}),
    ]
    assert await everything(engine, path="nothing") == []
    assert told(await everything(engine, session=two.id)) == [
        ("session", {"a": "modified"}),
        ("session", {"d/c": "added"}),
    ]
    whole = await everything(engine)
    times = sorted({each.time for each in whole if each.time is not None})
    for time in times:
        newer = await everything(engine, since=time)
        older = await everything(engine, until=time)
        assert newer + older == whole
        assert all(each.time is not None and each.time >= time for each in newer)
    assert told(await everything(engine, path=folder / "d", directory=folder)) == told(
        await everything(engine, path="d")
    )


async def test_pages_stay_while_others_write(engine: Engine, folder: Path) -> None:
    """Whatever is written between two pages, no entry is missed or told twice."""
    session = await engine.sessions.create()
    for n in range(7):
        await write(session, folder, "a", text=f"{n}\n")
    before = await everything(engine)
    found: list[TimelineEntry] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await engine.timeline.list(limit=2, cursor=cursor)
        found, cursor = found + page.entries, page.cursor
        await write(session, folder, "b", text=f"{len(found)}\n")
    assert found == before


async def test_many_files_are_counted(engine: Engine, folder: Path) -> None:
    """An entry lists the first hundred."""
    session = await engine.sessions.create()
    await write(session, folder, *(f"{n}" for n in range(130)))
    (entry,) = (await engine.timeline.list()).entries
    assert (len(entry.files), entry.more) == (100, 30)
    (folder / "large").write_bytes(b"x" * (33 * 2**20))
    await write(session, folder, "large", text="y" * (33 * 2**20))
    (file,) = (await engine.timeline.list(limit=1)).entries[0].files
    assert (file.path, file.status, file.reason) == ("large", "unknown", "large")


async def test_folders_above_and_below_are_one_place(engine: Engine, folder: Path) -> None:
    """What a session below wrote is told with its path from here, and the reverse."""
    above = await engine.sessions.create()
    await write(above, folder, "sub/a", "b")
    below = await engine.sessions.create(directory=folder / "sub")
    await write(below, folder / "sub", "a", text="two\n")
    await write(above, folder, "sub/a", text="three\n")
    assert told(await everything(engine)) == [
        ("session", {"sub/a": "modified"}),
        ("session", {"sub/a": "modified"}),
        ("session", {"sub/a": "added", "b": "added"}),
    ]
    inside = told(await everything(engine, directory=folder / "sub"))
    assert inside == [("session", {"a": state}) for state in ("modified", "modified", "added")]


async def test_what_is_shared_above_and_below_is_no_other_program(
    engine: Engine, folder: Path
) -> None:
    """Commands ran at once in a folder and in one below: the second to tell of it found what the
    first one found."""
    (folder / "sub").mkdir()
    (folder / "sub/a").write_text("one\n")
    above = await engine.sessions.create()
    await write(above, folder, "b")
    below = await engine.sessions.create(directory=folder / "sub")
    async with (
        above.turn("x") as first,
        first.step() as step,
        below.turn("x") as second,
        second.step() as other,
        step.tool("bash", {}, effects="unknown"),
        other.tool("bash", {}, effects="unknown"),
    ):
        (folder / "sub/a").write_text("two\n")
    for each in (folder, folder / "sub"):
        entries = await everything(engine, directory=each, path=folder / "sub/a")
        assert [entry.kind for entry in entries] == ["shared", "shared"]
    assert [each.kind for each in (await engine.blame("sub/a")).origins] == ["shared"]


async def test_mistakes_are_refused(engine: Engine, folder: Path) -> None:
    """Before anything is asked of the database."""
    session = await engine.sessions.create()
    for n in range(2):
        await write(session, folder, "a", text=f"{n}\n")
    sessions = await engine.sessions.list(limit=0)
    cursor = (await engine.timeline.list(limit=1)).cursor
    assert sessions.cursor is None or sessions.cursor != cursor
    wrong: list[dict[str, object]] = [
        {"cursor": "bad"},
        {"cursor": 5},
        {"limit": -1},
        {"limit": 10**6},
        {"session": "msg_1"},
        {"since": "yesterday"},
        {"until": float("nan")},
        {"path": "../x"},
        {"path": 7},
    ]
    for each in wrong:
        with pytest.raises(kedge.errors.InvalidInput):
            await engine.timeline.list(**each)  # type: ignore[arg-type]  # the mistakes
    assert (await engine.timeline.list(limit=0)).entries == []


@pytest.mark.parametrize("seed", range(2))
async def test_replaying_the_list_gives_the_files(place: EngineFactory, seed: int) -> None:
    """In a random history of sessions and a person, each entry fits to the one before at each of
    its paths: what is added was not there, and what is changed or deleted was."""
    async with place.open() as engine:
        history = History(engine, place.folder, seed)
        await history.run(25)
        session = await engine.sessions.create()
        for path in PATHS:
            await write(session, place.folder, path, text=f"last {path}\n")
        entries = await everything(engine, limit=7)
        assert entries == await everything(engine)
    there: dict[str, bool] = {}
    shared: set[tuple[int, str]] = set()
    for entry in reversed(entries):
        for file in entry.files:
            if entry.kind == "shared":
                # Each of the sessions tells of it.
                if (entry.number, file.path) in shared:
                    continue
                shared.add((entry.number, file.path))
            if file.path in there:
                assert there[file.path] == (file.status != "added"), (entry, file)
            there[file.path] = file.status != "deleted"
    assert there == dict.fromkeys(PATHS, True)
