"""Several files changed at once."""

import math
import stat
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kedge._failpoints import armed
from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.tool import ToolFailure
from kedge.domain import wire
from kedge.domain.errors import LeaseLost
from kedge.domain.sessions import Busy
from kedge.engine import leases
from kedge.engine.files import edits
from kedge.engine.os_process import this_process
from kedge.store.transaction import Script, run
from tests.agent.tools.scene import Ask, Rejected, Scene
from tests.engine.revert.scene import tree

PATCH = """\
*** Begin Patch
*** Update File: a.txt
@@
 one
-two
+zwei
*** Add File: sub/new.txt
+new
*** Delete File: old.txt
*** Update File: m.txt
*** Move to: deep/moved.txt
@@
-m
+M
*** End Patch
"""


@pytest.fixture
def files(folder: Path) -> Path:
    """What the patch expects."""
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "a.txt").chmod(0o755)
    (folder / "old.txt").write_text("old\n")
    (folder / "m.txt").write_text("m\n")
    (folder / "m.txt").chmod(0o700)
    return folder


async def test_a_patch_of_every_kind(scene: Scene, files: Path) -> None:
    """One question for all of it, and each file is told of."""
    output = await scene.run(apply_patch, patchText=PATCH)
    found = tree(files)
    assert {name: data for name, (_, data) in found.items()} == {
        "a.txt": b"one\r\nzwei\r\n",
        "deep": b"/",
        "deep/moved.txt": b"M\n",
        "sub": b"/",
        "sub/new.txt": b"new\n",
    }
    assert stat.S_IMODE(found["a.txt"][0]) == 0o755
    assert stat.S_IMODE(found["deep/moved.txt"][0]) == 0o700
    (ask,) = scene.person.asked
    assert ask.permission == "edit"
    assert ask.patterns == ["a.txt", "sub/new.txt", "old.txt", "m.txt", "deep/moved.txt"]
    assert ask.metadata["diff"].count("Index: ") == 5
    assert output.text.split("\n")[1:] == [
        "M a.txt",
        "A sub/new.txt",
        "D old.txt",
        "R m.txt -> deep/moved.txt",
    ]
    told = [
        (file["type"], file["relativePath"], file["additions"], file["deletions"])
        for file in output.metadata["files"]
    ]
    assert told == [
        ("update", "a.txt", 1, 1),
        ("add", "sub/new.txt", 1, 0),
        ("delete", "old.txt", 0, 1),
        ("move", "deep/moved.txt", 1, 1),
    ]


async def test_undo(scene: Scene, files: Path) -> None:
    """All files are as before, with their bits, and the folders are gone."""
    before = tree(files)
    await scene.run(apply_patch, patchText=PATCH)
    await scene.session.revert(scene.prompts[0])
    assert tree(files) == before


async def test_one_piece_that_does_not_fit(scene: Scene, files: Path) -> None:
    """Nothing is asked, nothing is written."""
    before = tree(files)
    patch = PATCH.replace("-m\n", "-other\n")
    with pytest.raises(ToolFailure, match=r"does not fit m\.txt"):
        await scene.run(apply_patch, patchText=patch)
    assert tree(files) == before
    assert scene.person.asked == []


async def test_rejected(scene: Scene, files: Path) -> None:
    """Nothing is written."""
    before = tree(files)
    scene.person.rejects.add("edit")
    with pytest.raises(Rejected):
        await scene.run(apply_patch, patchText=PATCH)
    assert tree(files) == before


async def test_one_file_that_changes_while_a_person_thinks(scene: Scene, files: Path) -> None:
    """None of the others is written either."""

    async def meanwhile(ask: Ask) -> None:
        (files / "old.txt").write_text("theirs")

    scene.person.meanwhile = meanwhile
    before = tree(files)
    with pytest.raises(ToolFailure, match="changed after"):
        await scene.run(apply_patch, patchText=PATCH)
    assert tree(files) == before | {"old.txt": (before["old.txt"][0], b"theirs")}


async def test_one_file_that_changes_in_the_last_moment(
    scene: Scene, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written already is taken back, and what somebody saved stays."""
    before = tree(files)
    real = edits._carry_out
    steps = []

    def carry_out(*given: object) -> object:
        steps.append(given)
        if len(steps) == 5:
            (files / "m.txt").write_text("theirs")
        return real(*given)  # type: ignore[arg-type]  # what was given

    monkeypatch.setattr(edits, "_carry_out", carry_out)
    with pytest.raises(ToolFailure, match="No file was changed"):
        await scene.run(apply_patch, patchText=PATCH)
    assert tree(files) == before | {"m.txt": (before["m.txt"][0], b"theirs")}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("*** Add File: a.txt\n+x", "exists already"),
        ("*** Update File: none\n@@\n-x\n+y", "does not exist"),
        ("*** Delete File: none", "does not exist"),
        ("*** Delete File: folder", "is a folder"),
        ("*** Update File: a.txt\n*** Move to: old.txt\n@@\n-two\n+2", "nothing is moved over it"),
        ("*** Delete File: a.txt\n*** Add File: ./a.txt\n+x", "named 2 times"),
        ("*** Update File: binary\n@@\n-x\n+y", "binary"),
        ("*** Update File: link\n*** Move to: b", "is a symlink"),
        ("*** Add File: .git/hooks/pre-commit\n+x", "inside of .git"),
        ("*** Add File: a.txt/below\n+x", "not a folder"),
    ],
)
async def test_refused(scene: Scene, files: Path, body: str, reason: str) -> None:
    """With a reason, and nothing is changed."""
    (files / "folder").mkdir()
    (files / "binary").write_bytes(b"x\0\n")
    (files / "link").symlink_to("a.txt")
    before = tree(files)
    with pytest.raises(ToolFailure, match=reason):
        await scene.run(apply_patch, patchText=f"*** Begin Patch\n{body}\n*** End Patch")
    assert tree(files) == before


async def test_a_symlink_is_deleted_and_not_what_it_leads_to(
    scene: Scene, files: Path, tmp_path: Path
) -> None:
    """And it comes back as a symlink."""
    (tmp_path / "outside").write_text("theirs")
    (files / "link").symlink_to(tmp_path / "outside")
    before = tree(files)
    await scene.run(apply_patch, patchText="*** Begin Patch\n*** Delete File: link\n*** End Patch")
    assert not (files / "link").is_symlink()
    assert (tmp_path / "outside").read_text() == "theirs"
    await scene.session.revert(scene.prompts[0])
    assert tree(files) == before


async def test_a_symlink_to_the_outside_is_asked_for(
    scene: Scene, files: Path, tmp_path: Path
) -> None:
    """Also if only one of the files is there."""
    (tmp_path / "outside").write_text("two\n")
    (files / "link").symlink_to(tmp_path / "outside")
    patch = PATCH.replace("*** End Patch", "*** Update File: link\n-two\n+2\n*** End Patch")
    scene.person.rejects.add("external_directory")
    with pytest.raises(Rejected):
        await scene.run(apply_patch, patchText=patch)
    scene.person.rejects.clear()
    await scene.run(apply_patch, patchText=patch)
    assert (tmp_path / "outside").read_text() == "2\n"


@pytest.mark.parametrize("fails", [False, True], ids=["going on", "taking back"])
async def test_a_call_that_lost_its_session_writes_nothing_more(
    scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Its process was paused, and another one has taken the session over: what is left of the call
    is that one's to put in order, be it in the middle of writing or of taking back."""

    def lose() -> None:
        scene.engine.store.run_blocking(partial(taken_over, scene.session.id))
        monkeypatch.setattr(leases, "now", lambda: math.inf)
        if fails:
            (folder / "b.txt").mkdir()

    patch = "*** Begin Patch\n*** Add File: a.txt\n+a\n*** Add File: b.txt\n+b\n*** End Patch\n"
    with armed("after-create", lose), pytest.raises(LeaseLost):
        await scene.run(apply_patch, patchText=patch)
    assert (folder / "a.txt").read_text() == "a\n"
    assert not (folder / "b.txt").is_file()


def taken_over(session_id: str) -> Script[None]:
    """Have another process run the session."""
    owner = wire.encode(msgspec.structs.replace(this_process("other"), machine="other"))
    yield from run(
        "lease_take",
        session_id=session_id,
        generation=7,
        owner=owner,
        now=0,
        time_expires=2**62,
        status=wire.encode(Busy()),
        kind="turn",
        first_pos=0,
    )
