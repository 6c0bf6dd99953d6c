"""Shows a turn while it happens: text as it comes, then each call with what it did.

On a terminal all of it goes there, with a line at the end that says what is running. When piped,
only the answer goes to standard output, and the rest to standard error.
"""

import json
import time
from typing import TYPE_CHECKING, Any

from kedge.cli.json_output import as_json
from kedge.cli.screen import DIM, YELLOW, Screen, clip, one_line, safe
from kedge.cli.tool_calls import show_call, subject

if TYPE_CHECKING:
    from kedge.domain.events import EventProperties
    from kedge.domain.parts import ReasoningPart, TextPart, ToolPart
    from kedge.engine.event_log import Event

_CLEAR = "\r\x1b[K"


class TurnView:
    """The text view of a turn."""

    def __init__(self, answer: Screen, rest: Screen, directory: str) -> None:
        """`answer` gets the text of the model, `rest` all else; both may be the same."""
        self._answer = answer
        self._rest = rest
        self._directory = directory
        self._shown: dict[str, int] = {}
        """How much of each text was written."""
        self._thoughts: set[str] = set()
        self._open = ""
        """The text that the cursor stands behind."""
        self._at_start = True
        """Whether the cursor stands at the beginning of a line."""
        self._running: dict[str, str] = {}
        self._status = ""
        """The line that says what runs, if it is shown."""
        self._prompts: set[str] = set()

    def hear(self, event: "Event") -> None:
        """Show what an event of the turn brings."""
        from kedge.domain.events import MessageUpdated, PartDelta, PartUpdated, SessionStatusChanged
        from kedge.domain.messages import UserMessage
        from kedge.domain.sessions import Retry

        match event.properties:
            case MessageUpdated(info=UserMessage(id=id)):
                self._prompts.add(id)
            case PartDelta(messageID=message, partID=part, field="text", delta=delta):
                if message not in self._prompts:
                    self._add(part, event.offset, delta)
            case PartUpdated(part=part) if part.messageID not in self._prompts:
                self._part(part)
            case SessionStatusChanged(status=Retry(attempt=attempt, message=message)):
                self.note(f"attempt {attempt} failed, trying again: {message}")

    def _part(self, part: object) -> None:
        from kedge.domain.parts import ReasoningPart, TextPart, ToolPart

        if isinstance(part, ToolPart):
            self._call(part)
        elif isinstance(part, TextPart) or (
            isinstance(part, ReasoningPart) and self._rest.is_terminal
        ):
            self._text(part)

    def _text(self, part: "TextPart | ReasoningPart") -> None:
        from kedge.domain.parts import ReasoningPart, part_ended

        if isinstance(part, ReasoningPart):
            self._thoughts.add(part.id)
        written = self._shown.setdefault(part.id, 0)
        if len(part.text) > written:
            self._write(part.id, part.text[written:])
        if part_ended(part) and self._open == part.id:
            self._finish_line()
            self._show_status()

    def _add(self, part: str, offset: int | None, delta: str) -> None:
        written = self._shown.get(part)
        if written is None or offset is None or offset > written:
            # Its beginning was missed: the part itself follows, with all of its text.
            return
        if fresh := delta[written - offset :]:
            self._write(part, fresh)

    def _write(self, part: str, text: str) -> None:
        is_thought = part in self._thoughts
        screen = self._rest if is_thought else self._answer
        self._clear_status()
        if self._open != part:
            self._finish_line()
        self._open = part
        self._shown[part] += len(text)
        screen.write(screen.paint(safe(text), DIM) if is_thought else safe(text))
        self._at_start = text.endswith("\n")

    def _finish_line(self) -> None:
        if not self._at_start:
            self._answer.write("\n")
        self._at_start, self._open = True, ""

    def _call(self, part: "ToolPart") -> None:
        from kedge.domain.parts import ToolRunning, part_ended

        if part_ended(part):
            self._running.pop(part.id, None)
            if self._shown.get(part.id):
                return
            self._shown[part.id] = 1
            self._clear_status()
            self._finish_line()
            show_call(self._rest, part, self._directory)
            self._rest.flush()
        elif isinstance(part.state, ToolRunning):
            self._running[part.id] = f"{part.tool} {subject(part, self._directory)}"
        self._show_status()

    def note(self, text: str) -> None:
        """Write something that people should know."""
        self.pause()
        self._rest.line(f"{self._rest.paint('note:', YELLOW)} {one_line(text)}")
        self._rest.flush()

    def pause(self) -> None:
        """Leave the cursor at the beginning of a line, for others to write."""
        self._clear_status()
        self._finish_line()

    def _show_status(self) -> None:
        if not (self._rest.is_smart and self._at_start):
            return
        running = ", ".join(self._running.values())
        line = clip(f"… {running}", self._rest.width - 1) if running else ""
        if line != self._status:
            self._clear_status()
            self._rest.write(self._rest.paint(line, DIM))
            self._status = line

    def _clear_status(self) -> None:
        if self._status:
            self._rest.write(_CLEAR)
            self._status = ""


class JsonView:
    """A turn as one JSON document a line, in the form of `opencode run --format json`."""

    def __init__(self, screen: Screen, session_id: str) -> None:
        self._screen = screen
        self._session_id = session_id
        self._ended: set[str] = set()
        self._prompts: set[str] = set()

    def hear(self, event: "Event") -> None:
        """Write what an event of the turn brings."""
        from kedge.domain.events import MessageUpdated, PartUpdated
        from kedge.domain.messages import UserMessage

        properties: EventProperties | object = event.properties
        match properties:
            case MessageUpdated(info=UserMessage(id=id)):
                self._prompts.add(id)
            case PartUpdated(part=part) if part.messageID not in self._prompts:
                self._part(part)

    def _part(self, part: Any) -> None:  # noqa: ANN401 - any part
        from kedge.domain.parts import part_ended

        name = {
            "text": "text",
            "reasoning": "reasoning",
            "tool": "tool_use",
            "step-start": "step_start",
            "step-finish": "step_finish",
        }.get(as_json(part)["type"])
        if name is not None and part_ended(part) and part.id not in self._ended:
            self._ended.add(part.id)
            self.emit(name, part=part)

    def emit(self, type: str, **data: object) -> None:
        """Write a line."""
        line = {
            "type": type,
            "timestamp": round(time.time() * 1000),
            "sessionID": self._session_id,
            **{name: as_json(value) for name, value in data.items()},
        }
        self._screen.line(json.dumps(line))
        self._screen.flush()

    def note(self, text: str) -> None:
        """Tell something that people should know."""
        self.emit("note", message=text)

    def pause(self) -> None:
        """There is no cursor."""
