"""Makes the database and the objects of an older kedge that `test_older_version.py` opens.

Run with the `src` of that version in PYTHONPATH, `older_version.py FOLDER` fills FOLDER: the folder
of the sessions is FOLDER/tree, and what kedge keeps is in FOLDER/data. Of that, `recorded` has the
database, with its log written back, and the objects.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import kedge
from kedge.agent import Agent

FIRST = {"a.txt": "one\ntwo\nthree\n", "c.txt": "one\n", "d.txt": "one\n"}
AT = "2026-01-01T00:00:00Z"
GIT = ("git", "-c", "user.name=kedge", "-c", "user.email=kedge@example.org")


def make_tree(tree: Path) -> None:
    """A repository whose first commit, and so its project, is the same wherever it is."""
    tree.mkdir(parents=True)
    for name, text in FIRST.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o644)
    environ = {**os.environ, "GIT_AUTHOR_DATE": AT, "GIT_COMMITTER_DATE": AT}
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "First")):
        subprocess.run((*GIT, *words), cwd=tree, env=environ, check=True)


async def prompt(agent: Agent, session: kedge.Session, text: str) -> str:
    """The id of a prompt that was answered."""
    answer = await agent.prompt(session, text, model="kedge/offline")
    return str(answer.info.parentID)


async def fill(tree: Path, data: Path) -> None:
    """A pending revert with its receipt, and a tail."""
    async with kedge.open(tree, data_dir=data) as engine, Agent(engine) as agent:
        pending = await engine.sessions.create("Pending")
        await prompt(agent, pending, "edit a.txt one ONE")
        second = await prompt(agent, pending, "edit a.txt three THREE\nwrite new/b.txt b")
        await pending.revert(second)
        final = await engine.sessions.create("Final")
        first = await prompt(agent, final, "write t.txt tail")
        await final.revert(first)
        await prompt(agent, final, "say Goes on.")


async def cut(tree: Path, data: Path) -> None:
    """A revert that is killed when its plan is stored and nothing of it carried out; meanwhile a
    call has written its file and has not said so."""
    async with kedge.open(tree, data_dir=data) as engine, Agent(engine) as agent:
        reverting = await engine.sessions.create("Cut revert")
        first = await prompt(agent, reverting, "edit c.txt one two\nwrite made.txt made")
        calling, file = await engine.sessions.create("Cut call"), tree / "d.txt"
        async with (
            calling.turn("Work") as turn,
            turn.step() as step,
            step.tool("write", {}, reads=[file], writes=[file]),
        ):
            file.write_text("two\n")
            await reverting.revert(first)


def main(folder: str) -> None:
    """All of it, each part by a process of its own."""
    make_tree(Path(folder) / "tree")
    for part, point in (("fill", ""), ("cut", "plan-stored")):
        environ = {**os.environ, "KEDGE_FAILPOINT": point} if point else dict(os.environ)
        command = [sys.executable, __file__, folder, part]
        done = subprocess.run(command, env=environ, check=False)
        assert done.returncode == (-9 if point else 0), (part, done.returncode)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        asyncio.run(globals()[sys.argv[2]](Path(sys.argv[1]) / "tree", Path(sys.argv[1]) / "data"))
