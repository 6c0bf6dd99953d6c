"""OpenCode's terminal UI as a test handles it: what is typed, and what stands where."""

import http.client
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

from tests.clients.workspace import Workspace
from tests.support.terminal import Terminal

_SIDE = 98
"""The column where what stands beside the conversation begins."""
_RUNS = "esc interrupt"
_SURE = "esc again to interrupt"


class Screens:
    """The UI, attached to a server."""

    def __init__(self, window: Terminal, program: Path, workspace: Workspace) -> None:
        self._window = window
        self._program = program
        self.workspace = workspace
        self._url = ""
        self.press = window.press
        self.type = window.type
        self.until_screen = window.until_screen

    def attach(self, url: str, *options: str) -> None:
        """Start it anew."""
        self._url = url
        command = (str(self._program), "attach", url, *options)
        self._window.run(*command, folder=self.workspace.project, environ=self.workspace.environ)

    def prompt(self, text: str) -> None:
        """Send a prompt once nothing runs."""
        self.until_idle()
        self.type(text)
        self.until_screen(lambda screen: _typed(screen) == text, f"{text!r} typed")
        self.press("Enter")

    def command(self, name: str) -> None:
        """Choose a command, once it is the one that is offered."""
        self.until_idle()
        self.type(name)
        self.until_screen(lambda screen: _offered(screen) == name, f"{name} to choose")
        self.press("Enter")

    def own_command(self, name: str, arguments: str = "") -> None:
        """Choose a command that the server has, and send it."""
        self.command(name)
        self.until_screen(lambda screen: _typed(screen) == name, f"{name} typed")
        self.type(arguments)
        whole = f"{name} {arguments}".strip()
        self.until_screen(lambda screen: _typed(screen) == whole, f"{whole!r} typed")
        self.press("Enter")

    def clear(self, text: str) -> None:
        """Take back what an undo or a fork has put into the prompt."""
        self.until_screen(lambda screen: _typed(screen) == text, f"{text!r} to take back")
        self.press("C-u")
        self.until_screen(lambda screen: _typed(screen) == "", "an empty prompt")

    def rename(self, title: str) -> None:
        """Give the session another title; it is shown beside the conversation."""
        self.command("/rename")
        self.until("Rename Session")
        self.press("C-u")
        self.type(title)
        self.until(title)
        self.press("Enter")
        self.until_beside(title)

    def find(self, text: str, title: str) -> None:
        """Search in the list of sessions, and open the one that is the first of its day."""
        self.type(text)
        first = re.compile(rf" {text} *\n.*\n.*\n.* {re.escape(title)}")
        self.until_screen(lambda screen: bool(first.search(screen)), f"{title!r} found")
        self.press("Enter")

    def open_subtask(self) -> None:
        """Show the conversation of a task, once the UI says that it can be shown."""
        self.until("view subagents")
        self.press("C-x", "Down")

    def interrupt(self) -> None:
        """Press escape twice, and again for as long as the second comes too late."""
        while _RUNS in self._window.screen:
            self.press("Escape")
            if _SURE in self.until_screen(lambda screen: _RUNS not in screen, "an interruption"):
                self.press("Escape")
                self.until_screen(lambda screen: _SURE not in screen, "an interruption")
        # An escape that was not read yet would make the next letter a shortcut, and swallow it.
        self.press("End")

    def until(self, *texts: str, without: tuple[str, ...] = ()) -> None:
        """Wait for texts, wherever they stand."""
        self._window.until(*texts, without=without)

    def until_idle(self, *texts: str, without: tuple[str, ...] = ()) -> None:
        """Wait for texts while nothing runs."""
        self._window.until(*texts, without=(*without, _RUNS, _SURE))

    def until_said(self, text: str) -> None:
        """Wait for words of the model's; prompts have a line before them."""
        said = re.compile(rf"^ {{5}}{re.escape(text)}", re.MULTILINE)
        self.until_screen(lambda screen: bool(said.search(screen)), f"{text!r} said")

    def until_beside(self, *texts: str) -> None:
        """Wait for lines beside the conversation."""

        def stand(screen: str) -> bool:
            beside = {line[_SIDE:].strip(" ▼") for line in screen.split("\n")}
            return beside.issuperset(texts)

        self.until_screen(stand, f"{texts} beside the conversation")

    def session(self, title: str) -> str:
        """The id of a session."""
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc)
        connection.request("GET", "/session")
        sessions = json.loads(connection.getresponse().read())
        connection.close()
        [id] = [each["id"] for each in sessions if each["title"] == title]
        return str(id)


def write(screens: Screens, name: str) -> None:
    """Have the agent write a file."""
    screens.prompt(f"write {name} one")
    screens.until(f"# Wrote {name}", "Done: write.")


def edit(screens: Screens, name: str) -> None:
    """Have the agent change that file."""
    screens.prompt(f"edit {name} one two")
    screens.until(f"← Edit {name}", "1 + two", "Done: edit.")


def set_todos(screens: Screens) -> None:
    """Have the agent make a list."""
    screens.prompt("todo [x] weigh anchor | [~] set sail | steer")
    screens.until("# Todos", "Done: todowrite.")
    screens.until_beside("Todo", "[✓] weigh anchor", "[•] set sail", "[ ] steer")


def interrupt(screens: Screens) -> None:
    """Interrupt the model in the middle of an answer."""
    screens.prompt("slow 2 300s say Sea breeze, salt and tar, day after day")
    screens.until_said("Sea breeze, salt")
    screens.interrupt()
    screens.until_idle("interrupted")


def _typed(screen: str) -> str | None:
    """What stands in the prompt; above its lower edge come the agent's name and an empty line."""
    lines = screen.split("\n")
    edges = [number for number, line in enumerate(lines) if "╹▀▀▀" in line]
    return lines[edges[-1] - 3][:_SIDE].strip(" ┃") if edges else None


def _offered(screen: str) -> str | None:
    """The command that would be chosen now."""
    found = re.search(r"┃ (/\w+) ", screen)
    return found[1] if found else None
