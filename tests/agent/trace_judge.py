"""Events told as plain lines, without ids, times and words, so that two runs can be compared.

Messages are U1, A1, A2, parts A1.1, A1.2, snapshots S1, S2, requests #1, in the order in which they
are met. A line names every key that its object has beyond the usual ones (`+key`), lacks (`-key`),
and the values that clients act on.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

_USER = {"agent", "id", "model.modelID", "model.providerID", "role", "sessionID", "time.created"}
_ASSISTANT = {
    *("agent", "cost", "id", "mode", "modelID", "parentID", "path.cwd", "path.root", "providerID"),
    *("role", "sessionID", "time.created", "tokens.cache.read", "tokens.cache.write"),
    *("tokens.input", "tokens.output", "tokens.reasoning"),
}
_PART = {"id", "messageID", "sessionID", "type"}
_PARTS = {
    "text": {"text"},
    "reasoning": {"text", "time.start"},
    "file": {"mime", "url", "filename"},
    "step-start": {"snapshot"},
    "step-finish": {
        *("cost", "reason", "snapshot", "tokens.cache.read", "tokens.cache.write"),
        *("tokens.input", "tokens.output", "tokens.reasoning", "tokens.total"),
    },
    "patch": {"files", "hash"},
    "compaction": {"auto"},
    "tool": {"callID", "state", "tool"},
}
_STATES = {
    "pending": {"input", "raw", "status"},
    "running": {"input", "status", "time.start"},
    "completed": {"input", "metadata", "output", "status", "time.end", "time.start", "title"},
    "error": {"error", "input", "status", "time.end", "time.start"},
}
_DIFF = {"additions", "deletions", "file", "patch", "status"}
_NESTED = {"cache", "model", "path", "time", "tokens"}
_ACTED_ON = ("exists", "exit", "interrupted", "truncated")
"""What clients read of the metadata of a tool call."""
_KNOWN_ERRORS = (
    "The user rejected permission to use this specific tool call",
    "The user dismissed this question",
    "Tool execution aborted",
)
"""How the errors of tools begin that clients know."""
_TOLD = ("title", "agent", "model", "summary", "cost", "permission", "revert")
"""What a line tells of a session that changed."""


class Retelling:
    """Tells the events of one session, one line each."""

    def __init__(self, root: str, session: Json) -> None:
        self._root = root
        self._session = session
        self._names: dict[str, str] = {}
        self._said: dict[str, str] = {}
        """What each part said, as far as it was streamed."""
        self.told: list[str] = []

    def hear(self, event: Json) -> None:
        """Tell one more event; the pieces of one text, one after the other, are one line."""
        line = self._line(event["type"], event["properties"])
        if not (self.told and line == self.told[-1] and line.startswith("delta ")):
            self.told.append(line)

    def _line(self, kind: str, of: Json) -> str:
        tell = _TELLERS.get(kind)
        name = _SHORT.get(kind, kind)
        return name if tell is None else " ".join((name, *tell(self, of)))

    def _session_updated(self, of: Json) -> list[str]:
        info = of["info"]
        before, self._session = self._session, info
        changed = [key for key in _TOLD if before.get(key) != info.get(key)]
        if before["time"]["updated"] != info["time"]["updated"]:
            changed.append("touched")
        return changed

    def _message(self, of: Json) -> list[str]:
        info = of["info"]
        if info["role"] == "user":
            told = [self._named("U", info["id"]), *_keys_beyond(_USER, info)]
        else:
            told = [self._named("A", info["id"]), "of", self._named("U", info["parentID"])]
            # Answers show whether it is one of a compaction.
            told += _keys_beyond(_ASSISTANT, {key: info[key] for key in info if key != "summary"})
        if "finish" in info:
            told.append(f"finish={info['finish']}")
        if "error" in info:
            told.append(f"error={_failure(info['error'])}")
        if info["role"] == "user" and "summary" in info:
            told.append(f"diffs={_diffs(info['summary']['diffs'])}")
        return told

    def _part(self, of: Json) -> list[str]:
        part = of["part"]
        kind = part["type"]
        told = [self._name_of_part(part), kind]
        if kind == "tool":
            self._names[part["callID"]] = told[0]
            told.append(part["tool"])
        told += _keys_beyond(_PART | _PARTS[kind], part, whole=("state", "metadata"))
        return [*told, *self._inside(kind, part), *([] if "time" in of else ["-event.time"])]

    def _inside(self, kind: str, part: Json) -> list[str]:
        match kind:
            case "text" | "reasoning":
                return [f"text={self._text(part)}"]
            case "compaction":
                return [f"auto={part['auto']}"]
            case "step-start":
                return [self._snapshot(part)]
            case "step-finish":
                return [part["reason"], self._snapshot(part)]
            case "patch":
                files = [self._path(each) for each in part["files"]]
                return [self._named("S", part["hash"]), json.dumps(files)]
            case "file":
                return [part["mime"], part["filename"]]
        return self._state(part["state"])

    def _text(self, part: Json) -> str:
        if not part["text"]:
            return "empty"
        return "whole" if self._said.get(part["id"], part["text"]) == part["text"] else "other"

    def _state(self, state: Json) -> list[str]:
        status = state["status"]
        told = [status, *_keys_beyond(_STATES[status], state, whole=("input", "metadata"))]
        told.append(f"input={','.join(sorted(state['input']))}")
        metadata = state.get("metadata") or {}
        if metadata:
            told.append(f"metadata={','.join(sorted(metadata))}")
        told += [f"{key}={json.dumps(metadata[key])}" for key in _ACTED_ON if key in metadata]
        if "title" in state:
            told.append(f"title={state['title']}")
        if "error" in state:
            known = (each for each in _KNOWN_ERRORS if state["error"].startswith(each))
            told.append(f"error={next(known, 'told')}")
        return told

    def _delta(self, of: Json) -> list[str]:
        self._said[of["partID"]] = self._said.get(of["partID"], "") + of["delta"]
        return [self._name_of_part(of), of["field"]]

    def _asked(self, of: Json) -> list[str]:
        told = [self._named("#", of["id"]), "for", self._names.get(of["tool"]["callID"], "nobody")]
        if "questions" in of:
            return [*told, f"questions={len(of['questions'])}"]
        told += [of["permission"], json.dumps(of["patterns"]), f"always={json.dumps(of['always'])}"]
        return [*told, f"metadata={','.join(sorted(of['metadata']))}"]

    def _replied(self, of: Json) -> list[str]:
        said = [of["reply"]] if "reply" in of else []
        answers = [json.dumps(of["answers"])] if "answers" in of else []
        return [self._named("#", of["requestID"]), *said, *answers]

    def _file(self, of: Json) -> list[str]:
        return [self._path(of["file"]), *([of["event"]] if "event" in of else [])]

    def _snapshot(self, part: Json) -> str:
        return self._named("S", part["snapshot"]) if "snapshot" in part else "none"

    def _named(self, letter: str, id: str) -> str:
        if id not in self._names:
            known = sum(
                name.startswith(letter) and "." not in name for name in self._names.values()
            )
            self._names[id] = f"{letter}{known + 1}"
        return self._names[id]

    def _name_of_part(self, of: Json) -> str:
        id = of.get("partID") or of["id"]
        if id not in self._names:
            home = self._names.get(of["messageID"], "nowhere")
            known = {each for each in self._names.values() if each.startswith(f"{home}.")}
            self._names[id] = f"{home}.{len(known) + 1}"
        return self._names[id]

    def _path(self, path: str) -> str:
        return os.path.relpath(path, self._root)


def _failure(error: Json) -> str:
    """The name of a failure and what it tells; how it was put is told only of an abort."""
    if error["name"] == "MessageAbortedError":
        return f"{error['name']} {error['data']['message']}"
    return f"{error['name']} {','.join(sorted(error['data']))}"


def _keys_beyond(usual: set[str], value: Json, whole: tuple[str, ...] = ()) -> list[str]:
    found = set(_key_paths(value, whole))
    return [
        *(f"+{key}" for key in sorted(found - usual)),
        *(f"-{key}" for key in sorted(usual - found)),
    ]


def _diffs(diffs: Iterable[Json]) -> str:
    return ",".join(map(_diff, diffs)) or "0"


def _diff(of: Json) -> str:
    lines = f"+{of['additions']}", f"-{of['deletions']}"
    return ":".join((of["file"], of["status"], *lines, *_keys_beyond(_DIFF, of)))


def _key_paths(value: Json, whole: tuple[str, ...], before: str = "") -> Iterable[str]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and key in _NESTED and key not in whole:
            yield from _key_paths(inner, whole, f"{before}{key}.")
        else:
            yield f"{before}{key}"


_TELLERS: dict[str, Callable[[Retelling, Json], list[str]]] = {
    "session.updated": Retelling._session_updated,
    "message.updated": Retelling._message,
    "message.part.updated": Retelling._part,
    "message.part.delta": Retelling._delta,
    "message.part.removed": lambda self, of: [self._name_of_part(of)],
    "permission.asked": Retelling._asked,
    "permission.replied": Retelling._replied,
    "question.asked": Retelling._asked,
    "question.replied": Retelling._replied,
    "question.rejected": Retelling._replied,
    "session.status": lambda _, of: [
        of["status"]["type"],
        *(key for key in sorted(of["status"]) if key != "type"),
    ],
    "session.error": lambda _, of: [_failure(of["error"])],
    "session.diff": lambda _, of: ["of", _diffs(of["diff"])],
    "todo.updated": lambda _, of: [each["status"] for each in of["todos"]],
    "file.edited": Retelling._file,
    "file.watcher.updated": Retelling._file,
}
"""What a line tells of each kind of event; of others it has only the name."""
_SHORT = {"message.part.updated": "part", "message.part.delta": "delta"}
