"""The terminal UI, `opencode attach`, as a person sees it who works with it for a while."""

from pathlib import Path

from tests.clients.conftest import server_name
from tests.clients.screens import Screens
from tests.clients.workspace import GREET, TIDES, Workspace
from tests.support.relay import relaying
from tests.support.servers import Serve
from tests.support.terminal import Terminal


def test_a_day_at_the_terminal(
    opencode: Path, workspace: Workspace, serve: Serve, window: Terminal
) -> None:
    """Everything that a person does at the terminal works, and is there after a restart."""
    server = serve()
    screens = Screens(window, opencode, workspace)
    screens.attach(server.url)
    screens.until("Ask anything", "Offline kedge")
    a_file_is_written_and_edited(screens, workspace)
    it_is_undone_and_redone(screens, workspace)
    the_session_is_renamed(screens)
    a_second_session_has_todos(screens)
    a_command_needs_a_permission(screens, workspace)
    a_question_is_answered(screens)
    the_conversation_is_compacted(screens)
    a_streamed_answer_is_interrupted(screens)
    the_first_session_is_found_in_the_list(screens)
    it_is_forked(screens)
    session = screens.session("The harbour (fork #1)")
    server.stop()
    with relaying() as relay:
        server = serve()
        relay.aim(server.url)
        screens.attach(relay.url, "--session", session)
        relay.until_heard()
        everything_is_there(screens)
        # OpenCode's own terminal learns nothing of what its server did before it went.
        if server_name() == "kedge":
            screens.prompt("slow 2 300s say Land in sight, say the gulls")
            screens.until_said("Land in sight")
            server.stop()
            relay.aim(serve().url)
            relay.until_heard()
            it_goes_on_by_itself(screens)


def test_work_is_given_away_at_the_terminal(
    opencode: Path, workspace: Workspace, serve: Serve, window: Terminal
) -> None:
    """Tasks are shown and opened, and commands and skills are offered and run."""
    workspace.configure("command/greet.md", GREET)
    workspace.configure("skills/tides/SKILL.md", TIDES)
    screens = Screens(window, opencode, workspace)
    screens.attach(serve().url)
    screens.until("Ask anything", "Offline kedge")
    a_task_is_shown_and_opened(screens, workspace)
    a_running_task_is_opened_and_interrupted(screens)
    a_command_has_arguments_and_a_file(screens, workspace)
    skills_are_listed_and_read(screens)
    the_project_is_introduced(screens)


def a_task_is_shown_and_opened(screens: Screens, workspace: Workspace) -> None:
    """Into the subtask, where all that it did stands, and back."""
    screens.prompt("task general write t.txt hi")
    screens.until_idle("✓ General Task — Write t.txt hi", "1 toolcall", "Done: task.")
    assert workspace.text("t.txt") == "hi\n"
    screens.press("C-x", "Down")
    screens.until("# Wrote t.txt", "Done: write.", "General (1 of 1)", without=("General Task",))
    screens.press("Up")
    screens.until("✓ General Task — Write t.txt hi", without=("General (1 of 1)",))


def a_running_task_is_opened_and_interrupted(screens: Screens) -> None:
    """What it says is seen while it says it; an interruption of the caller ends it too."""
    screens.prompt("task general slow 2 300s say Half a word of it")
    screens.until("General Task — Slow 2 300s say Half")
    screens.press("C-x", "Down")
    screens.until("General (2 of 2)")
    screens.until_said("Half a w")
    screens.press("Up")
    screens.until("Slow 2 300s say Half", without=("General (2 of 2)",))
    screens.interrupt()
    screens.until_idle("interrupted")


def a_command_has_arguments_and_a_file(screens: Screens, workspace: Workspace) -> None:
    """They are put into its template, and the file is attached."""
    screens.own_command("/greet", "out.txt hi README.md")
    screens.until_idle("say See @README.md for more.", "File  README.md", "# Wrote out.txt")
    screens.until_said("See @README.md for more.")
    assert workspace.text("out.txt") == "hi\n"


def skills_are_listed_and_read(screens: Screens) -> None:
    """By a person, as a command, and by the model."""
    screens.command("/skills")
    screens.until("Search skills", "tides", "When it is high water.")
    screens.press("Enter")
    screens.until("/tides", without=("Search skills",))
    screens.press("Enter")
    screens.until_idle("High water is at noon.", "The folder of this skill is")
    screens.prompt("skill tides")
    screens.until_idle('→ Skill "tides"', "Done: skill.")


def the_project_is_introduced(screens: Screens) -> None:
    """`/init` asks the model for the instructions of the project."""
    screens.own_command("/init")
    screens.until_idle("Write `AGENTS.md` in the root of this project")
    screens.until_said("I only follow commands")


def a_file_is_written_and_edited(screens: Screens, workspace: Workspace) -> None:
    """Tool calls are drawn, the session gets a title, and the files are what was drawn."""
    screens.prompt("write a.txt one")
    screens.until("# Wrote a.txt", "Done: write.")
    screens.until_beside("Write a.txt one")
    assert workspace.text("a.txt") == "one\n"
    screens.prompt("edit a.txt one two")
    screens.until("← Edit a.txt", "1 + two", "Done: edit.")
    assert workspace.text("a.txt") == "two\n"


def it_is_undone_and_redone(screens: Screens, workspace: Workspace) -> None:
    """`/undo` and `/redo` go step by step, on the screen and on the disk."""
    screens.command("/undo")
    screens.until("1 message reverted", "a.txt +1 -1", without=("Done: edit.",))
    assert workspace.text("a.txt") == "one\n"
    screens.clear("edit a.txt one two")
    screens.command("/undo")
    screens.until("2 message reverted", without=("Done: write.",))
    assert workspace.text("a.txt") is None
    screens.clear("write a.txt one")
    screens.command("/redo")
    screens.until("1 message reverted", "Done: write.")
    assert workspace.text("a.txt") == "one\n"
    screens.command("/redo")
    screens.until("Done: edit.", without=("reverted",))
    assert workspace.text("a.txt") == "two\n"


def the_session_is_renamed(screens: Screens) -> None:
    """A title that a person gives is shown."""
    screens.command("/rename")
    screens.until("Rename Session")
    screens.press("C-u")
    screens.type("The harbour")
    screens.until("The harbour")
    screens.press("Enter")
    screens.until_beside("The harbour")


def a_second_session_has_todos(screens: Screens) -> None:
    """A new session begins empty, and its todos are shown beside the conversation."""
    screens.command("/new")
    screens.until("Ask anything", without=("The harbour",))
    screens.prompt("todo [x] weigh anchor | [~] set sail | steer")
    screens.until("# Todos", "Done: todowrite.")
    screens.until_beside("Todo", "[✓] weigh anchor", "[•] set sail", "[ ] steer")


def a_command_needs_a_permission(screens: Screens, workspace: Workspace) -> None:
    """What the project wants to be asked for is done when it is allowed, and else not."""
    screens.prompt("bash touch made.txt")
    screens.until("Permission required", "$ touch made.txt", "Allow once")
    assert workspace.text("made.txt") is None
    screens.press("Enter")
    screens.until("Done: bash.", without=("Permission required",))
    assert workspace.text("made.txt") == ""
    screens.prompt("bash touch refused.txt")
    screens.until("Permission required", "$ touch refused.txt")
    screens.press("Right", "Right", "Enter")
    screens.until_idle("Build · Offline", without=("Permission required",))
    assert workspace.text("refused.txt") is None


def a_question_is_answered(screens: Screens) -> None:
    """A question of the model's is a list to choose from."""
    screens.prompt("ask Which way? | north | south")
    screens.until("1. north", "2. south", "enter submit")
    screens.press("Down", "Enter")
    screens.until("# Questions", "question.", without=("enter submit",))


def the_conversation_is_compacted(screens: Screens) -> None:
    """`/compact` draws a divider and the summary, and everything before it stays."""
    screens.command("/compact")
    screens.until("── Compaction ──", "Objective", "▣  Compaction")


def a_streamed_answer_is_interrupted(screens: Screens) -> None:
    """What the model says is seen while it says it, and ends where a person interrupts it."""
    screens.prompt("slow 2 300s say Sea breeze, salt and tar, day after day")
    screens.until_said("Sea breeze, salt")
    screens.interrupt()
    screens.until_idle("interrupted")


def the_first_session_is_found_in_the_list(screens: Screens) -> None:
    """The list has both sessions, can be searched, and opens what is chosen."""
    screens.command("/sessions")
    screens.until("Sessions", "Search", "The harbour", "delete ctrl+d")
    screens.find("harb", "The harbour")
    screens.until_beside("The harbour")
    screens.until("Done: edit.", without=("delete ctrl+d",))


def it_is_forked(screens: Screens) -> None:
    """A fork has what came before the message that was chosen, which is ready to be changed."""
    screens.command("/fork")
    screens.until("Fork session", "Full session")
    screens.press("Down", "Enter")
    screens.until_beside("The harbour (fork #1)")
    screens.until("Done: write.", "edit a.txt one two", without=("Done: edit.",))
    screens.clear("edit a.txt one two")


def everything_is_there(screens: Screens) -> None:
    """After a restart all three sessions are there, with messages and todos."""
    screens.until_beside("The harbour (fork #1)")
    screens.until("# Wrote a.txt", "Done: write.")
    screens.command("/sessions")
    screens.until("Search", "The harbour (fork #1)", "The harbour", "Todo [x] weigh anchor")
    screens.find("weigh", "Todo [x] weigh anchor")
    screens.until_beside("[✓] weigh anchor", "[•] set sail")
    screens.until("▣  Compaction", "interrupted")


def it_goes_on_by_itself(screens: Screens) -> None:
    """A terminal that was attached during a restart learns what became of the running turn."""
    screens.until_screen(
        lambda screen: screen.count("· interrupted") == 2 and "Land in sight" in screen,
        "a second answer that was interrupted",
    )
    screens.prompt("say All is well.")
    screens.until_said("All is well.")
