"""The sessions of a database: creating, listing, searching, deleting and restoring them."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kedge
from kedge.domain.errors import InvalidCursor, InvalidId, InvalidInput, SessionNotFound
from kedge.domain.events import SessionCreated, SessionDeleted, SessionUpdated
from kedge.domain.permissions import PermissionRule
from kedge.domain.sessions import ModelRef, SessionInfo
from kedge.engine.engine import Engine
from kedge.engine.sessions import DeletedSession
from kedge.testing.clock import ManualClock
from tests.engine.engine_factory import EngineFactory, stored_log

NOW = 1_800_000_000_000


async def test_a_new_session_has_what_it_was_given(any_engine: Engine) -> None:
    """Everything given at creation is in the session, and one event announces it."""
    rule = PermissionRule(permission="bash", pattern="*", action="deny")
    model = ModelRef(id="m", providerID="p")
    before = (await stored_log(any_engine))[-1].seq
    session = await any_engine.sessions.create(
        "Title",
        agent="plan",
        model=model,
        metadata={"a": [1, None]},
        permission=[rule],
        id="ses_mine",
    )
    info = (await any_engine.sessions.get("ses_mine")).info
    assert info == session.info
    assert (info.title, info.agent, info.model) == ("Title", "plan", model)
    assert (info.metadata, info.permission) == ({"a": [1, None]}, [rule])
    assert (info.path, info.parentID, info.fork) == ("", None, None)
    assert [event.type for event in await stored_log(any_engine, before)] == [SessionCreated.type]


async def test_sessions_get_titles_by_themselves(place: EngineFactory) -> None:
    """A session without a title is named after the time, a subtask as one."""
    async with place.open(clock=ManualClock(0)) as engine:
        session = await engine.sessions.create()
        child = await engine.sessions.create(parent=session.id)
    assert session.title == "New session - 1970-01-01T00:00:00.000Z"
    assert child.title == "Child session - 1970-01-01T00:00:00.000Z"


async def test_subtasks_are_children_and_forks_are_not(any_engine: Engine) -> None:
    """A subtask names its parent; a fork names its origin; each is listed where it belongs."""
    parent = await any_engine.sessions.create("parent")
    child = await any_engine.sessions.create("child", parent=parent.id)
    fork = await parent.fork()
    assert [each.id for each in await parent.children()] == [child.id]
    assert [each.id for each in await parent.forks()] == [fork.id]
    assert fork.origin is not None
    assert (fork.origin.sessionID, fork.info.parentID, child.origin) == (parent.id, None, None)
    roots = (await any_engine.sessions.list(roots=True)).sessions
    assert {each.id for each in roots} == {parent.id, fork.id}


async def test_a_subtask_needs_a_parent(any_engine: Engine) -> None:
    """A subtask of a session that is not there is refused, also of one that was deleted."""
    gone = await any_engine.sessions.create("gone")
    await gone.delete()
    for parent in ("ses_nope", gone.id):
        with pytest.raises(SessionNotFound):
            await any_engine.sessions.create("child", parent=parent)


async def test_another_directory_has_sessions_of_its_own(
    any_engine: Engine, tmp_path: Path
) -> None:
    """A session may belong to another directory, in another project, and is listed there."""
    other = tmp_path / "other"
    other.mkdir()
    session = await any_engine.sessions.create("there", directory=other)
    assert session.info.directory == str(other)
    assert session.info.projectID != any_engine.project.id
    assert (await any_engine.sessions.list()).sessions == []
    for found in (
        await any_engine.sessions.list(directory=other),
        await any_engine.sessions.list(everywhere=True),
    ):
        assert [each.id for each in found.sessions] == [session.id]


async def test_an_id_can_be_used_once(any_engine: Engine) -> None:
    """A second session with the same id is refused, even when the first was deleted."""
    session = await any_engine.sessions.create("first", id="ses_x")
    for _ in range(2):
        with pytest.raises(InvalidInput, match="exists already"):
            await any_engine.sessions.create("second", id="ses_x")
        if not (await any_engine.sessions.deleted()).sessions:
            await session.delete()
    assert (await any_engine.sessions.restore("ses_x")).title == "first"


@pytest.mark.parametrize("id", ["ses_nope", "ses"])
async def test_an_unknown_session_is_not_found(any_engine: Engine, id: str) -> None:
    """An id that nobody has is its own kind of error everywhere."""
    for attempt in (any_engine.sessions.get(id), any_engine.sessions.restore(id)):
        with pytest.raises(SessionNotFound):
            await attempt


@pytest.mark.parametrize("id", ["", "msg_1", "ses_ space", "ses_é", "ses_" + "x" * 200, 5, None])
async def test_a_malformed_id_is_refused(engine: Engine, id: Any) -> None:  # noqa: ANN401
    """What cannot be a session's id is refused before the database is asked."""
    for attempt in (engine.sessions.get(id), engine.sessions.restore(id)):
        with pytest.raises(InvalidId):
            await attempt


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": 5},
        {"metadata": "x"},
        {"metadata": {"x": 1 + 2j}},
        {"permission": "x"},
        {"permission": [{"permission": 1}]},
        {"model": {"id": 5}},
        {"agent": 5},
        {"parent": "msg_1"},
        {"id": "x"},
        {"directory": "a\0b"},
        {"title": "y" * 2_000_000},
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_session_is_not_made_of_nonsense(engine: Engine, wrong: dict[str, Any]) -> None:
    """Wrong values are one typed error, and nothing is stored."""
    before = await stored_log(engine)
    with pytest.raises(InvalidInput):
        await engine.sessions.create(**wrong)
    assert await stored_log(engine) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": -1},
        {"limit": 1.5},
        {"limit": True},
        {"limit": 10**9},
        {"start": float("nan")},
        {"start": "x"},
        {"cursor": "nonsense"},
        {"cursor": "e30"},
        {"search": 5},
        {"directory": "/a", "path": "b"},
        {"everywhere": True, "path": "b"},
        {"directory": "a\0b"},
        {"directory": "\ud800"},
        {"directory": 5},
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_list_is_not_asked_for_nonsense(engine: Engine, wrong: dict[str, Any]) -> None:
    """Wrong arguments of a list are typed errors."""
    with pytest.raises(InvalidInput):
        await engine.sessions.list(**wrong)


@dataclass(frozen=True)
class Made:
    """A session as the model of the list knows it."""

    number: int
    below: str
    updated: int
    child: bool
    archived: bool


made = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "a/b", "ab"]), st.integers(0, 3), st.booleans(), st.booleans()
    ),
    max_size=12,
).map(lambda found: [Made(n, *each) for n, each in enumerate(found)])
query = st.fixed_dictionaries(
    {
        "path": st.sampled_from([None, "", "a", "a/b", "b"]),
        "roots": st.sampled_from([None, True, False]),
        "archived": st.sampled_from([None, True, False]),
        "start": st.sampled_from([None, NOW, NOW + 1, NOW + 1.5, NOW + 9]),
        "limit": st.integers(0, 5),
    }
)


def expected(sessions: list[Made], asked: dict[str, Any]) -> list[int]:
    """The numbers of the sessions that a list must hold, in order."""
    path, roots, archived, start = (asked[k] for k in ("path", "roots", "archived", "start"))
    chosen = [
        each
        for each in sessions
        if (not path or each.below == path or each.below.startswith(f"{path}/"))
        and roots in (None, not each.child)
        and archived in (None, each.archived)
        and (start is None or NOW + each.updated >= start)
    ]
    # Ids of later sessions sort first; of two changed at the same time the older one comes first.
    return [each.number for each in sorted(chosen, key=lambda each: (-each.updated, each.number))]


async def numbered(engine: Engine, asked: dict[str, Any]) -> list[int]:
    """The numbers of the sessions in a list, page after page."""
    if asked["limit"] == 0:
        page = await engine.sessions.list(**asked)
        assert (page.sessions, page.cursor) == ([], None)
        asked = {**asked, "limit": 1}
    numbers: list[int] = []
    cursor = None
    while True:
        page = await engine.sessions.list(**asked, cursor=cursor)
        assert len(page.sessions) <= asked["limit"]
        numbers += [int(each.title) for each in page.sessions]
        cursor = page.cursor
        if cursor is None:
            return numbers


@settings(max_examples=25)
@given(sessions=made, questions=st.lists(query, min_size=1, max_size=6))
def test_lists_hold_what_a_plain_model_says(
    sessions: list[Made], questions: list[dict[str, Any]]
) -> None:
    """Every combination of filters, page by page, gives what filtering a plain list gives."""

    async def play(folder: Path) -> None:
        for below in ("a/b", "ab"):
            (folder / "w" / below).mkdir(parents=True)
        (folder / "w" / ".git").mkdir()
        (folder / "w" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        clock = ManualClock(NOW)
        async with kedge.open(folder / "w", data_dir=folder / "data", clock=clock) as engine:
            (folder / "elsewhere").mkdir()
            parent = await engine.sessions.create(directory=folder / "elsewhere")
            for each in sessions:
                clock.advance(NOW + each.updated - clock.now())
                session = await engine.sessions.create(
                    str(each.number),
                    directory=folder / "w" / each.below,
                    parent=parent.id if each.child else None,
                )
                if each.archived:
                    await session.update(archived=True)
            for asked in questions:
                assert await numbered(engine, asked) == expected(sessions, asked), asked

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder).resolve()))


async def test_a_deleted_session_is_hidden_and_can_be_restored(any_engine: Engine) -> None:
    """Delete hides a session and its subtasks, deepest first; restore brings them all back."""
    parent = await any_engine.sessions.create("parent")
    child = await any_engine.sessions.create("child", parent=parent.id)
    grandchild = await any_engine.sessions.create("grandchild", parent=child.id)
    fork = await parent.fork()
    before = (await stored_log(any_engine))[-1].seq
    await parent.delete()
    gone = await stored_log(any_engine, before)
    assert [(event.type, event.session_id) for event in gone] == [
        (SessionDeleted.type, grandchild.id),
        (SessionDeleted.type, child.id),
        (SessionDeleted.type, parent.id),
    ]
    assert [each.id for each in (await any_engine.sessions.list()).sessions] == [fork.id]
    for each in (parent, child, grandchild):
        with pytest.raises(SessionNotFound):
            await any_engine.sessions.get(each.id)
        for attempt in (each.update(title="x"), each.messages(), each.fork(), each.delete()):
            with pytest.raises(SessionNotFound):
                await attempt
    restored = await any_engine.sessions.restore(parent.id)
    assert restored.info == parent.info
    listed = {each.id for each in (await any_engine.sessions.list()).sessions}
    assert listed == {parent.id, child.id, grandchild.id, fork.id}
    back = (await stored_log(any_engine))[-1]
    assert back.type == SessionUpdated.type
    assert (await any_engine.sessions.restore(parent.id)).id == parent.id, "restored already"


async def test_deleted_sessions_are_paged(any_place: EngineFactory) -> None:
    """Page after page gives every deleted session once, the longest deleted first."""
    clock = ManualClock(NOW)
    async with any_place.open(clock=clock) as engine:
        ids = []
        for n in range(7):
            session = await engine.sessions.create(f"{n}")
            clock.advance(n % 2)
            await session.delete()
            ids.append(session.id)
        found: list[DeletedSession] = []
        cursor = None
        while True:
            page = await engine.sessions.deleted(limit=2, cursor=cursor)
            found += page.sessions
            cursor = page.cursor
            if cursor is None:
                break
            assert len(page.sessions) == 2
        assert sorted(each.info.id for each in found) == sorted(ids)
        order = [(each.time_deleted, each.info.id) for each in found]
        assert order == sorted(order)
        assert (await engine.sessions.deleted(limit=0)).sessions == []
        assert (await engine.sessions.deleted(limit=7)).cursor is None
        with pytest.raises(InvalidCursor):
            await engine.sessions.deleted(cursor="nonsense")


async def test_sessions_are_found_by_their_words(any_engine: Engine) -> None:
    """A search looks at titles, texts, tool input and output, and lists title matches first."""
    said = await any_engine.sessions.create("Quiet")
    async with (
        said.turn("Please anchor the ship") as turn,
        turn.step() as step,
        step.tool("bash", {"command": "haul kedgewarp"}) as call,
    ):
        call.output = "Größe 42"
    titled = await any_engine.sessions.create("The anchor")
    for words, due in {
        "anchor": [titled.id, said.id],
        "ANCH ship": [said.id],
        "kedgewarp": [said.id],
        "grosse": [said.id],
        "größe": [said.id],
        "groß": [said.id],
        "nothing": [],
        "": [],
        "'\"*()": [],
        "HE AN": [titled.id],
        "nchor": [titled.id],
    }.items():
        found = [each.id for each in (await any_engine.sessions.list(search=words)).sessions]
        assert found == due, words
    hits = (await any_engine.sessions.search("anchor")).hits
    assert [(hit.session.id, hit.messageID is None) for hit in hits] == [
        (titled.id, True),
        (said.id, False),
    ]
    assert "anchor" in hits[1].excerpt
    page = await any_engine.sessions.search("anchor", limit=1)
    assert page.cursor is not None
    rest = await any_engine.sessions.search("anchor", limit=1, cursor=page.cursor)
    assert [hit.session.id for hit in page.hits + rest.hits] == [titled.id, said.id]
    await titled.delete()
    assert [h.session.id for h in (await any_engine.sessions.search("anchor")).hits] == [said.id]


async def test_a_search_is_paged(any_engine: Engine) -> None:
    """A list of matches goes on where its last page ended, with all other filters in force."""
    made_here = [await any_engine.sessions.create(f"match {n}") for n in range(5)]
    await made_here[0].update(archived=True)
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await any_engine.sessions.list(
            search="match", archived=False, limit=2, cursor=cursor
        )
        found += [each.info for each in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(each.id for each in found) == sorted(each.id for each in made_here[1:])
