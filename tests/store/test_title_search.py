"""A search in a list of sessions against a plain reading of what it promises, on both databases."""

import asyncio
import unicodedata
from functools import partial
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.domain.cursors import PageCursor
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.store.port import Store
from kedge.store.postgres.store import PostgresStore
from kedge.store.queries.search import index_events, search_sessions
from kedge.store.queries.session_lists import directory_place, session_page
from kedge.store.queries.sessions import archived, change_session
from kedge.store.sqlite.store import SqliteStore
from kedge.testing.store.scene import Scene

_LETTERS = "aAbB %_\\\0éÉßΣςİ한が.,1"
_texts = st.text(_LETTERS, max_size=6) | st.text(st.characters(exclude_categories=["Cs"]))
_talks = st.lists(st.tuples(_texts, _texts, st.booleans()), min_size=1, max_size=6)
_queries = st.lists(st.text(_LETTERS, max_size=3) | _texts, min_size=1, max_size=4)
_choices = st.sampled_from([True, False, None])


def plain(text: str) -> str:
    """As a person compares texts: without cases and accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(each for each in letters if not unicodedata.combining(each)).casefold()


def words(text: str) -> list[str]:
    """The runs of letters and digits."""
    return "".join(each if each.isalnum() else " " for each in plain(text)).split()


def holds(text: str, query: str) -> bool:
    """Whether a text has a word that begins with each word of a query."""
    wanted = words(query)
    return bool(wanted) and all(
        any(word.startswith(each) for word in words(text)) for each in wanted
    )


def matches(title: str, text: str, query: str) -> bool:
    """Whether a session with this title and this text is to be found."""
    part = bool(plain(query)) and plain(query) in plain(title)
    return part or holds(title, query) or holds(text, query)


class Checks:
    """Talks in folders of one database, a new folder each time."""

    def __init__(self, store: Store) -> None:
        self._scene = Scene(store)
        self._folders = (f"/folder/{number}" for number in count())

    async def check(
        self,
        talks: list[tuple[str, str, bool]],
        queries: list[str],
        archive: bool | None,
        limit: int,
    ) -> None:
        scene, folder = self._scene, next(self._folders)
        told: dict[str, tuple[str, str]] = {}
        for title, text, kept in talks:
            scene.clock.advance(1)
            info = await scene.add_session(title=title, directory=folder)
            await scene.add_text(await scene.add_user(info), text)
            if kept:
                await scene.write(change_session, info.id, partial(archived, at=1))
            told[info.id] = title, text
        while await scene.write(index_events, 200):
            pass
        everything = await self._listed(None, folder, archive, limit)
        for query in queries:
            expected = [info.id for info in everything if matches(*told[info.id], query)]
            found = await self._listed(query, folder, archive, limit)
            assert [info.id for info in found] == expected, query

    async def _listed(
        self, query: str | None, folder: str, archive: bool | None, limit: int
    ) -> list[SessionInfo]:
        find = session_page if query is None else partial(search_sessions, query)
        found: list[SessionInfo] = []
        after: PageCursor | None = None
        while True:
            page = await self._scene.read(
                find,
                directory_place(folder),
                roots=None,
                archived=archive,
                start=0,
                after=after,
                limit=limit,
            )
            assert len(page.texts) <= limit
            found += page.sessions
            if (after := page.next) is None:
                return found


def check(runner: asyncio.Runner, store: Store, examples: int) -> None:
    """Whatever the titles, the texts and the queries."""
    checks = Checks(store)

    @settings(max_examples=examples, deadline=None)
    @given(_talks, _queries, _choices, st.integers(1, 7))
    def checked(
        talks: list[tuple[str, str, bool]], queries: list[str], archive: bool | None, limit: int
    ) -> None:
        parts = [title[at : at + limit] for at, (title, _, _) in enumerate(talks)]
        runner.run(checks.check(talks, queries + parts, archive, limit))

    checked()


def test_sqlite_finds_what_a_plain_search_finds(tmp_path: Path) -> None:
    """In the order of the list, page by page, with its filters."""
    with asyncio.Runner() as runner:
        store = runner.run(SqliteStore.open(tmp_path / "kedge.db", IdMaker()))
        try:
            check(runner, store, 60)
        finally:
            runner.run(store.close())


def test_postgres_finds_what_a_plain_search_finds(postgres_schema: str) -> None:
    """The same as SQLite does."""
    with asyncio.Runner() as runner:
        store = runner.run(PostgresStore.open(postgres_schema, IdMaker()))
        try:
            check(runner, store, 30)
        finally:
            runner.run(store.close())
