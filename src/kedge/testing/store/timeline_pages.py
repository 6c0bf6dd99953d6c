"""Checks of pages of the timeline: newest first, filtered, and the same while others write."""

from kedge.domain.file_states import Absent, Present
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.changes import ChangeSource, Home, NewChange, add_changes
from kedge.store.queries.plans import PlanStep
from kedge.store.queries.projects import place_worktree
from kedge.store.queries.timeline import next_number
from kedge.store.queries.timeline_pages import Recorded, TimelineFilter, timeline_page
from kedge.store.transaction import Script
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, Scene, opened
from kedge.testing.store.undoing import STEP, conversation, revert

_ONE, _TWO = Present("1" * 40, 0o100644), Present("2" * 40, 0o100644)
_END = 2**62


async def pages_of_the_timeline_follow_each_other(database: Database) -> None:
    """Each goes on below the last number of the one before, whatever was written meanwhile."""
    async with opened(database) as scene:
        info = await _begun(scene)
        for n in range(5):
            await _write(scene, info, f"prt_{n}", f"{n}".encode())
        first, has_more = await _page(scene, limit=2)
        assert (_paths(first), has_more) == ([b"4", b"3"], True)
        await _write(scene, info, "prt_9", b"9")
        second, has_more = await _page(scene, before=first[-1].number, limit=3)
        assert (_paths(second), has_more) == ([b"2", b"1", b"0"], False)
        assert await _page(scene, before=second[-1].number) == ([], False)


async def the_timeline_has_calls_and_plans(database: Database) -> None:
    """With what each did to files, what was found changed, and what could not be inspected; plans
    that are not carried out yet are left out."""
    async with opened(database) as scene:
        info = await _begun(scene)
        await _write(scene, info, "prt_1", b"a")
        await _write(scene, info, "prt_2", b"a", before=_TWO, after=_TWO, source="observed")
        await _write(scene, info, "prt_3", b"b", source="shared")
        await _write(scene, info, "prt_4", b"c", source="uncovered")
        await _write(scene, info, "prt_5", b"d", source="folder")
        message = (await scene.messages(info))[0][0].id
        back = PlanStep(number=1, path=b"b", expect=_ONE, want=Absent())
        steps, outcomes = [STEP, back], {0: "conflict", 1: "done"}
        await revert(scene, info, message, kind="files", steps=steps, outcomes=outcomes)  # type: ignore[arg-type]  # literals
        await revert(scene, info, None, kind="unrevert")
        found, _ = await _page(scene)
        assert [(each.kind, _paths([each])) for each in found] == [
            ("unrevert", []),
            ("revert", [b"b"]),
            ("session", [b"c"]),
            ("shared", [b"b"]),
            ("session", [b"a"]),
            ("outside", [b"a"]),
            ("session", [b"a"]),
        ]
        assert [each.session_id for each in found] == [*[info.id] * 5, "", info.id]
        assert [file.is_known for each in found[1:4] for file in each.files] == [True, False, True]
        outside = found[5].files[0]
        assert (outside.before, outside.after) == (_ONE, _TWO)


async def the_timeline_is_filtered(database: Database) -> None:
    """By a file or a folder, whatever bytes its name has; by session; by when it was recorded."""
    async with opened(database) as scene:
        one, two = await _begun(scene), await conversation(scene, 0)
        paths = (b"a", b"a/b", b"a/b/c", b"ab", b"a0", b"a\xff", b"\xff\xfe/x")
        for n, path in enumerate(paths):
            await _write(scene, one if n % 2 else two, f"prt_{n}", path, time=START + n)
        await _write(scene, one, "prt_older", b"older", time=None)
        for path, wanted in (
            (b"a", [b"a/b/c", b"a/b", b"a"]),
            (b"a/b", [b"a/b/c", b"a/b"]),
            (b"\xff\xfe", [b"\xff\xfe/x"]),
            (b"a\xff", [b"a\xff"]),
            (b"b", []),
        ):
            assert _paths((await _page(scene, path=path))[0]) == wanted, path
        assert _paths((await _page(scene, session_id=two.id))[0]) == list(paths[::-2])
        assert _paths((await _page(scene, since=START + 5))[0]) == [b"\xff\xfe/x", b"a\xff"]
        assert _paths((await _page(scene, until=START + 1))[0]) == [b"older", b"a"]
        message = (await scene.messages(one))[0][0].id
        scene.clock.advance(1_000_000)
        await revert(scene, one, message, steps=[STEP], outcomes={0: "done"})
        assert [each.kind for each in (await _page(scene, path=b"a", limit=1))[0]] == ["revert"]
        assert [each.kind for each in (await _page(scene, path=b"ab", limit=1))[0]] == ["session"]
        assert [each.kind for each in (await _page(scene, session_id=two.id, limit=1))[0]] == [
            "session"
        ]
        since = scene.clock.now()
        assert [each.kind for each in (await _page(scene, since=since))[0]] == ["revert"]


async def _begun(scene: Scene) -> SessionInfo:
    """A session whose own changes are none, in a known worktree."""
    await scene.write(place_worktree, WORKTREE, "identity", "git", START)
    return await conversation(scene, 0)


async def _write(
    scene: Scene,
    info: SessionInfo,
    part_id: str,
    path: bytes,
    *,
    before: Present | Absent = Absent(),  # noqa: B008 - a value
    after: Present | Absent = _ONE,
    source: ChangeSource = "declared",
    time: int | None = START,
) -> None:
    messages = await scene.messages(info)
    message = messages[0][0] if messages else await scene.add_user(info)
    home = Home(session_id=info.id, message_id=message.id, part_id=part_id, worktree=WORKTREE)
    change = NewChange(path=path, before=before, after=after, source=source)

    def script() -> Script[None]:
        number = yield from next_number()
        yield from add_changes(home, [change], number=number, time=time)

    await scene.write(script)


async def _page(
    scene: Scene,
    *,
    path: bytes = b"",
    session_id: str = "",
    since: int = 0,
    until: int = _END,
    before: int = _END,
    limit: int = 100,
) -> tuple[list[Recorded], bool]:
    chosen = TimelineFilter(path=path, session_id=session_id, since=since, until=until)
    return await scene.read(timeline_page, WORKTREE, chosen, before=before, limit=limit)


def _paths(entries: list[Recorded]) -> list[bytes]:
    return [file.path for entry in entries for file in entry.files]
