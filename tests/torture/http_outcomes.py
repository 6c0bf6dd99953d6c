"""What became of a prompt, and of a session, by what a server or its events say of it; values
only, nobody is asked here."""

import json
from collections import Counter
from typing import Any

from kedge.testing.replay import Replay
from kedge.testing.state import IDLE, SessionState
from tests.torture.http_ledger import Prompt

Json = dict[str, Any]


def places_of(prompt: Prompt, messages: list[Json]) -> list[int]:
    """Where a prompt stands in its session: once, if all is well."""
    return [
        number
        for number, each in enumerate(messages)
        if each["info"]["role"] == "user"
        and prompt.text in [part.get("text") for part in each["parts"]]
    ]


def run_of(prompt: Prompt, messages: list[Json]) -> list[Json]:
    """The answers of the run that took up a prompt, until one of them ends it.

    It may have taken up several at once: then its answers name the newest of them. That another
    prompt was never run says nothing of this one.
    """
    own, *later = messages[places_of(prompt, messages)[0] :]
    prompts = {each["info"]["id"] for each in later if each["info"]["role"] == "user"}
    run: list[Json] = []
    for each in later:
        parent = each["info"].get("parentID")
        if parent == own["info"]["id"] or (parent in prompts and not _was_never_run(each["info"])):
            run.append(each)
            if _is_end(each["info"]):
                break
    return run


def _is_end(answer: Json) -> bool:
    return bool(answer.get("error")) or answer.get("finish") != "tool-calls"


def _was_never_run(answer: Json) -> bool:
    """Whether an answer says that no run took its prompt up."""
    said = json.dumps(answer.get("error"))
    return "Not run" in said or "before it was run" in said


def trouble_with(
    prompt: Prompt, messages: list[Json], lines: Counter[str]
) -> tuple[str, str] | None:
    """What is wrong: a prompt is answered to its end, or it is said that it was not."""
    places = places_of(prompt, messages)
    if len(places) != 1:
        is_lost = prompt.is_acknowledged and not prompt.may_be_gone
        return ("vanished prompt", f"{len(places)} times") if places or is_lost else None
    run = run_of(prompt, messages)
    said = [line for line in prompt.said if lines[line]]
    if not run:
        return "unanswered prompt", f"{said} in the log"
    if run[-1]["info"].get("error"):
        is_wrong = _was_never_run(run[-1]["info"]) and said
        return ("not run, but ran", f"{said}") if is_wrong else None
    if prompt.done not in [part.get("text") for each in run for part in each["parts"]]:
        return "silent end", f"{len(run)} answers, {run[-1]['info'].get('finish')}, {said}"
    return ("done without effect", f"{said}") if said != prompt.said else None


def left_open(messages: list[Json]) -> list[str]:
    """Messages and tool calls that nobody will ever finish."""
    answers = [each["info"] for each in messages if each["info"]["role"] == "assistant"]
    calls = [part for each in messages for part in each["parts"] if part["type"] == "tool"]
    return [each["id"] for each in answers if "completed" not in each["time"]] + [
        part["id"] for part in calls if part["state"]["status"] in ("pending", "running")
    ]


def differences(replay: Replay, told: dict[str, Json | None]) -> list[str]:
    """Where those who only heard the events know something else than those who ask."""
    known = replay.state().sessions
    found = {id: _difference(known.get(id), each) for id, each in told.items()}
    return [f"{id}: {difference}" for id, difference in found.items() if difference]


def _difference(known: SessionState | None, told: Json | None) -> str | None:
    if told is None:
        return None if known is None or known.hidden else "is gone"
    if known is None:
        return "was never told of"
    messages = [{"info": info, "parts": parts} for info, parts in known.messages]
    pairs = {
        "info": (_stored(known.info), _stored(told["info"])),
        "todos": (known.todos, told["todos"]),
        "status": (known.status, IDLE),
        "asks": (known.asks, {}),
        "messages": (_without_patches(messages), _without_patches(told["messages"])),
    }
    return next((f"{name}: {a} / {b}"[:600] for name, (a, b) in pairs.items() if a != b), None)


def _stored(info: Json) -> Json:
    """A session without the diff of a revert, which is made for those who just heard of it."""
    if "revert" not in info:
        return info
    return {**info, "revert": {key: info["revert"][key] for key in info["revert"] if key != "diff"}}


def _without_patches(messages: list[Json]) -> list[Json]:
    """Messages without patches, which an event lacks where making them takes too long."""
    return [{**each, "info": _without_patch(each["info"])} for each in messages]


def _without_patch(info: Json) -> Json:
    if "diffs" not in info.get("summary", {}):
        return info
    diffs = [
        {key: value for key, value in diff.items() if key != "patch"}
        for diff in info["summary"]["diffs"]
    ]
    return {**info, "summary": {**info["summary"], "diffs": diffs}}
