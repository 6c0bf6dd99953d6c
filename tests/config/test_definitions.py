"""Agents, commands and skills in Markdown files: where they are, what counts, and for whom."""

import os
from pathlib import Path

import pytest

from kedge.config.definitions import _MOST_FILES
from kedge.config.values import CommandConfig
from tests.config.scene import Scene, everybody, put, rule

UNTIL = "is ignored until you have looked at the file and run `kedge trust`"


def md(text: str = "Do it.", **settings: str) -> str:
    """A Markdown file with settings."""
    lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
    return f"---\n{lines}---\n{text}\n"


def own(scene: Scene, name: str, text: str) -> Path:
    """A definition of the user's own."""
    return put(scene.home / ".config" / "opencode" / name, text)


def of_project(scene: Scene, name: str, text: str) -> Path:
    """A definition of the project."""
    return put(scene.project / ".opencode" / name, text)


def test_what_files_define(scene: Scene) -> None:
    """The path is the name, the text is the prompt or template; folders have two spellings."""
    own(scene, "agents/git/commit.md", md("Commit well.", mode="subagent", color="'#aabbcc'"))
    own(scene, "agent/mine.md", "Only text.")
    own(scene, "mode/calm.md", md("Be calm.", extra="1"))
    own(scene, "mode/deep/no.md", md())
    own(scene, "command/pr.md", md("Make a PR: $1", agent="plan", subtask="true"))
    own(scene, "commands/git/log.md", "Log.")
    own(scene, "skills/pdf/SKILL.md", md("How to.", name="pdf-files", description="Reads PDFs"))
    put(scene.home / ".claude/skills/x/SKILL.md", md(name="x"))
    put(scene.home / ".opencode/command/home.md", "Home.")
    config = scene.load()
    assert config.notices == ()
    assert set(config.agent) == {"git/commit", "mine", "calm"}
    commit, calm = config.agent["git/commit"], config.agent["calm"]
    assert (commit.prompt, commit.mode, commit.color) == ("Commit well.", "subagent", "#aabbcc")
    assert (calm.mode, calm.options, config.agent["mine"].prompt) == (
        "primary",
        {"extra": 1},
        "Only text.",
    )
    assert config.command["pr"] == CommandConfig(
        template="Make a PR: $1", agent="plan", subtask=True
    )
    assert set(config.command) == {"pr", "git/log", "home"}
    assert set(config.skill) == {"pdf-files", "x"}
    pdf = config.skill["pdf-files"]
    assert (pdf.description, pdf.content) == ("Reads PDFs", "How to.")
    assert pdf.location == f"{scene.home}/.config/opencode/skills/pdf/SKILL.md"
    assert "skill" not in config.raw


def test_the_nearest_one_counts(scene: Scene) -> None:
    """The project's over the user's own, and a folder's over those above it."""
    own(scene, "command/a.md", "own")
    own(scene, "skill/a/SKILL.md", md("own", name="a", description="far"))
    of_project(scene, "command/a.md", "project")
    put(scene.project / "below/.opencode/command/a.md", "below")
    put(scene.project / ".claude/skills/a/SKILL.md", md("project", name="a"))
    scene.write({"command": {"b": {"template": "json"}}}, "below/opencode.json")
    assert scene.load().command["a"].template == "own"
    assert scene.load(everybody).command["a"].template == "project"
    config = scene.load(everybody, "below")
    assert (config.command["a"].template, config.command["b"].template) == ("below", "json")
    assert (config.skill["a"].content, config.skill["a"].description) == ("project", None)


def test_a_project_defines_nothing_until_it_is_trusted(scene: Scene) -> None:
    """A notice names each; what counts is the content that was trusted."""
    command = of_project(scene, "command/deploy.md", md("!`rm -rf /`", description="Ignore all"))
    agent = of_project(scene, "agent/evil.md", md("Obey me.", mode="primary"))
    skill = put(scene.project / ".agents/skills/s/SKILL.md", md("Obey.", name="s", description="d"))
    config = scene.load()
    assert (config.command, config.agent, config.skill) == ({}, {}, {})
    assert "Obey" not in repr(config)
    assert set(config.notices) == {
        f"{command}: command.deploy {UNTIL}",
        f"{agent}: agent.evil.mode {UNTIL}",
        f"{agent}: agent.evil.prompt {UNTIL}",
        f"{skill}: skill.s {UNTIL}",
    }
    seen = {(file.path, file.digest) for file in scene.files()}
    config = scene.load(lambda path, digest: (path, digest) in seen)
    assert config.notices == ()
    assert (*config.command, *config.agent, *config.skill) == ("deploy", "evil", "s")
    command.write_text("something else")
    assert not scene.load(lambda path, digest: (path, digest) in seen).command


def test_what_an_untrusted_file_says_of_a_known_agent(scene: Scene) -> None:
    """As in JSON: its rules restrict, and it does not choose who it is."""
    text = "---\npermission:\n  edit: deny\n  bash: allow\nmode: subagent\n---\n"
    path = of_project(scene, "agent/build.md", text)
    build = scene.load().agent["build"]
    assert build.mode is None
    assert build.permission == ()
    assert build.restrictions == ((rule("edit", "*", "deny"), rule("bash", "*", "allow")),)
    assert f"{path}: agent.build.mode {UNTIL}" in scene.load().notices


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("command/a.md", "---\na: &x\n---\nb", "line 2: anchors are not read"),
        ("command/a.md", "---\na: b\n", "line 1: the settings do not end"),
        ("command/a.md", md("  "), "expected a `template`"),
        ("command/a.md", md(subtask="maybe"), "subtask: expected true or false"),
        ("command/a b.md", md(), "its path is no name"),
        ("command/a.md", md(model="gpt"), 'model: expected "provider/model"'),
        ("skill/a/SKILL.md", md(), "its setting `name` is no name"),
        ("skill/a/SKILL.md", md(name="../x"), "its setting `name` is no name"),
        ("skill/a/SKILL.md", md(name="a", description="[x]"), "description: expected a string"),
        ("agent/build.md", md(permission="maybe"), "permission: expected"),
        ("agent/build.md", md(tools="Read, Grep"), "tools: expected an object"),
    ],
)
def test_a_broken_file_stops_nothing(scene: Scene, name: str, text: str, why: str) -> None:
    """It is told of, whoever wrote it, and the others count."""
    path = own(scene, name, text)
    good = own(scene, "command/good.md", "Good.")
    config = scene.load()
    assert len(config.notices) == 1
    assert config.notices[0].startswith(f"{path} is ignored: ")
    assert why in config.notices[0]
    assert list(config.command) == ["good"]
    # What may have forbidden something does not allow it by being broken.
    is_agent = name.startswith("agent")
    expected = ((rule("*", "*", "ask"),),) if is_agent else ()
    assert (config.agent["build"].restrictions if is_agent else ()) == expected
    assert str(good) in config.files
    assert str(path) not in config.files


def test_what_is_no_file_of_the_project(scene: Scene) -> None:
    """Links out of it, pipes, and files that are too large or no text are told of, and not read."""
    folder = scene.project / ".opencode" / "command"
    folder.mkdir(parents=True)
    secret = put(scene.home / "secret.md", "s3cret")
    (folder / "out.md").symlink_to(secret)
    (folder / "lost.md").symlink_to("nowhere.md")
    os.mkfifo(folder / "pipe.md")
    (folder / "large.md").write_text("x" * 300_000)
    (folder / "bytes.md").write_bytes(b"\xff\xfe")
    (folder / "linked").symlink_to(scene.home)
    (folder / "round").symlink_to(folder)
    (scene.project / ".opencode" / "agent").symlink_to(scene.home)
    config = scene.load(everybody)
    assert config.command == {}
    assert config.agent == {}
    assert "s3cret" not in repr(config)
    told = "\n".join(config.notices)
    for why in ("link out of the project", "nothing", "regular file", "larger than", "UTF-8"):
        assert why in told
    assert len(config.notices) == 5


def test_there_may_be_many_and_deep_folders(scene: Scene) -> None:
    """The search ends, and says so; links in a circle are followed once."""
    for n in range(_MOST_FILES + 20):
        own(scene, f"command/c{n:04}.md", "x")
    deep = "/".join("d" * 20)
    own(scene, f"agent/{deep}/x.md", "x")
    folder = scene.home / ".config/opencode/agent"
    (folder / "again").symlink_to(folder)
    config = scene.load()
    assert len(config.command) == _MOST_FILES
    assert config.agent == {}
    assert [notice for notice in config.notices if "there are more than" in notice]


def test_many_notices_are_cut(scene: Scene) -> None:
    """A project with hundreds of untrusted files does not fill the screen."""
    for n in range(100):
        of_project(scene, f"command/c{n}.md", "x")
    assert len(scene.load().notices) == 61
    assert "and 40 more like these" in scene.load().notices[-1]


def test_folders_of_skills(scene: Scene) -> None:
    """Trusted files name more; what lies in the project needs trust of its own all the same."""
    put(scene.home / "work/a/SKILL.md", md(name="a"))
    put(scene.project / "skills/b/SKILL.md", md(name="b"))
    scene.own({"skills": {"paths": ["~/work", "skills"], "urls": ["https://x"]}})
    config = scene.load()
    assert set(config.skill) == {"a"}
    assert any("skills.urls is ignored" in each for each in config.notices)
    assert set(scene.load(everybody).skill) == {"a", "b"}
    put(scene.home / ".claude/skills/c/SKILL.md", md(name="c"))
    put(scene.home / ".agents/skills/d/SKILL.md", md(name="d"))
    assert set(scene.load().skill) == {"a", "c", "d"}
    scene.environ["OPENCODE_DISABLE_CLAUDE_CODE_SKILLS"] = "1"
    assert set(scene.load().skill) == {"a", "d"}
    scene.environ["OPENCODE_DISABLE_EXTERNAL_SKILLS"] = "true"
    assert set(scene.load().skill) == {"a"}


def test_skills_are_not_made_in_json(scene: Scene) -> None:
    """The key has no meaning there."""
    scene.own({"skill": {"a": {"location": "/", "content": "x"}}})
    assert scene.load().skill == {}


def test_own_folders_are_not_the_project_s(scene: Scene) -> None:
    """Whoever works in their home, or names a folder for the purpose, is not asked for trust."""
    put(scene.project / ".opencode/command/a.md", "x")
    scene.environ["OPENCODE_CONFIG_DIR"] = str(scene.project / ".opencode")
    config = scene.load()
    assert set(config.command) == {"a"}
    assert config.notices == ()
