"""Chosen calls go out of the files and come back; all else stays where it is."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.errors import (
    CallNotFound,
    InvalidId,
    InvalidInput,
    MessageNotFound,
    PartNotFound,
    SessionBusy,
)
from kedge.domain.parts import ToolPart, Undone
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.revert.scene import lines, names, put, shell, told, turn, write


async def call(session: Session, path: Path, text: str | None) -> str:
    """A turn with one call; gives the call's part."""
    async with session.turn("Go on") as begun, begun.step() as step:
        parts = [await write(step, path, text)]
    return parts[0]


async def three(session: Session, path: Path) -> list[str]:
    """Three calls that change one file, in a turn each; gives their parts."""
    parts = []
    done: list[tuple[int, str]] = []
    for n in (1, 4, 7):
        done.append((n, f"call {n}"))
        parts.append(await call(session, path, lines(*done)))
    return parts


async def mark(session: Session, id: str) -> Undone | None:
    """What a part says of its call."""
    for message in (await session.messages()).messages:
        for part in message.parts:
            if part.id == id:
                assert isinstance(part, ToolPart)
                return part.undone
    raise AssertionError(id)


async def changed(session: Session) -> dict[str | None, tuple[int, int]]:
    """What stands of a session's changes."""
    return {diff.file: (diff.additions, diff.deletions) for diff in await session.diff()}


async def test_a_call_goes_and_later_ones_stay(any_engine: Engine, folder: Path) -> None:
    """It is told on its part, in the session's diff and summary, and in the log; and it comes
    back."""
    path = folder / "file"
    put(path, lines())
    session = await any_engine.sessions.create()
    _, second, _ = await three(session, path)
    before = path.read_text()
    summary = session.info.summary
    foretold = await session.undo(parts=[second], dry_run=True)
    assert (told(foretold), foretold.applied, path.read_text()) == (
        {"file": "merged"},
        False,
        before,
    )
    head = (await stored_log(any_engine))[-1].seq
    receipt = await session.undo(parts=[second])
    assert (receipt.files, receipt.applied) == (foretold.files, True)
    assert path.read_text() == lines((1, "call 1"), (7, "call 7"))
    found = await mark(session, second)
    assert found is not None
    assert (found.files, found.left) == (1, None)
    assert await changed(session) == {"file": (2, 2)}
    assert session.info.summary is not None
    assert (session.info.summary.additions, session.info.summary.files) == (2, 1)
    assert "message.part.updated" in [each.type for each in await stored_log(any_engine, head)]
    receipt = await session.undo(parts=[second])
    assert (receipt.files, receipt.applied) == ([], False)
    assert receipt.notes == ["it is undone already; redo brings it back"]
    assert told(await session.redo(parts=[second])) == {"file": "restored"}
    assert path.read_text() == before
    assert await mark(session, second) is None
    assert session.info.summary == summary
    assert (await session.redo(parts=[second])).notes == ["it is not undone"]
    replayed, tables = await both(any_engine.store)
    assert replayed == tables


async def test_several_calls_are_one_plan(engine: Engine, folder: Path) -> None:
    """A file that one of them made goes, whatever they did to it in between."""
    path = folder / "file"
    session = await engine.sessions.create()
    parts = [await call(session, path, f"{n}\n") for n in range(3)]
    other = await call(session, folder / "other", "1\n")
    assert told(await session.undo(parts=parts[:1])) == {"file": "conflict"}
    assert told(await session.undo(parts=[*parts, other])) == {
        "file": "deleted",
        "other": "deleted",
    }
    assert names(folder) == []
    assert told(await session.redo(parts=parts[:2])) == {"file": "recreated"}
    assert path.read_text() == "1\n"
    assert told(await session.redo(parts=[parts[2], other])) == {
        "file": "restored",
        "other": "recreated",
    }
    assert path.read_text() == "2\n"


async def test_one_after_the_other_a_made_file_goes(engine: Engine, folder: Path) -> None:
    """Undone calls in between do not count as changes by others."""
    path = folder / "file"
    session = await engine.sessions.create()
    made = await call(session, path, lines())
    one, two, three = await three_calls(session, path)
    assert told(await session.undo(parts=[two])) == {"file": "merged"}
    assert told(await session.undo(parts=[made, one, three])) == {"file": "deleted"}
    assert told(await session.redo(parts=[three, two, one, made])) == {"file": "recreated"}
    assert path.read_text() == lines((1, "call 1"), (4, "call 4"), (7, "call 7"))


three_calls = three


async def test_lines_that_were_written_again_do_not_hinder(engine: Engine, folder: Path) -> None:
    """A bad edit is undone and made again; another call elsewhere in the file can go all the
    same."""
    path = folder / "file"
    put(path, lines())
    session = await engine.sessions.create()
    bad, other, _ = await three(session, path)
    await session.undo(parts=[bad])
    again = await call(session, path, lines((1, "better"), (4, "call 4"), (7, "call 7")))
    assert told(await session.undo(parts=[other])) == {"file": "merged"}
    assert path.read_text() == lines((1, "better"), (7, "call 7"))
    assert told(await session.redo(parts=[bad])) == {"file": "conflict"}
    await session.undo(parts=[again])
    assert told(await session.redo(parts=[bad, other])) == {"file": "restored"}
    assert path.read_text() == lines((1, "call 1"), (4, "call 4"), (7, "call 7"))


async def test_calls_are_named_in_four_ways(engine: Engine, folder: Path) -> None:
    """By call, part, message, and by file alone."""
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun:
        async with begun.step() as step:
            for name, id in (("a", 'call_"1'), ("b", "call_2")):
                path = folder / name
                async with step.tool("write", {}, writes=[path], call_id=id) as made:
                    put(path, "1\n")
        async with begun.step() as step:
            last = await write(step, folder / "c", "1\n")
    answer = made.part.messageID
    every: list[tuple[dict[str, Any], set[str]]] = [
        ({"calls": ['call_"1']}, {"a"}),
        ({"parts": [last]}, {"c"}),
        ({"messages": [answer]}, {"a", "b"}),
        ({"messages": [begun.message.id]}, {"a", "b", "c"}),
        ({"files": ["b"]}, {"b"}),
        ({"calls": ["call_2"], "parts": [last], "files": ["c"]}, {"c"}),
    ]
    for named, gone in every:
        assert set(told(await session.undo(**named))) == gone
        assert set(names(folder)) == {"a", "b", "c"} - gone
        assert set(told(await session.redo(**named))) == gone


async def test_what_is_not_there_is_refused(engine: Engine, folder: Path) -> None:
    """With its id; and so is a request that names nothing."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1\n"))
    unknown: list[tuple[type[Exception], dict[str, Any]]] = [
        (CallNotFound, {"calls": ["call_%"]}),
        (PartNotFound, {"parts": ["prt_nope"]}),
        (MessageNotFound, {"messages": [prompt, "msg_nope"]}),
    ]
    wrong: list[dict[str, Any]] = [
        {},
        {"parts": []},
        {"calls": "call_1"},
        {"files": ["a"], "strategy": "x"},
    ]
    for act in (session.undo, session.redo):
        for error, named in unknown:
            with pytest.raises(error, match=next(iter(named.values()))[-1]):
                await act(**named)
        for named in wrong:
            with pytest.raises(InvalidInput):
                await act(**named)
        with pytest.raises(InvalidId):
            await act(parts=["msg_1"])
    with pytest.raises(InvalidInput, match="merge or abort"):
        await session.redo(files=["a"], strategy="overwrite")
    assert names(folder) == ["a"]


async def test_a_call_id_that_is_not_unique_is_refused(engine: Engine, folder: Path) -> None:
    """The message names the parts."""
    session = await engine.sessions.create()
    parts = []
    async with session.turn("Go on") as begun, begun.step() as step:
        for name in "ab":
            async with step.tool("write", {}, writes=[folder / name], call_id="same") as made:
                put(folder / name, "1\n")
            parts.append(made.part.id)
    with pytest.raises(InvalidInput, match=parts[0]) as refused:
        await session.undo(calls=["same"])
    assert parts[1] in str(refused.value)


async def test_what_changes_nothing_says_so(engine: Engine, folder: Path) -> None:
    """A text, a call that only read, a fork's copy."""
    put(folder / "a", "1\n")
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        text = await step.text("Hello")
        async with step.tool("read", {}, reads=[folder / "a"]) as read:
            pass
    for id in (text.id, read.part.id):
        receipt = await session.undo(parts=[id])
        assert (receipt.files, receipt.applied) == ([], False)
        assert receipt.notes == ["these calls changed no files here"]


async def test_others_keep_their_lines(engine: Engine, folder: Path) -> None:
    """A person's and another session's; where they cannot be separated nothing is done."""
    path = folder / "file"
    put(path, lines())
    session, other = [await engine.sessions.create() for _ in range(2)]
    part = await call(session, path, lines((1, "mine")))
    await call(other, path, lines((1, "mine"), (4, "theirs")))
    put(path, lines((1, "mine"), (4, "theirs"), (7, "a person's")))
    assert told(await session.undo(parts=[part])) == {"file": "merged"}
    assert path.read_text() == lines((4, "theirs"), (7, "a person's"))
    await session.redo(parts=[part])
    put(path, lines((1, "mine, really"), (4, "theirs")))
    before = path.read_text()
    receipt = await session.undo(parts=[part])
    assert (told(receipt), receipt.applied) == ({"file": "conflict"}, False)
    assert path.read_text() == before
    assert await mark(session, part) is None


async def test_overwrite_takes_what_came_later_along(engine: Engine, folder: Path) -> None:
    """Only where there is a conflict; what goes along is marked as well, and comes back."""
    path, other = folder / "file", folder / "other"
    put(path, lines())
    put(other, lines())
    session = await engine.sessions.create()
    first = await call(session, path, lines((1, "one")))
    second = await call(session, path, lines((1, "two"), (6, "more")))
    put(path, lines((1, "two"), (6, "more"), (8, "a person's")))
    before = path.read_text()
    receipt = await session.undo(parts=[first], strategy="overwrite")
    assert told(receipt) == {"file": "restored"}
    assert "it is kept as" in (receipt.files[0].reason or "")
    assert path.read_text() == lines()
    assert await mark(session, first) is not None
    assert await mark(session, second) is not None
    assert await changed(session) == {}
    assert told(await session.redo(parts=[first, second])) == {"file": "restored"}
    assert path.read_text() == before
    part = await call(session, other, lines((1, "one")))
    last = await call(session, other, lines((1, "one"), (6, "two")))
    assert told(await session.undo(parts=[part], strategy="overwrite")) == {"other": "merged"}
    assert await mark(session, last) is None


async def test_abort_does_nothing_at_all(engine: Engine, folder: Path) -> None:
    """If there is a conflict anywhere."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1\n"), (folder / "b", "1\n"))
    put(folder / "b", "by a person\n")
    receipt = await session.undo(messages=[prompt], strategy="abort")
    assert (told(receipt), receipt.applied) == ({"a": "skipped", "b": "conflict"}, False)
    assert names(folder) == ["a", "b"]
    receipt = await session.undo(messages=[prompt])
    assert (told(receipt), receipt.applied) == ({"a": "deleted", "b": "conflict"}, True)


async def test_of_a_part_undone_in_part_the_rest_is_told(engine: Engine, folder: Path) -> None:
    """How many files went, and how many are left."""
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        paths = [folder / name for name in "abc"]
        async with step.tool("patch", {}, writes=paths) as made:
            for path in paths:
                put(path, "1\n")
    id = made.part.id
    await session.undo(parts=[id], files=["a", "b"])
    found = await mark(session, id)
    assert found is not None
    assert (found.files, found.left) == (2, 1)
    await session.redo(files=["b"])
    found = await mark(session, id)
    assert found is not None
    assert (found.files, found.left) == (1, 2)


async def test_binary_files_links_and_bits(engine: Engine, folder: Path) -> None:
    """They go and come whole, or not at all."""
    binary, link, script = folder / "binary", folder / "link", folder / "script"
    binary.write_bytes(b"\0one")
    link.symlink_to("one")
    put(script, lines())
    script.chmod(0o644)
    session = await engine.sessions.create()

    def work() -> None:
        binary.write_bytes(b"\0two")
        link.unlink()
        link.symlink_to("two")
        script.chmod(0o755)

    prompt = await shell(session, work)
    edit = await call(session, script, lines((1, "one")))
    outcomes = told(await session.undo(messages=[prompt]))
    assert outcomes == {"binary": "restored", "link": "restored", "script": "merged"}
    assert binary.read_bytes() == b"\0one"
    assert os.readlink(link) == "one"
    assert script.stat().st_mode & 0o777 == 0o644
    assert script.read_text() == lines((1, "one"))
    await session.redo(messages=[prompt])
    assert (binary.read_bytes(), os.readlink(link)) == (b"\0two", "two")
    assert script.stat().st_mode & 0o777 == 0o755
    await session.undo(parts=[edit])
    assert script.read_text() == lines()
    binary.write_bytes(b"\0three")
    link.unlink()
    link.symlink_to("three")
    outcomes = told(await session.undo(messages=[prompt]))
    assert outcomes == {"binary": "conflict", "link": "conflict", "script": "restored"}
    assert (binary.read_bytes(), os.readlink(link)) == (b"\0three", "three")


async def test_a_file_that_moved_or_went_is_a_conflict(engine: Engine, folder: Path) -> None:
    """Nothing is made where something was moved away from."""
    session = await engine.sessions.create()
    put(folder / "a", lines())
    part = await call(session, folder / "a", lines((1, "one")))
    (folder / "a").rename(folder / "b")
    receipt = await session.undo(parts=[part])
    assert (told(receipt), receipt.applied) == ({"a": "conflict"}, False)
    assert receipt.files[0].reason == "it does not exist any more"
    assert names(folder) == ["b"]


async def test_a_copy_of_what_others_wrote_stays(engine: Engine, folder: Path) -> None:
    """A call copied a person's file, and another removed the original: the copy is the only one."""
    put(folder / "a", "a person's\n")
    session = await engine.sessions.create()
    copied = await shell(session, lambda: put(folder / "b", "a person's\n"))
    await shell(session, lambda: put(folder / "a", None))
    receipt = await session.undo(messages=[copied])
    assert told(receipt) == {"b": "conflict"}
    assert names(folder) == ["b"]


async def test_folders_that_a_call_made_go_and_come(engine: Engine, folder: Path) -> None:
    """With the files in them."""
    session = await engine.sessions.create()
    part = await call(session, folder / "x" / "y" / "file", "1\n")
    await session.undo(parts=[part])
    assert names(folder) == []
    await session.redo(parts=[part])
    assert (folder / "x" / "y" / "file").read_text() == "1\n"
    await session.undo(parts=[part])
    assert names(folder) == []


async def test_a_running_session_is_busy(engine: Engine, folder: Path) -> None:
    """As for a revert; a dry run says all the same what would be done."""
    session = await engine.sessions.create()
    part = await call(session, folder / "a", "1\n")
    async with session.turn("Go on"):
        with pytest.raises(SessionBusy):
            await session.undo(parts=[part])
        with pytest.raises(SessionBusy):
            await session.redo(parts=[part])
        with pytest.raises(PartNotFound):
            await session.undo(parts=["prt_nope"])
    assert names(folder) == ["a"]


async def test_what_is_undone_has_to_be_read_again(engine: Engine, folder: Path) -> None:
    """The conversation still tells of it."""
    session = await engine.sessions.create()
    put(folder / "a", lines())
    part = await call(session, folder / "a", lines((1, "one")))
    await session.undo(parts=[part])
    async with session.turn("Go on") as begun, begun.step() as step:
        with pytest.raises(Exception, match="read"):
            async with step.tool("edit", {}, writes=[folder / "a"]):
                put(folder / "a", "2\n")


async def test_calls_of_unknown_effect_are_told(engine: Engine, folder: Path) -> None:
    """What was not inspected, and that changes were only observed."""
    session = await engine.sessions.create()
    prompt = await shell(session, lambda: put(folder / "a", "1\n"), title="make a")
    receipt = await session.undo(messages=[prompt])
    assert [each.source for each in receipt.files] == ["observed"]
    assert [note.rpartition(": ")[2] for note in receipt.notes] == ["bash (make a)"]


async def test_two_undos_at_once(engine: Engine, folder: Path) -> None:
    """One of them does it, the other finds the session busy."""
    session = await engine.sessions.create()
    part = await call(session, folder / "a", "1\n")
    both_of_them = (session.undo(parts=[part]), session.undo(parts=[part]))
    found = await asyncio.gather(*both_of_them, return_exceptions=True)
    done = [each for each in found if not isinstance(each, BaseException)]
    assert [told(each) for each in done] == [{"a": "deleted"}]
    assert [type(each) for each in found if each not in done] == [SessionBusy]


async def test_without_snapshots_the_receipt_says_so(place: EngineFactory, folder: Path) -> None:
    """Nothing is known of what the call did."""
    async with place.open(settings=Settings(snapshots=False)) as engine:
        session = await engine.sessions.create()
        part = await call(session, folder / "a", "1\n")
        receipt = await session.undo(parts=[part])
        assert (receipt.files, receipt.applied, len(receipt.notes)) == ([], False, 2)
        assert "snapshots are switched off" in receipt.notes[1]


async def test_names_that_are_not_text(engine: Engine, folder: Path) -> None:
    """They are undone like others, and can be named."""
    name = os.fsdecode(b"na\xffme")
    session = await engine.sessions.create()
    part = await call(session, folder / name, "1\n")
    receipt = await session.undo(parts=[part])
    assert [each.path_bytes for each in receipt.files] == [b"na\xffme"]
    assert names(folder) == []
    assert (await session.redo(files=[os.fsencode(name)])).applied
    assert names(folder) == [name]


async def test_what_could_not_be_inspected_is_left(engine: Engine, folder: Path) -> None:
    """With all else that the chosen calls did there, and named once."""
    session = await engine.sessions.create()
    put(folder / "a", "0\n")
    first = await shell(session, lambda: put(folder / "a", "1\n"))

    def hide() -> None:
        put(folder / ".gitignore", "a\n")
        put(folder / "a", "2\n")

    prompt = await shell(session, hide)
    receipt = await session.undo(messages=[first, prompt])
    assert told(receipt) == {".gitignore": "deleted", "a": "skipped"}
    assert len(receipt.files) == 2
    assert (folder / "a").read_text() == "2\n"
    assert [diff.file for diff in await session.diff()] == ["a"]


async def test_what_a_revert_hides_is_told_beside_the_rest(engine: Engine, folder: Path) -> None:
    """The other calls are undone all the same."""
    session = await engine.sessions.create()
    first = await call(session, folder / "a", "1\n")
    prompt = await turn(session, (folder / "b", "1\n"))
    await session.revert(prompt)
    receipt = await session.undo(parts=[first], messages=[prompt])
    assert told(receipt) == {"a": "deleted"}
    assert receipt.notes == ["a revert has taken it out already; unrevert brings that back first"]
