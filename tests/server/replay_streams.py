"""What the agent does otherwise than OpenCode's, seen in the answers of the server.

The names are those of `tests/agent/trace_differences.py`, where the events are compared.
"""

import json
import re
from typing import Any

from tests.server.replay_reader import (
    Difference,
    Lines,
    answered,
    asked,
    in_answers,
    without,
)
from tests.server.replay_recordings import Act, Step

_CHANGED_FILES = ("{S3}", "{S17}", "{S22}")
"""The sessions that changed files."""
_NOTHING = {"additions": 0, "deletions": 0, "files": 0}


def _true_summaries(step: Step) -> Step:
    step = in_answers(_true_summary)(step)
    answer = step.get("answer")
    if not isinstance(answer, list) or not all("parts" in each for each in answer):
        return step
    patched = {
        message["info"]["parentID"]
        for message in answer
        if any(part["type"] == "patch" for part in message["parts"])
    }
    return {**step, "answer": [_as_patched(message, patched) for message in answer]}


def _as_patched(message: dict[str, Any], patched: set[str]) -> dict[str, Any]:
    """The changes that a revert took out are no longer those of a prompt."""
    info = message["info"]
    if info["role"] != "user" or "summary" not in info or info["id"] in patched:
        return message
    return {**message, "info": without(info, "summary")}


def _true_summary(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("role") == "user" and found.get("summary") == {"diffs": []}:
        return without(found, "summary")
    if "slug" not in found or "summary" not in found or "snapshot" in found.get("revert", {}):
        return found
    if found["id"] in _CHANGED_FILES:
        return {**found, "summary": {"additions": "{n}", "deletions": "{any}", "files": "{n}"}}
    return without(found, "summary") if found["summary"] == _NOTHING else found


def _summaries_as_counted(lines: Lines, act: Act) -> Lines:
    """A revert changes what was counted; files that were counted before change no number."""
    lines = [line.replace("updated revert", "updated summary revert") for line in lines]
    done: Lines = []
    for line in lines:
        patch = re.match(r"part \S+ patch \S+ (.*)", done[-1]) if done else None
        counted = patch is not None and set(json.loads(patch[1])) <= set(act.counted)
        if not (line == "session.updated summary" and counted):
            done.append(line)
    return done


def _thoughts_with_metadata(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "metadata": "{any}"} if found.get("type") == "reasoning" else found


def _step_start_first(step: Step) -> Step:
    answer = step.get("answer")
    if not isinstance(answer, dict) or answer.get("parts") != []:
        return step
    return {**step, "answer": {**answer, "parts": [_step("step-start", answer["info"])]}}


def _step(kind: str, info: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    home = {"id": "{part}", "sessionID": info["sessionID"], "messageID": info["id"]}
    return {**home, "type": kind, "snapshot": "{hash}", **more}


def _own_command_is_a_step(step: Step) -> Step:
    if not asked(step).endswith("/shell") or step["status"] != 200:
        return step
    info, (call,) = step["answer"]["info"], step["answer"]["parts"]
    end = _step("step-finish", info, reason="stop", cost=0, tokens=info["tokens"])
    parts = [_step("step-start", info), call, end]
    return {**step, "answer": {"info": {**info, "finish": "stop"}, "parts": parts}}


def _own_command_tells_its_exit(step: Step) -> Step:
    def tell(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "exit": 0} if set(found) == {"output"} else found

    return in_answers(tell)(step) if asked(step).endswith("/shell") else step


def _aborted_command_is_an_error(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("status") != "completed" or found["metadata"].get("exit", 0) is not None:
        return found
    kept = without(found, "output", "title")
    metadata = {"output": "", "interrupted": True}
    return {**kept, "status": "error", "error": "Tool execution aborted", "metadata": metadata}


def _asks_withdrawn(step: Step) -> Step:
    return answered(step, []) if step.get("aborted") else step


FOLLOWING = (
    Difference("true summaries", _true_summaries, _summaries_as_counted),
    Difference("thoughts with metadata", in_answers(_thoughts_with_metadata)),
    Difference("step-start first", _step_start_first),
    Difference("own command tells its exit", _own_command_tells_its_exit),
    Difference("own command is a step", _own_command_is_a_step),
    Difference("aborted command is an error", in_answers(_aborted_command_is_an_error)),
    Difference("asks withdrawn", _asks_withdrawn),
)
