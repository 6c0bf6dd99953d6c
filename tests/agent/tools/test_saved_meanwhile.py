"""A person saves a file right after a tool has written it, before the call is over."""

from functools import partial
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.agent.tools.edit import edit
from kedge.agent.tools.tool import ToolFailure
from kedge.agent.tools.write import write
from tests.agent.tools.scene import Scene
from tests.engine.revert_process import save


async def test_what_a_person_adds_then_is_theirs(scene: Scene, folder: Path) -> None:
    """A revert takes out what the tool wrote, and leaves what they added."""
    file = folder / "a.txt"
    file.write_text("".join(f"{n}\n" for n in range(9)))
    theirs = partial(save, file, "zero\n" + "".join(f"{n}\n" for n in range(1, 9)) + "theirs\n")
    with armed("steps-done", theirs):
        await scene.run(edit, filePath="a.txt", oldString="0\n", newString="zero\n")
    (diff,) = await scene.session.diff()
    assert (diff.additions, diff.deletions) == (1, 1)
    receipt = await scene.session.revert(scene.prompts[-1])
    assert [(each.path, each.outcome) for each in receipt.files] == [("a.txt", "merged")]
    assert file.read_text() == "".join(f"{n}\n" for n in range(9)) + "theirs\n"
    await scene.session.unrevert()
    assert file.read_text().splitlines()[::9] == ["zero", "theirs"]


async def test_the_session_has_not_seen_it(scene: Scene, folder: Path) -> None:
    """It is refused to write over what a person saved there."""
    with armed("steps-done", partial(save, folder / "a.txt", "theirs\n")):
        await scene.run(write, filePath="a.txt", content="new\n")
    with pytest.raises(ToolFailure, match="changed"):
        await scene.run(write, filePath="a.txt", content="newer\n")
    assert (folder / "a.txt").read_text() == "theirs\n"


async def test_a_person_deletes_it(scene: Scene, folder: Path) -> None:
    """The file that the tool made is gone: there is nothing left to undo."""
    with armed("steps-done", (folder / "a.txt").unlink):
        await scene.run(write, filePath="a.txt", content="new\n")
    receipt = await scene.session.revert(scene.prompts[-1])
    assert [(each.path, each.outcome) for each in receipt.files] == [("a.txt", "unchanged")]
    assert not (folder / "a.txt").exists()
