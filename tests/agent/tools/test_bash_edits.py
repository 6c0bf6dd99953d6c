"""Commands that write files, and the rules for `edit`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kedge
from kedge.agent.agents import default_rules
from kedge.agent.permissions import PermissionDenied, Permissions
from kedge.agent.tools.bash import bash
from kedge.agent.tools.call import Call
from kedge.domain.permissions import (
    PermissionAction,
    PermissionReply,
    PermissionRequest,
    PermissionRule,
    Rulebook,
)
from kedge.engine.engine import Engine
from kedge.engine.event_log import Subscription
from kedge.engine.session import Session


def rule(permission: str, action: PermissionAction, pattern: str = "*") -> PermissionRule:
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)


class Desk:
    """A session, and a person who agrees to what is asked and remembers it."""

    def __init__(self, engine: Engine, session: Session, folder: Path) -> None:
        self.engine = engine
        self.session = session
        self.folder = folder
        self.asked: list[PermissionRequest] = []

    async def run(self, line: str, *rules: PermissionRule, reply: PermissionReply = "once") -> None:
        """Run a line under the default rules and these."""
        self.asked.clear()
        book = Rulebook(([*default_rules(), *rules],))
        async with (
            self.engine.events.subscribe() as events,
            self.session.turn("Go on") as turn,
            turn.step() as step,
            step.tool("bash", {"command": line}) as running,
        ):
            answering = asyncio.create_task(self._answer(events, reply))
            try:
                await bash(Call(step, running, Permissions(book)), {"command": line})
                running.output = ""
            except PermissionDenied as error:
                running.fail(str(error))
                raise
            finally:
                answering.cancel()

    async def _answer(self, events: Subscription, reply: PermissionReply) -> None:
        async for event in events:
            if event.type == "permission.asked":
                waiting = await self.engine.asks.permissions()
                self.asked += waiting
                for request in waiting:
                    await self.engine.asks.reply_permission(request.id, reply)

    @property
    def permissions(self) -> list[str]:
        """What was asked for, in order."""
        return [request.permission for request in self.asked]


@pytest.fixture
async def desk(folder: Path, tmp_path: Path) -> AsyncIterator[Desk]:
    """A session in a folder."""
    (folder / "f").write_text("x\n")
    async with kedge.open(folder, database=str(tmp_path / "kedge.db")) as engine:
        yield Desk(engine, await engine.sessions.create(), folder)


@pytest.mark.parametrize(
    "line", ["echo y > f", "sed -i s/x/y/ f", "rm f", "git rm -f f", "tee f < /dev/null"]
)
async def test_what_may_not_be_edited_is_not_written_by_commands(desk: Desk, line: str) -> None:
    """Whatever `bash` may do."""
    with pytest.raises(PermissionDenied, match="denies edit for"):
        await desk.run(line, rule("edit", "deny"))
    with pytest.raises(PermissionDenied, match="denies edit for"):
        await desk.run(line, rule("edit", "deny", "f"), rule("edit", "allow", "other"))
    assert (desk.folder / "f").read_text() == "x\n"
    assert desk.asked == []


async def test_where_edits_are_denied_commands_may_read(desk: Desk) -> None:
    """Nobody is asked for that."""
    await desk.run("cat f; grep -c x f | sort -u; ls > /dev/null 2>&1", rule("edit", "deny"))
    assert desk.asked == []


async def test_by_default_nobody_is_asked(desk: Desk) -> None:
    """As before."""
    await desk.run("echo y > f; touch g")
    assert desk.asked == []
    assert (desk.folder / "f").read_text() == "y\n"


async def test_where_edits_are_asked_for_commands_are_not(desk: Desk) -> None:
    """Rules for `bash` say whether they are, also if they write."""
    (desk.folder / "sub").mkdir()
    for line in ("echo y > f", "rm -r sub", 'x=$(cat f); echo y > "out-$x"'):
        await desk.run(line, rule("edit", "ask"))
        assert desk.permissions == [], line
    await desk.run("echo y > f", rule("edit", "ask"), rule("bash", "ask"))
    assert desk.permissions == ["bash"]


async def test_a_line_that_nobody_can_place_is_asked_for_once(desk: Desk) -> None:
    """`always` means this very line, and no other."""
    await desk.run("cat $NOT_SET_AT_ALL f", reply="always")
    assert desk.permissions == ["external_directory"]
    await desk.run("cat $NOT_SET_AT_ALL f")
    assert desk.permissions == []
    await desk.run("cat $NOT_SET_AT_ALL f g", reply="always")
    assert desk.permissions == ["external_directory"]
    for _ in range(2):
        await desk.run("cat $NOT_SET_AT_ALL *", reply="always")
        assert desk.permissions == ["external_directory"]


async def test_files_of_which_only_the_folder_is_known(desk: Desk) -> None:
    """They may be what is denied, and git's."""
    (desk.folder / ".git").mkdir()
    line = "for i in $(seq 2); do echo x > f$i; done"
    await desk.run(line)
    assert desk.asked == []
    await desk.run(line, rule("edit", "deny", "f1"))
    assert desk.permissions == ["edit"]
    await desk.run("for i in $(seq 2); do echo x > .git/$i; done")
    assert desk.permissions == ["edit"]


async def test_gits_own_files_are_asked_for_each_time(desk: Desk) -> None:
    """Whatever is allowed, and whatever was allowed for good; git itself may write them."""
    (desk.folder / ".git").mkdir()
    for _ in range(2):
        await desk.run("echo x > .git/config", rule("edit", "allow"), reply="always")
        assert desk.permissions == ["edit"]
        assert "(inside of .git) .git/config" in desk.asked[0].patterns
    await desk.run("git init -q", rule("edit", "allow"))
    assert desk.asked == []


@pytest.mark.parametrize(
    "line",
    [
        "find .git -name config -exec sed -i s/x/y/ {} +",
        "find .git -name config | xargs sed -i s/x/y/",
        "for f in .g*/config; do echo y > $f; done",
        "ls -d .g* | while read d; do echo y > $d/config; done",
    ],
)
async def test_gits_own_files_that_are_listed_are_asked_for(desk: Desk, line: str) -> None:
    """By default, and not if the same is done elsewhere."""
    (desk.folder / ".git").mkdir()
    (desk.folder / ".git" / "config").write_text("x\n")
    await desk.run(line)
    assert desk.permissions == ["edit"]
    (desk.folder / "sub").mkdir()
    (desk.folder / "sub" / "config").write_text("x\n")
    await desk.run(line.replace(".git", "sub").replace(".g*", "s*"))
    assert desk.asked == []


async def test_files_that_nobody_can_tell(desk: Desk) -> None:
    """They could be one that may not be edited."""
    (desk.folder / "sub").mkdir()
    for line in (
        "git apply x.patch",
        "rm -r sub",
        "find . -name f -delete",
        "ls sub | xargs -r rm",
    ):
        with pytest.raises(PermissionDenied, match="denies edit for"):
            await desk.run(line, rule("edit", "deny"))
        await desk.run(line, rule("edit", "deny", "secret"))
        assert desk.permissions == ["edit"], line
        (desk.folder / "sub").mkdir(exist_ok=True)
        await desk.run(line)
        assert desk.asked == []
        (desk.folder / "sub").mkdir(exist_ok=True)
