"""How much a session changed, at the end of every step."""

import pytest

from kedge.domain.file_states import Absent, Present
from kedge.domain.sessions import SessionSummary
from kedge.engine.diffs.summaries import Summaries, summed
from kedge.engine.engine import Engine
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.objects.store import ObjectStore
from kedge.store.queries.changes import NewChange, family_changes
from tests.engine.diffs.scene import PLAIN, Talk


def counted(additions: int, deletions: int, files: int) -> SessionSummary:
    """A summary."""
    return SessionSummary(additions=additions, deletions=deletions, files=files)


async def begun(engine: Engine) -> Talk:
    """A session with one answer."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    return talk


async def test_a_session_without_changes_has_none(engine: Engine) -> None:
    """There is nothing to tell."""
    talk = await begun(engine)
    assert await Summaries(talk.session).summary() is None


async def test_it_follows_what_is_recorded(any_engine: Engine) -> None:
    """New paths are added, touched ones counted again, those that come to nothing taken out."""
    talk = await begun(any_engine)
    summaries = Summaries(talk.session)
    await talk.change("a", "1\n2\n", "1\nx\ny\n")
    assert await summaries.summary() == counted(2, 1, 1)
    await talk.change("b", None, "1\n2\n3\n")
    assert await summaries.summary() == counted(5, 1, 2)
    await talk.answer()
    assert await summaries.summary() == counted(5, 1, 2)
    await talk.change("a", "1\nx\ny\n", "1\n2\n", source="observed")
    assert await summaries.summary() == counted(3, 0, 1)
    await talk.change("b", "1\n2\n3\n", None)
    assert await summaries.summary() == counted(0, 0, 0)
    assert await Summaries(talk.session).summary() == counted(0, 0, 0)


async def test_calls_that_run_side_by_side(engine: Engine) -> None:
    """A part with an earlier id whose changes come later is not overlooked."""
    talk = await begun(engine)
    summaries = Summaries(talk.session)
    early = engine.ids.part()
    await talk.change("a", None, "1\n")
    assert await summaries.summary() == counted(1, 0, 1)
    change = NewChange(path=b"b", before=Absent(), after=await talk.blob("2\n"), source="declared")
    await talk.add([change], part=early)
    assert await summaries.summary() == counted(2, 0, 2)


async def test_subtasks_count(engine: Engine) -> None:
    """What a subtask does for the session is the session's, while it goes on as well."""
    talk = await begun(engine)
    await talk.step_start(talk.answers[0], None)
    summaries = Summaries(talk.session)
    await talk.change("a", None, "1\n")
    child = await Talk.begin(engine, parent=talk.session.id)
    await child.prompt()
    await child.work_for(talk.session, 0)
    await child.answer()
    assert await summaries.summary() == counted(1, 0, 1)
    for content in ("2\n", "2\n3\n"):
        await child.change(content.strip(), None, content)
        await summaries.summary()
    assert await summaries.summary() == counted(4, 0, 3)


async def test_only_what_is_new_is_looked_at(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither rows of earlier messages nor blobs of paths that stayed are read again."""
    talk = await begun(engine)
    summaries = Summaries(talk.session)
    for n in range(5):
        await talk.change(f"{n}", None, f"{n}\n")
        await talk.answer()
    await talk.change("a", None, "x\n")
    await summaries.summary()
    assert summaries._first == 6
    reads: list[bytes] = []
    read = ObjectStore.read

    def counting(store: ObjectStore, id: bytes) -> tuple[bytes, bytes]:
        reads.append(id)
        return read(store, id)

    monkeypatch.setattr(ObjectStore, "read", counting)
    assert await summaries.summary() == counted(6, 0, 6)
    await talk.change("a", "x\n", "x\ny\n")
    assert await summaries.summary() == counted(7, 0, 6)
    assert len(reads) == 1


async def test_what_cannot_be_read_does_not_end_a_turn(engine: Engine) -> None:
    """There is no summary then, and it is tried again."""
    talk = await begun(engine)
    summaries = Summaries(talk.session)
    await talk.change("a", None, "1\n")
    blob = blob_id(b"abc").hex()
    lost = NewChange(path=b"b", before=Absent(), after=Present(blob, PLAIN), source="declared")
    await talk.add([lost])
    assert await summaries.summary() is None
    await talk.blob(b"abc")
    assert await summaries.summary() == counted(2, 0, 2)


async def test_what_is_left_after_a_revert(engine: Engine) -> None:
    """The summary of some of the changes, as if they were all."""
    talk = await begun(engine)
    await talk.change("a", None, "1\n")
    await talk.answer()
    await talk.change("a", "1\n", "2\n2\n")
    await talk.change("b", "1\n", None)

    diffs = engine.diffs
    left = await engine.store.scan(lambda: family_changes(talk.session.id, 0, 1))
    assert summed(await diffs.counts(talk.session, left)) == counted(1, 0, 1)
    whole = await engine.store.scan(lambda: family_changes(talk.session.id, 0))
    assert summed(await diffs.counts(talk.session, whole)) == counted(2, 1, 2)
    assert summed(await diffs.counts(talk.session, [])) == counted(0, 0, 0)


async def test_a_file_in_pieces_is_one_file(engine: Engine) -> None:
    """Changes that cannot be put together are added up."""
    talk = await begun(engine)
    await talk.change("a", "1\n", "2\n")
    await talk.change("a", "theirs\n", "3\n4\n")
    assert await Summaries(talk.session).summary() == counted(3, 2, 1)
    assert len(await talk.session.diff()) == 2
