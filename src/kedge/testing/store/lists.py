"""Checks of the lists of sessions: where a session stands, in which order, page by page."""

import functools

from kedge.domain.cursors import PageCursor
from kedge.domain.sessions import SessionInfo, SessionTime
from kedge.store.queries.session_lists import (
    EVERYWHERE,
    LAST,
    directory_place,
    path_place,
    session_page,
)
from kedge.store.queries.sessions import (
    archived,
    change_session,
    delete_session,
    restore_session,
    touched,
)
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened


async def a_session_stands_in_the_lists_of_its_place(database: Database) -> None:
    """Everywhere, its directory, its path and each folder above it up to the project's root."""
    async with opened(database) as scene:
        deep = await scene.add_session(directory="/w/a/b", path="a/b")
        shallow = await scene.add_session(directory="/w/a", path="a")
        near = await scene.add_session(directory="/w/ab", path="ab")
        root = await scene.add_session(directory="/w", path="")
        other = await scene.add_session(projectID="other", directory="/w/a", path=None)
        everything = {deep.id, shallow.id, near.id, root.id, other.id}
        assert await _ids(scene, EVERYWHERE) == everything
        assert await _ids(scene, directory_place("/w/a")) == {shallow.id, other.id}
        assert await _ids(scene, path_place("project", "a")) == {deep.id, shallow.id}
        assert await _ids(scene, path_place("project", "a/b")) == {deep.id}
        assert await _ids(scene, path_place("project", "")) == everything - {other.id}
        assert await _ids(scene, path_place("other", "")) == {other.id}
        assert await _ids(scene, path_place("project", "a/b/c")) == set()


async def long_and_odd_paths_have_lists_too(database: Database) -> None:
    """Paths longer than an index entry and paths that look like patterns are found exactly."""
    async with opened(database) as scene:
        long = "/".join(["x" * 200] * 20)
        deep = await scene.add_session(directory=f"/w/{long}", path=long)
        odd = await scene.add_session(directory="/w/100%_\\'\"é", path="100%_\\'\"é")
        assert await _ids(scene, directory_place(f"/w/{long}")) == {deep.id}
        assert await _ids(scene, path_place("project", long)) == {deep.id}
        assert await _ids(scene, path_place("project", long[:200])) == {deep.id}
        assert await _ids(scene, path_place("project", "100%_\\'\"é")) == {odd.id}
        assert await _ids(scene, directory_place("/w/100")) == set()


async def roots_archived_and_start_choose(database: Database) -> None:
    """Each can be True, False or None; `start` leaves out sessions not updated since, `before`
    those that were."""
    async with opened(database) as scene:
        root = await scene.add_session()
        child = await scene.add_session(parentID=root.id)
        kept = await scene.add_session()
        kept_child = await scene.add_session(parentID=root.id)
        for info in (kept, kept_child):
            await scene.write(change_session, info.id, functools.partial(archived, at=0))
        roots, children = {root.id, kept.id}, {child.id, kept_child.id}
        live, put_away = {root.id, child.id}, {kept.id, kept_child.id}
        for want_roots, first in ((None, roots | children), (True, roots), (False, children)):
            for want_archived, second in ((None, live | put_away), (True, put_away), (False, live)):
                found = await _ids(scene, EVERYWHERE, want_roots, want_archived)
                assert found == first & second
        scene.clock.advance(1)
        late = await scene.add_session()
        assert await _ids(scene, EVERYWHERE, start=START + 1) == {late.id}
        assert await _ids(scene, EVERYWHERE, before=START + 1) == roots | children


async def pages_follow_each_other_without_gap_or_double(database: Database) -> None:
    """Newest first, those of one moment by id, over roots, children and archived ones alike."""
    async with opened(database) as scene:
        top = await scene.add_session()
        infos = [top]
        for n in range(23):
            time = SessionTime(
                created=START, updated=START + n // 7, archived=1 if n % 5 == 0 else None
            )
            infos.append(await scene.add_session(time=time, parentID=top.id if n % 3 else None))
        expected = sorted(infos, key=lambda info: (info.time.updated, info.id), reverse=True)
        for size in (1, 4, 24, 100):
            assert await _paged(scene, size) == [info.id for info in expected]


async def a_page_holds_while_sessions_move(database: Database) -> None:
    """A session that moves to the top while a client pages is not seen twice further down."""
    async with opened(database) as scene:
        infos = []
        for _ in range(6):
            scene.clock.advance(1)
            infos.append(await scene.add_session())
        first = await _page(scene, None, 3)
        assert [each.id for each in first[0]] == [each.id for each in infos[:2:-1]]
        now = START + 100
        await scene.write(change_session, infos[0].id, functools.partial(touched, now=now))
        second = await _page(scene, first[1], 3)
        assert [each.id for each in second[0]] == [infos[2].id, infos[1].id]


async def lists_follow_changes_deletes_and_restores(database: Database) -> None:
    """A touched session goes to the top; a deleted one leaves every list and returns to all of
    them."""
    async with opened(database) as scene:
        old = await scene.add_session(directory="/w/a", path="a")
        scene.clock.advance(1)
        new = await scene.add_session(directory="/w/a", path="a")
        assert await _paged(scene, 10) == [new.id, old.id]
        await scene.write(change_session, old.id, functools.partial(touched, now=START + 9))
        assert await _paged(scene, 10) == [old.id, new.id]
        places = (EVERYWHERE, directory_place("/w/a"), path_place("project", ""))
        await scene.write(delete_session, old.id, START + 10)
        for place in places:
            assert await _ids(scene, place) == {new.id}
        await scene.write(restore_session, old.id)
        for place in places:
            assert await _ids(scene, place) == {new.id, old.id}


async def updating_never_moves_a_session_back(database: Database) -> None:
    """A clock that stepped back does not change `time.updated`."""
    async with opened(database) as scene:
        info = await scene.add_session()
        stepped_back = functools.partial(touched, now=START - 1000)
        await scene.write(change_session, info.id, stepped_back)
        await scene.write(change_session, info.id, lambda old: changed(old, title="x"))
        page, _ = await _page(scene, None, 1)
        assert page[0].time.updated == START


async def _ids(
    scene: Scene,
    place: str,
    roots: bool | None = None,
    archived: bool | None = None,
    start: int = 0,
    before: int = LAST.at,
) -> set[str]:
    page = await scene.read(
        session_page,
        place,
        roots=roots,
        archived=archived,
        start=start,
        before=before,
        after=None,
        limit=1000,
    )
    assert page.next is None
    return {info.id for info in page.sessions}


async def _page(
    scene: Scene, after: PageCursor | None, limit: int
) -> tuple[list[SessionInfo], PageCursor | None]:
    page = await scene.read(
        session_page, EVERYWHERE, roots=None, archived=None, start=0, after=after, limit=limit
    )
    return page.sessions, page.next and PageCursor.parse(page.next.text("l"), "l")


async def _paged(scene: Scene, limit: int) -> list[str]:
    found, after = await _page(scene, None, limit)
    while after is not None:
        more, after = await _page(scene, after, limit)
        assert len(more) <= limit
        found = found + more
    return [info.id for info in found]
