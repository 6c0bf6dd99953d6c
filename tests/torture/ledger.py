"""What a killed writer was told is stored, held against what is there; see `writer`."""

import re
from typing import Any

from kedge.testing.state import SessionState, State

NOT_THERE = None


def bodies(messages: list[dict[str, Any]]) -> list[list[Any]]:
    """What a fork copies, without the ids that it gives anew."""
    ids = ("id", "sessionID", "messageID", "parentID")
    return [
        [
            {key: value for key, value in body.items() if key not in ids}
            for body in (each["info"], *each["parts"])
        ]
        for each in messages
    ]


class Ledger:
    """What must be there: the newest acknowledged value of each path, or one on its way."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._sure: dict[str, Any] = {}
        self._maybe: dict[str, Any] = {}
        self._running: set[str] = set()
        self._ending: set[str] = set()

    @property
    def cut_off(self) -> set[str]:
        """Sessions whose turn was certainly open when the writer was killed."""
        return self._running - self._ending

    def take(self, word: str, *rest: Any) -> None:  # noqa: ANN401 - JSON
        """One line of a writer."""
        if word == "will":
            path, value = rest
            self._maybe[path] = value
        elif word == "did":
            self._did(*rest)
        elif word == "began":
            self._running.add(rest[0])
        elif word == "ending":
            self._ending.add(rest[0])
        elif word == "ended":
            self._running.discard(rest[0])
            self._ending.discard(rest[0])

    def settle(self) -> None:
        """The writer is gone and was judged: its turns are over."""
        self._running.clear()
        self._ending.clear()

    def _did(self, path: str, value: Any) -> None:  # noqa: ANN401 - JSON
        self.acknowledged += 1
        self._maybe.pop(path, None)
        self._sure[path] = value
        if value is NOT_THERE:
            for below in [each for each in self._sure if each.startswith(f"{path}/")]:
                del self._sure[below]
                self._maybe.pop(below, None)

    def losses(self, state: State) -> list[str]:
        """What was acknowledged and is not there; each with both values."""
        return [
            f"{path}: told {value!r}, on its way {self._maybe.get(path)!r}, found {found!r}"
            for path, value in self._sure.items()
            if not self._is_kept(path, value, found := _found(state, path))
        ]

    def _is_kept(self, path: str, value: Any, found: Any) -> bool:  # noqa: ANN401 - JSON
        if _agrees(value, found):
            return True
        if path in self._maybe and _agrees(self._maybe[path], found):
            return True
        going = [above for above in _above(path) if above in self._maybe]
        return found is None and any(self._maybe[above] is NOT_THERE for above in going)


def open_ends(session: SessionState) -> list[str]:
    """Messages and tool calls that nobody will ever finish."""
    ends = []
    for info, parts in session.messages:
        if info["role"] == "assistant" and "completed" not in info["time"]:
            ends.append(info["id"])
        ends += [
            part["id"]
            for part in parts
            if part["type"] == "tool" and part["state"]["status"] in ("pending", "running")
        ]
    return ends


def _above(path: str) -> list[str]:
    return [path[: slash.start()] for slash in re.finditer("/", path)]


def _found(state: State, path: str) -> Any:  # noqa: ANN401 - JSON
    session_id, _, rest = path.partition("/")
    session = state.sessions.get(session_id)
    if session is None or session.hidden:
        return None
    if not rest:
        return session.info
    if rest == "todos":
        return session.todos
    if rest == "copy":
        return bodies([{"info": info, "parts": parts} for info, parts in session.messages])
    message_id, _, part_id = rest.partition("/")
    for info, parts in session.messages:
        if info["id"] == message_id:
            return (
                next((each for each in parts if each["id"] == part_id), None) if part_id else info
            )
    return None


def _agrees(value: Any, found: Any) -> bool:  # noqa: ANN401 - JSON
    if value is NOT_THERE or found is None:
        return value is NOT_THERE and found is None
    return bool(value["exact"] == found) if "exact" in value else _holds(value["holds"], found)


def _holds(value: Any, found: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(value, dict) and isinstance(found, dict):
        return all(key in found and _holds(value[key], found[key]) for key in value)
    return bool(value == found)
