"""The terminal UI, `opencode attach`, as a person sees it: each test is a session or two of it.

One server and one UI serve all tests of this file, because starting them takes longer than a test.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import opened_window, serving
from tests.clients.screens import Screens, edit, interrupt, set_todos, write
from tests.clients.workspace import GREET, TIDES, prepared


@dataclass
class Attached:
    """A UI, and the server that it is attached to."""

    screens: Screens
    url: str
    failures: int | None = None
    """How many tests had failed when it was attached last; None if it was not attached yet."""


@pytest.fixture(scope="module")
def attached(opencode: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """What the tests share."""
    workspace = prepared(tmp_path_factory.mktemp("terminal"))
    with serving(workspace) as serve, opened_window() as window:
        workspace.configure("command/greet.md", GREET)
        workspace.configure("skills/tides/SKILL.md", TIDES)
        yield Attached(Screens(window, opencode, workspace), serve().url)


@pytest.fixture
def screens(request: pytest.FixtureRequest, attached: Attached) -> Screens:
    """The UI before a new session; attached anew if a test failed and may have left it anywhere."""
    screens, failures = attached.screens, request.session.testsfailed
    if attached.failures == failures:
        screens.command("/new")
    else:
        screens.attach(attached.url)
        attached.failures = failures
    screens.until("Ask anything", "Offline kedge")
    return screens


def test_tool_calls_are_drawn(screens: Screens) -> None:
    """The session gets a title, and the files are what was drawn."""
    write(screens, "a.txt")
    screens.until_beside("Write a.txt one")
    assert screens.workspace.text("a.txt") == "one\n"
    edit(screens, "a.txt")
    assert screens.workspace.text("a.txt") == "two\n"


def test_undo_and_redo(screens: Screens) -> None:
    """`/undo` and `/redo` go step by step, on the screen and on the disk."""
    write(screens, "b.txt")
    edit(screens, "b.txt")
    screens.command("/undo")
    screens.until("1 message reverted", "b.txt +1 -1", without=("Done: edit.",))
    assert screens.workspace.text("b.txt") == "one\n"
    screens.clear("edit b.txt one two")
    screens.command("/undo")
    screens.until("2 message reverted", without=("Done: write.",))
    assert screens.workspace.text("b.txt") is None
    screens.clear("write b.txt one")
    screens.command("/redo")
    screens.until("1 message reverted", "Done: write.")
    assert screens.workspace.text("b.txt") == "one\n"
    screens.command("/redo")
    screens.until("Done: edit.", without=("reverted",))
    assert screens.workspace.text("b.txt") == "two\n"


def test_a_session_is_renamed_and_found(screens: Screens) -> None:
    """The list shows titles that people gave, can be searched, and opens what is chosen."""
    write(screens, "c.txt")
    screens.rename("The harbour")
    screens.command("/new")
    screens.until("Ask anything", without=("The harbour",))
    screens.command("/sessions")
    screens.until("Sessions", "Search", "The harbour", "delete ctrl+d")
    screens.find("harb", "The harbour")
    screens.until_beside("The harbour")
    screens.until("# Wrote c.txt", "Done: write.", without=("delete ctrl+d",))


def test_a_session_is_forked(screens: Screens) -> None:
    """A fork has what came before the message that was chosen, which is ready to be changed."""
    write(screens, "d.txt")
    edit(screens, "d.txt")
    screens.rename("The bay")
    screens.command("/fork")
    screens.until("Fork session", "Full session")
    screens.press("Down", "Enter")
    screens.until_beside("The bay (fork #1)")
    screens.until("Done: write.", "edit d.txt one two", without=("Done: edit.",))
    screens.clear("edit d.txt one two")


def test_todos_are_shown(screens: Screens) -> None:
    """The todos of a session stand beside its conversation."""
    set_todos(screens)


def test_a_permission_is_asked_for(screens: Screens) -> None:
    """What the project wants to be asked for is done when it is allowed, and else not."""
    screens.prompt("bash touch made.txt")
    screens.until("Permission required", "$ touch made.txt", "Allow once")
    assert screens.workspace.text("made.txt") is None
    screens.press("Enter")
    screens.until("Done: bash.", without=("Permission required",))
    assert screens.workspace.text("made.txt") == ""
    screens.prompt("bash touch refused.txt")
    screens.until("Permission required", "$ touch refused.txt")
    screens.press("Right", "Right", "Enter")
    screens.until_idle("Build · Offline", without=("Permission required",))
    assert screens.workspace.text("refused.txt") is None


def test_a_question_is_answered(screens: Screens) -> None:
    """A question of the model's is a list to choose from."""
    screens.prompt("ask Which way? | north | south")
    screens.until("1. north", "2. south", "enter submit")
    screens.press("Down", "Enter")
    screens.until("# Questions", "question.", without=("enter submit",))


def test_a_conversation_is_compacted(screens: Screens) -> None:
    """`/compact` draws a divider and the summary, and everything before it stays."""
    screens.prompt("say Sails are set.")
    screens.until_said("Sails are set.")
    screens.command("/compact")
    screens.until("── Compaction ──", "Objective", "▣  Compaction")


def test_a_streamed_answer_is_interrupted(screens: Screens) -> None:
    """What the model says is seen while it says it, and ends where a person interrupts it."""
    interrupt(screens)


def test_a_task_is_shown_and_opened(screens: Screens) -> None:
    """Into the subtask, where all that it did stands, and back."""
    screens.prompt("task general write t.txt hi")
    screens.until_idle("✓ General Task — Write t.txt hi", "1 toolcall", "Done: task.")
    assert screens.workspace.text("t.txt") == "hi\n"
    screens.open_subtask()
    screens.until("# Wrote t.txt", "Done: write.", "General (1 of 1)", without=("General Task",))
    screens.press("Up")
    screens.until("✓ General Task — Write t.txt hi", without=("General (1 of 1)",))


def test_a_running_task_is_opened_and_interrupted(screens: Screens) -> None:
    """What it says is seen while it says it; an interruption of the caller ends it too."""
    screens.prompt("task general slow 2 300s say Half a word of it")
    screens.until("General Task — Slow 2 300s say Half")
    screens.open_subtask()
    screens.until("General (1 of 1)")
    screens.until_said("Half a w")
    screens.press("Up")
    screens.until("Slow 2 300s say Half", without=("General (1 of 1)",))
    screens.interrupt()
    screens.until_idle("interrupted")


def test_a_command_has_arguments_and_a_file(screens: Screens) -> None:
    """They are put into its template, and the file is attached."""
    screens.own_command("/greet", "out.txt hi README.md")
    screens.until_idle("say See @README.md for more.", "File  README.md", "# Wrote out.txt")
    screens.until_said("See @README.md for more.")
    assert screens.workspace.text("out.txt") == "hi\n"


def test_skills_are_listed_and_read(screens: Screens) -> None:
    """By a person, as a command, and by the model."""
    screens.command("/skills")
    screens.until("Search skills", "tides", "When it is high water.")
    screens.press("Enter")
    screens.until("/tides", without=("Search skills",))
    screens.press("Enter")
    screens.until_idle("High water is at noon.", "The folder of this skill is")
    screens.prompt("skill tides")
    screens.until_idle('→ Skill "tides"', "Done: skill.")


def test_a_project_is_introduced(screens: Screens) -> None:
    """`/init` asks the model for the instructions of the project."""
    screens.own_command("/init")
    screens.until_idle("Write `AGENTS.md` in the root of this project")
    screens.until_said("I am kedge/offline")
