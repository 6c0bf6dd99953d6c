"""Tricks that must not run unasked, and ordinary lines that must not ask more than they did."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import pytest

from kedge.agent.agents import default_rules
from kedge.agent.permissions import PermissionDenied, Permissions
from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.bash import bash
from kedge.agent.tools.call import Call
from kedge.agent.tools.edit import edit
from kedge.agent.tools.tool import Tool, ToolFailure
from kedge.agent.tools.write import write
from kedge.domain.permissions import EXACTLY, PermissionRule, Rulebook, matches
from kedge.engine.asks import Asks, Reply
from kedge.engine.parts import ToolCall
from kedge.engine.steps import Step
from tests.agent.shell.ordinary_lines import (
    COMPUTED_READING,
    COMPUTED_WRITING,
    READING,
    WRITING,
    Ordinary,
)
from tests.agent.shell.tricks import ASKING, NO_EDIT, TRICKS, Deed, Trick
from tests.agent.tools.scene import scene_in

Verdict: TypeAlias = Literal["refused", "asked", "silent"]
_STRICTNESS = ("silent", "asked", "refused")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SECRET = re.compile(rb"SECRET-(?:NAME|of)")


# --- the folders that the lines are about


@dataclass(frozen=True)
class World:
    """A worktree, what is beside it, and a home."""

    root: Path

    @property
    def work(self) -> Path:
        """The worktree."""
        return self.root / "work"

    @property
    def outside(self) -> Path:
        """The folder beside it, that `OUTSIDE` stands for."""
        return self.root / "outside"

    @property
    def home(self) -> Path:
        """The home of whoever runs it."""
        return self.root / "home"

    @property
    def environment(self) -> dict[str, str]:
        """Of a line that is run: nothing of this process."""
        return {
            "PATH": _PATH,
            "HOME": str(self.home),
            "TMPDIR": str(self.root / "tmp"),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def line(self, text: str) -> str:
        """A line of the tables, for here."""
        return text.replace("OUTSIDE", str(self.outside))


_SCRIPT = "#!/bin/sh\nrm -f victim\n"
_FILES: Mapping[str, str] = {
    "home/.gitconfig": "[user]\n\tname = Me\n\temail = me@example.com\n",
    "home/secret": "SECRET-of-home\n",
    "outside/secret": "SECRET-of-outside\n",
    "outside/SECRET-NAME": "",
    "work/.venv/bin/activate": "",
    "work/Makefile": "all test:\n\ttrue\n",
    "work/README.md": "# x\n",
    "work/attrs": "* filter=x diff=x\n",
    "work/bin/gone": _SCRIPT,
    "work/bin/ls": _SCRIPT,
    "work/bin/git-gone": _SCRIPT,
    "work/cmd.txt": "rm victim\n",
    "work/data.c": "int main(void) { return 0; }\n",
    "work/empty": "",
    "work/evil.cfg": "[alias]\n\tx = !rm victim\n",
    "work/evil.js": "require('child_process').execSync('rm victim')\n",
    "work/evil.mk": "x := $(shell rm victim)\nall:;\n",
    "work/evil.py": "import os; os.system('rm victim')\n",
    "work/hooks2/pre-commit": _SCRIPT,
    "work/list.txt": "victim\n",
    "work/outside.txt": "../outside/secret\n",
    "work/p.diff": "--- data.txt\n+++ data.txt\n@@ -1,2 +1,2 @@\n-alpha\n+ALPHA\n beta\n",
    "work/package.json": '{"name": "x", "version": "1.0.0", "scripts": {"x": "true"}}\n',
    "work/prog.awk": 'BEGIN { system("rm victim") }\n',
    "work/prog.sed": "1e rm victim\n",
    "work/ssh.cfg": "ProxyCommand rm victim\n",
    "work/requirements.txt": "",
    "work/run.sh": "",
    "work/src/main.py": "def main():\n    return 1\n",
    "work/src/util.py": "",
    "work/sub/x.txt": "x\n",
    "work/tests/test_app.py": "",
    "work/victim": "victim\n",
}
_LINKS = {
    "work/.venv/bin/python": "/usr/bin/python3",
    "work/current": "sub",
    "work/filelink": "../outside/secret",
    "work/gitlink": ".git",
    "work/hooks": ".git/hooks",
    "work/link": "../outside",
    "work/sub/deep": "../link",
    "work/sub/up": "../..",
}


def made_world(root: Path) -> World:
    """Such folders, with a repository of two commits that has a remote."""
    world = World(root)
    for folder in ("tmp", "work/empty.d", "work/sub"):
        (root / folder).mkdir(parents=True)
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text == _SCRIPT else 0o644)
    for name, to in _LINKS.items():
        (root / name).symlink_to(to)
    for line in (
        "git init -q --template= --initial-branch=main . && mkdir -p .git/hooks .git/info",
        "echo '*' > .git/info/exclude",
        "echo alpha > data.txt && git add -f data.txt && git commit -qm one",
        "echo beta >> data.txt && git commit -qam two",
        "git init -q --bare --template= ../origin.git && git remote add origin ../origin.git",
        "git config branch.main.remote origin && git config branch.main.merge refs/heads/main",
        "tar cf a.tar data.txt && gzip -c data.txt > a.gz",
    ):
        subprocess.run(["/bin/bash", "-c", line], cwd=world.work, env=world.environment, check=True)
    return world


# --- what kedge asks


class Unasked(Exception):
    """The line would run now."""


class HaltedCall(Call):
    """A call that ends where its command would begin: nothing of the tables is run by kedge."""

    async def progress(self, *, title: str | None = None, **metadata: Any) -> NoReturn:  # noqa: ANN401
        """All was asked that is."""
        raise Unasked

    async def observes(self) -> NoReturn:
        """The same."""
        raise Unasked

    async def writes(self, *paths: Path, **others: object) -> NoReturn:
        """The same, for tools that write files."""
        raise Unasked


@dataclass(frozen=True)
class Put:
    """What was put to a person."""

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...]


@dataclass
class Desk:
    """The tool `bash` in a real turn, and a person who agrees to everything and remembers it."""

    world: World
    step: Step
    running: ToolCall
    data: Path
    put: list[Put] = field(default_factory=list)
    allowed: list[PermissionRule] = field(default_factory=list)
    """What was allowed for good."""

    async def answer(
        self,
        turn: object,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        **others: object,
    ) -> Reply:
        """Stands for the person: `Asks.permission`."""
        self.put.append(Put(permission, tuple(patterns), tuple(always)))
        return Reply("once", None)

    async def rules(self, session_id: str) -> tuple[list[PermissionRule], list[PermissionRule]]:
        """Stands for what is stored: `Asks.rules`."""
        return [], self.allowed

    async def verdict(self, line: str, rules: Sequence[PermissionRule] = ()) -> Verdict:
        """What becomes of a line under the default rules and these."""
        try:
            await self.call(bash, {"command": self.world.line(line)}, rules)
        except PermissionDenied:
            return "refused"
        except Unasked:
            return "asked" if self.put else "silent"
        raise AssertionError("the line was run")

    async def call(
        self, tool: Tool, arguments: Mapping[str, Any], rules: Sequence[PermissionRule] = ()
    ) -> None:
        """Call a tool; raises `Unasked` where it would begin to change anything."""
        self.put.clear()
        asker = Permissions(Rulebook((default_rules(), rules)))
        await tool(HaltedCall(self.step, self.running, asker), dict(arguments))

    async def allowed_for_good(self, line: str) -> list[PermissionRule]:
        """The rules that `always` makes for a line."""
        await self.verdict(line, ASKING.rules)
        return [
            PermissionRule(permission=each.permission, pattern=pattern, action="allow")
            for each in self.put
            for pattern in each.always
        ]


@asynccontextmanager
async def desk_in(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """A session in the worktree, in the middle of a call."""
    monkeypatch.setenv("HOME", str(world.home))
    async with (
        scene_in(world.work, world.root / "kedge.db") as scene,
        scene.step() as step,
        step.tool("bash", {"command": "true"}) as running,
    ):
        desk = Desk(world, step, running, world.root / "data")
        monkeypatch.setattr(Asks, "permission", lambda _, *a, **k: desk.answer(*a, **k))
        monkeypatch.setattr(Asks, "rules", lambda _, session_id: desk.rules(session_id))
        yield desk
        running.output = ""


async def verdict_on(desk: Desk, trick: Trick) -> Verdict:
    """What becomes of a trick."""
    if trick.after is not None:
        desk.allowed = await desk.allowed_for_good(trick.after)
    try:
        return await desk.verdict(trick.line, trick.rules.rules)
    finally:
        desk.allowed = []


async def test_no_trick_runs_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person is asked at least; where a rule can tell, it denies."""
    walked: list[str] = []
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for trick in TRICKS:
            found = await verdict_on(desk, trick)
            if _STRICTNESS.index(found) < _STRICTNESS.index(trick.must):
                walked.append(f"{trick.family} [{trick.rules.name}]: {found}: {trick.line!r}")
    assert not walked, f"{len(walked)} of {len(TRICKS)} tricks:\n" + "\n".join(walked)


_INSIDE_GIT = (
    *(".git/config", ".git/new", "./.git//hooks/pre-commit", "sub/../.git/new", ".GIT/new"),
    *("gitlink/config", "hooks/pre-commit", "sub/up/work/.git/new", "sub/.git/config", "sub/.git"),
)


@pytest.mark.parametrize("path", _INSIDE_GIT)
async def test_no_file_tool_writes_into_git_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Whether they refuse it or ask a person, who may have allowed every edit."""
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for tool, arguments in _calls_that_write(path):
            with pytest.raises((ToolFailure, Unasked)) as raised:
                await desk.call(tool, arguments, [_allowed("*", "edit")])
            assert desk.put or raised.type is not Unasked, tool.name


async def test_file_tools_write_elsewhere_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is git's folder that makes the difference."""
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for tool, arguments in _calls_that_write("sub/new"):
            with pytest.raises(Unasked):
                await desk.call(tool, arguments, [_allowed("*", "edit")])
            assert not desk.put, tool.name


def _calls_that_write(path: str) -> list[tuple[Tool, dict[str, str]]]:
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    return [
        (write, {"filePath": path, "content": "x"}),
        (edit, {"filePath": path, "oldString": "", "newString": "x"}),
        (apply_patch, {"patchText": patch}),
    ]


# --- what is ordinary

ONLY_READING = (*READING, *COMPUTED_READING)
ORDINARY = (*ONLY_READING, *WRITING, *COMPUTED_WRITING)


def test_the_tables_are_as_long_as_they_should_be() -> None:
    """And no line is there twice under the same rules."""
    assert len({(each.line, each.rules.name, each.after) for each in TRICKS}) == len(TRICKS) >= 500
    assert len({each.line for each in ORDINARY}) == len(ORDINARY) >= 280


def _more_than_before(desk: Desk, ordinary: Ordinary) -> list[str]:
    """What was put to the person just now, beyond the folders that were asked for before."""
    root = str(desk.world.root.resolve())
    before = {each.replace("ROOT", root) for each in ordinary.outside}
    return [
        f"{each.permission} {pattern!r}: {ordinary.line!r}"
        for each in desk.put
        for pattern in each.patterns
        if each.permission != "external_directory" or pattern not in before
    ]


async def test_by_default_ordinary_lines_ask_no_more_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, but for some folders outside of the worktree."""
    more: list[str] = []
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for each in ORDINARY:
            assert await desk.verdict(each.line) != "refused"
            more += _more_than_before(desk, each)
    assert not more, "\n".join(more)


async def test_where_their_programs_are_allowed_ordinary_lines_ask_no_more_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that was understood is, and no other program appears in it."""
    more: list[str] = []
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for each in ORDINARY:
            names = {pattern.split()[0] for pattern in each.asked}
            rules = [*ASKING.rules, *(_allowed(f"{name} *") for name in sorted(names))]
            assert await desk.verdict(each.line, rules) != "refused"
            if each.is_certain:
                more += _more_than_before(desk, each)
    assert not more, "\n".join(more)


async def test_ordinary_lines_that_only_read_are_not_refused_where_edits_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that may not edit can look at everything."""
    more: list[str] = []
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for each in ONLY_READING:
            if await desk.verdict(each.line, NO_EDIT.rules) == "refused":
                more.append(f"refused: {each.line!r}")
            if each.is_certain:
                more += _more_than_before(desk, each)
    assert not more, "\n".join(more)


async def test_what_ordinary_lines_offer_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much as before, but for programs that run whatever they are given; never more."""
    odd: list[str] = []
    async with desk_in(made_world(tmp_path), monkeypatch) as desk:
        for each in ORDINARY:
            rules = await desk.allowed_for_good(each.line)
            offered = {rule.pattern for rule in rules if rule.permission == "bash"}
            lost = {old for old in set(each.always) - offered if not _runs_programs(old)}
            shown = {new: new.removeprefix(EXACTLY) for new in offered}
            wider = {
                new for new in offered if not any(matches(old, shown[new]) for old in each.always)
            }
            # Of a line that was not understood, nothing could be offered.
            if lost or (wider and each.is_certain):
                odd.append(f"{each.line!r}: lost {sorted(lost)}, wider {sorted(wider)}")
    assert not odd, "\n".join(odd)


def _allowed(pattern: str, permission: str = "bash") -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action="allow")


_RUNNING_PROGRAMS = frozenset(
    {
        *("awk", "bun", "bundle", "docker", "env", "find", "git", "go", "java", "kubectl", "make"),
        *("man", "nice", "node", "nohup", "npm", "npx", "perl", "php", "pnpm", "poetry", "psql"),
        *("python", "python3", "ruby", "sed", "sqlite3", "tar", "time", "timeout", "tox", "uv"),
        *(".", "command", "export", "source", "xargs", "yarn"),
    }
)


def _runs_programs(pattern: str) -> bool:
    words = [word for word in pattern.split() if "=" not in word]
    return os.path.basename(words[0]) in _RUNNING_PROGRAMS if words else True


# --- what bash does


def _is_as_expected() -> bool:
    """Whether this is a system that the lines were tried on."""
    newer = "((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 502))"
    return (
        sys.platform == "linux"
        and subprocess.run(["bash", "-c", newer], check=False).returncode == 0
    )


@pytest.mark.skipif(not _is_as_expected(), reason="the lines are for GNU and bash 5.2")
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.torture), 16])
def test_every_trick_is_one(tmp_path: Path, every: int) -> None:
    """In real bash each line does its deed, where the programs for it are installed."""
    template = made_world(tmp_path / "template")

    def shown(numbered: tuple[int, Trick]) -> str | None:
        number, trick = numbered
        world = World(tmp_path / str(number))
        shutil.copytree(template.root, world.root, symlinks=True)
        said = _run(world, trick.line)
        is_done = _is_done(trick.rules.deed, template, world, said)
        return None if is_done else f"{trick.family}: {trick.line!r} said {said[-300:]!r}"

    tricks = [each for each in TRICKS if each.is_shown and all(map(_has, each.needs))][::every]
    with ThreadPoolExecutor(max_workers=4) as pool:
        failed = [each for each in pool.map(shown, enumerate(tricks)) if each]
    assert not failed, f"{len(failed)} of {len(tricks)} lines do nothing:\n" + "\n".join(failed)


def _has(program: str) -> bool:
    return shutil.which(program, path=_PATH) is not None


def _run(world: World, line: str) -> bytes:
    """Run a line; gives what it said."""
    ran = subprocess.run(
        ["bash", "-c", world.line(line)],
        cwd=world.work,
        env=world.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        check=False,
    )
    return ran.stdout


def _is_done(deed: Deed, before: World, after: World, said: bytes) -> bool:
    match deed:
        case "removes":
            return not (after.work / "victim").exists()
        case "reads":
            found = [said, *_contents(after.work).values()]
            is_changed = _contents(before.outside) != _contents(after.outside)
            return is_changed or any(map(_SECRET.search, found))
        case "writes":
            return _contents(before.work, ".git") != _contents(after.work, ".git")
        case "writes git":
            return _contents(before.work / ".git") != _contents(after.work / ".git")
        case "pushes":
            return _contents(before.root / "origin.git") != _contents(after.root / "origin.git")


def _contents(folder: Path, *without: str) -> dict[str, bytes]:
    """What is in a folder, without what links in it lead to."""
    found = {}
    for path, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in without]
        for name in [*names, *folders]:
            each = Path(path, name)
            mode = each.lstat().st_mode
            content = each.read_bytes() if stat.S_ISREG(mode) else b""
            found[os.path.relpath(each, folder)] = f"{mode:o} ".encode() + content
    return found
