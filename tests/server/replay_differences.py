"""What kedge's server does otherwise than OpenCode's, on purpose.

`docs/opencode.md` has the same names with their reasons; a test compares the two lists. Those of
`replaying_following` follow from differences of the agent, and have their names.
"""

import json
import re
from typing import Any

from tests.server.replay_reader import (
    SUBTASKS_COST,
    Difference,
    Lines,
    answered,
    asked,
    failed,
    in_answers,
    without,
)
from tests.server.replay_recordings import Act, Step

_UNKNOWN_ERROR = "UnknownError"
_TOUCHED = "session.updated touched"
_AFTER_UNKNOWN = ("question Which colour?|Red|Blue", "task say child answer")
"""The first prompts after one for a model that is not there."""
_IDLE = ["session.status idle", "session.idle"]
_DELTA = "delta A1.2 text"
_FINISHED = "message.updated A1 of U1 +finish +tokens.total finish=stop"
_ALLOWED_ORIGIN = "access-control-allow-origin"
_LATER = re.compile(r"/share$")
_PROJECTS = {"other": "{J3}", "nogit": "{J4}"}
_FORKS = {
    "{S11}": {"sessionID": "{S3}"},
    "{S12}": {"sessionID": "{S3}", "messageID": "{M6}"},
    "{S13}": {"sessionID": "{S12}"},
}
_OWN_WORDS = (
    *("Missing key", "Expected Part", "Expected an ", "Expected array", "Expected number"),
    *("Expected string", "Expected object", 'Expected "', "Expected {"),
)
"""How messages begin that kedge puts otherwise."""


def _is_error(step: Step, name: str) -> bool:
    answer = step.get("answer")
    return isinstance(answer, dict) and answer.get("name") == name


def _bad_requests(step: Step) -> Step:
    if not _is_error(step, _UNKNOWN_ERROR):
        return step
    ask, sent = asked(step), step.get("send")
    if re.search(r"/session/(bad|%20)", ask):
        return failed(step, 400, "BadRequest", kind="Params")
    if isinstance(sent, str):
        return failed(step, 400, "BadRequest", kind="Payload")
    return failed(step, 400, "BadRequest", kind="Query") if "?limit" in ask else step


def _unknown_names(step: Step) -> Step:
    sent = step.get("send")
    if step.get("status") == 204 and "nope" in json.dumps(sent):
        return _unknown_model(step)
    if not _is_error(step, _UNKNOWN_ERROR) or not isinstance(sent, dict) or "/bad/" in asked(step):
        return step
    if sent.get("agent") == "nope" or sent.get("command") == "nosuch":
        return failed(step, 400, "BadRequest")
    return _unknown_model(step)


def _unknown_model(step: Step) -> Step:
    model = step["send"]["model"]
    named = {key: model[key] for key in ("providerID", "modelID")}
    return failed(step, 400, "ProviderModelNotFoundError", **named, near=[])


def _no_turn_for_unknown_names(lines: Lines, act: Act) -> Lines:
    """What is not there is said before anything begins, and once; the session keeps its model."""
    error = "session.error UnknownError message"
    sent = json.dumps([step.get("send") for step in act.do])
    if any(text in sent for text in _AFTER_UNKNOWN):
        return [line.replace("session.updated model touched", _TOUCHED) for line in lines]
    if not any("nope" in json.dumps(step.get("send")) for step in act.do) or error not in lines:
        return lines
    return [error]


def _nothing_to_abort(lines: Lines, act: Act) -> Lines:
    return [] if asked(act.do[0]) == "POST /session/ses_nope/abort" else lines


def _errors_say_why(step: Step) -> Step:
    if step.get("answer") != {"_tag": "BadRequest"}:
        return step
    kind = "Query" if asked(step).startswith("GET ") else "Payload"
    return failed(step, 400, "BadRequest", kind=kind)


def _own_words(step: Step) -> Step:
    if not _is_error(step, "BadRequest"):
        return step
    data = step["answer"]["data"]
    if not data["message"].startswith(_OWN_WORDS):
        return step
    return failed(step, 400, "BadRequest", kind=data["kind"])


def _unknown_routes(step: Step) -> Step:
    if step.get("told", {}).get("content-type") != "text/html":
        return step
    match asked(step).split(" ")[0]:
        case "HEAD":
            return without(step, "told")
        case "GET":
            return failed(step, 404, "NotFoundError")
    return failed(step, 405, "MethodNotAllowed")


def _parents_exist(step: Step) -> Step:
    if step.get("send") == {"parentID": "ses_doesnotexist"}:
        return failed(step, 404, "NotFoundError")
    return _not_listed(step, "{S6}")


def _nothing_made_of_a_parent_that_is_not_there(lines: Lines, act: Act) -> Lines:
    return [] if act.do[0].get("send") == {"parentID": "ses_doesnotexist"} else lines


def _forked_messages_exist(step: Step) -> Step:
    if asked(step).endswith("/fork") and step.get("send") == {"messageID": "msg_unknown"}:
        return failed(step, 404, "NotFoundError")
    return _not_listed(step, "{S14}")


def _nothing_forked(lines: Lines, act: Act) -> Lines:
    return [] if act.do[0].get("send") == {"messageID": "msg_unknown"} else lines


def _not_listed(step: Step, session: str) -> Step:
    answer = step.get("answer")
    if not isinstance(answer, list):
        return step
    kept = [each for each in answer if not (isinstance(each, dict) and each.get("id") == session)]
    return {**step, "answer": kept}


def _come_later(step: Step) -> Step:
    return failed(step, 501, "NotImplemented") if _LATER.search(asked(step)) else step


def _search_is_literal(step: Step) -> Step:
    return answered(step, []) if asked(step).endswith("search=%25") else step


_CUT_LISTS = ("GET /session?limit=1", "GET /session?limit=2&start=0&roots=true&search=a")


def _pages_of_lists(step: Step) -> Step:
    if asked(step) not in _CUT_LISTS or step["status"] != 200:
        return step
    more = {"access-control-expose-headers": "X-Next-Cursor", "x-next-cursor": "{cursor}"}
    return {**step, "also": {**step.get("also", {}), **more}}


def _no_default_variant(found: dict[str, Any]) -> dict[str, Any]:
    return without(found, "variant") if found.get("variant") == "default" else found


def _left_archive(step: Step) -> Step:
    if step.get("send") != {"time": {"archived": None}}:
        return step
    answer = {**step["answer"], "time": without(step["answer"]["time"], "archived")}
    return {**step, "answer": answer}


def _left_archive_is_told(lines: Lines, act: Act) -> Lines:
    leaves = any(step.get("send") == {"time": {"archived": None}} for step in act.do)
    return [*lines, "session.updated archived"] if leaves else lines


def _origin_of_forks(found: dict[str, Any]) -> dict[str, Any]:
    origin = _FORKS.get(found["id"]) if "slug" in found else None
    return {**found, "fork": origin} if origin else found


def _cost_of_forks(step: Step) -> Step:
    if not asked(step).endswith("/fork") or step["status"] != 200:
        return step
    tokens = {**step["answer"]["tokens"], "input": "{n}", "output": "{n}"}
    return {**step, "answer": {**step["answer"], "cost": "{n}", "tokens": tokens}}


def _one_event_of_forks(lines: Lines, act: Act) -> Lines:
    return lines[:1] if asked(act.do[0]).endswith("/fork") else lines


def _todos_of_forks(step: Step) -> Step:
    first = {"content": "plan it", "status": "in_progress", "priority": "high"}
    is_meant = asked(step) == "GET /session/{S12}/todo"
    return answered(step, [first, "{rest}"]) if is_meant else step


def _with_receipt(step: Step) -> Step:
    if not asked(step).endswith(("/revert", "/unrevert")) or step["status"] != 200:
        return step
    receipt = {"files": ["{rest}"], "notes": ["{rest}"], "applied": "{any}", "strategy": "merge"}
    return {**step, "answer": {**step["answer"], "receipt": receipt}}


def _busy_while_reverting(lines: Lines, act: Act) -> Lines:
    if not asked(act.do[0]).endswith(("/revert", "/unrevert")) or not lines:
        return lines
    return ["session.status busy", *lines, "session.status idle"]


def _diff_told_live(lines: Lines, act: Act) -> Lines:
    if not asked(act.do[0]).endswith("/revert") or not lines:
        return lines
    return [*lines, "session.updated revert"]


def _diffs_end_with_a_line(found: dict[str, Any]) -> dict[str, Any]:
    diff = found.get("diff", "")
    if "snapshot" not in found or not diff or diff.endswith("{words}"):
        return found
    return {**found, "diff": f"{diff}\n"}


def _diff_of_a_session(step: Step) -> Step:
    words = dict.fromkeys(("file", "patch", "status"), "{words}")
    first = {**words, "additions": "{any}", "deletions": "{any}"}
    is_meant = asked(step) == "GET /session/{S3}/diff"
    return answered(step, [first, "{rest}"]) if is_meant else step


def _final_reverts(lines: Lines, _: Act) -> Lines:
    """The prompt whose turn was cut is told first, and the session is touched by the new one."""
    old = "session.updated cost revert touched"
    if old not in lines:
        return lines
    done = [line.replace(old, "session.updated cost revert") for line in lines]
    done.insert(done.index(_FINISHED) + 1, "session.updated summary")
    return ["message.updated U1", *(line.replace("U1", "U2") for line in done)]


def _cost_of_removed_messages(lines: Lines, act: Act) -> Lines:
    is_there = re.fullmatch(r"DELETE /session/\{S\d+\}/message/\{M\d+\}", asked(act.do[0]))
    return [*lines, "session.updated cost"] if is_there and lines else lines


def _deleted_sessions_stop(step: Step) -> Step:
    return answered(step, {}) if step.get("deleted") else step


def _stop_of_deleted_sessions(lines: Lines, act: Act) -> Lines:
    if not any(step.get("deleted") for step in act.do):
        return lines
    aborted = "MessageAbortedError Aborted"
    return [
        *lines[: lines.index(_DELTA) + 1],
        "part A1.2 text +time.end +time.start text=whole",
        f"session.error {aborted}",
        f"message.updated A1 of U1 +error +time.completed error={aborted}",
        *_IDLE,
        "session.deleted +agent +model",
    ]


def _folders_are_projects(found: dict[str, Any]) -> dict[str, Any]:
    folder = {"{S19}": "other", "{S22}": "nogit"}.get(found.get("id", ""))
    if folder is not None:
        return {**found, "projectID": _PROJECTS[folder], "path": ""}
    if found.get("id") == "global":
        return {**found, "id": _PROJECTS["other"], "worktree": "{other}"}
    if found.get("worktree") == "/":
        return {**found, "worktree": found["directory"]}
    if found.get("root") == "/":
        return {**found, "root": found["cwd"]}
    return found


def _snapshots_without_git(step: Step) -> Step:
    if "{S22}" not in asked(step):
        return step
    step = in_answers(_protected)(step)
    answer = step["answer"]
    if asked(step).startswith("GET "):
        prompt, call, last = answer
        part = {"id": "{part}", "sessionID": "{S22}", "messageID": "{M78}", "type": "patch"}
        patch = {**part, "hash": "{hash}", "files": ["{nogit}/n.txt"]}
        info = {**prompt["info"], "summary": {"diffs": "{any}"}}
        call = {**call, "parts": [*call["parts"], patch]}
        return {**step, "answer": [{**prompt, "info": info}, call, last]}
    if "revert" in answer:
        revert = {**answer["revert"], "snapshot": "{hash}", "diff": "{words}"}
        return {**step, "answer": {**answer, "revert": revert}}
    return step


def _protected(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("type") in ("step-start", "step-finish"):
        return {**found, "snapshot": "{hash}"}
    if found.get("title") == "{nogit path}/n.txt":
        return {**found, "title": "n.txt"}
    return found


def _foreign_origins(step: Step) -> Step:
    origin = step.get("headers", {}).get("origin", "")
    if origin not in ("https://evil.example", "null") and not origin.startswith("http://"):
        return step
    if asked(step).startswith("GET "):
        return failed(step, 403, "Refused")
    told = {name: step["told"][name] for name in step["told"] if name != _ALLOWED_ORIGIN}
    if step["headers"].get("access-control-request-headers"):
        told["vary"] = "Access-Control-Request-Headers, Origin"
    return {**step, "told": told}


def _hidden_keys(step: Step) -> Step:
    def hide(found: dict[str, Any]) -> dict[str, Any]:
        if found.get("apiKey") != "test-key":
            return found
        return without(found, "apiKey") if shows_models else {**found, "apiKey": "(hidden)"}

    shows_models = asked(step).endswith(("/provider", "/providers"))
    return in_answers(hide)(step)


def _offline_model(step: Step) -> Step:
    if not asked(step).endswith(("/provider", "/providers")):
        return step
    found = {**step["answer"], "default": {**step["answer"]["default"], "kedge": "offline"}}
    if "connected" in found:
        found["connected"] = [*found["connected"], "kedge"]
    listed = "all" if "all" in found else "providers"
    return {**step, "answer": {**found, listed: [*found[listed], "{rest}"]}}


def _own_folders(found: dict[str, Any]) -> dict[str, Any]:
    own = {"state": "{data}"} if found.get("state") == "{home}/.local/state/opencode" else {}
    return {**found, **own}


def _addresses_of_models(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "url": "{model}"} if found.get("url") == "" else found


def _empty_folders(found: dict[str, Any]) -> dict[str, Any]:
    """The folder of a reverted file is not listed any more."""
    output = found.get("output")
    if not isinstance(output, str) or not output.endswith("\nsub\n"):
        return found
    return {**found, "output": output.removesuffix("sub\n")}


def _words_of_tools(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("tool") != "bash" or found["state"]["status"] != "completed":
        return found
    state = found["state"]
    metadata = dict(state["metadata"])
    output = state["output"]
    if metadata.get("exit"):
        output += "{words}"
    if metadata["output"] == "(no output)":
        metadata["output"] = ""
    return {**found, "state": {**state, "output": output, "metadata": metadata}}


def _init_is_remembered(found: dict[str, Any]) -> dict[str, Any]:
    if found.get("worktree") != "{project}" or "time" not in found:
        return found
    return {**found, "time": {**found["time"], "initialized": "{time}"}}


def _words_of_summaries(found: dict[str, Any]) -> dict[str, Any]:
    """The traces' model repeats how the request begins."""
    text = str(found.get("text", ""))
    return {**found, "text": "{words}"} if "<conversation>" in text else found


def _compactions_touch(lines: Lines, act: Act) -> Lines:
    asked_for = [at for at, line in enumerate(lines) if re.match(r"part \S+ compaction", line)]
    for at in reversed(asked_for):
        lines = [*lines[: at + 1], "session.updated touched", *lines[at + 1 :]]
    return lines


def _sum_of_subtasks(found: dict[str, Any]) -> dict[str, Any]:
    """In the lists of later recordings, the session that had given the task."""
    is_caller = "slug" in found and found["id"] == "{S1}" and found["cost"] == "{n}"
    return {**found, "subtasks": {"cost": "{n}", "tokens": found["tokens"]}} if is_caller else found


def _cost_of_subtasks(lines: Lines, _: Act) -> Lines:
    ended = [at for at, line in enumerate(lines) if " tool task completed " in line]
    for at in reversed(ended):
        call = lines[at].replace("=model,", "=cost,model,").replace(",trunc", ",tokens,trunc")
        lines = [*lines[:at], SUBTASKS_COST, call, *lines[at + 1 :]]
    return lines


def _listed_by_prompt(step: Step) -> Step:
    """A session that waited for its subtask was prompted before it."""
    answer = step.get("answer")
    if not isinstance(answer, list):
        return step
    listed = [each["id"] if isinstance(each, dict) and "id" in each else "" for each in answer]
    if not {"{S1}", "{S15}"} <= set(listed):
        return step
    caller, subtask = listed.index("{S1}"), listed.index("{S15}")
    swapped = list(answer)
    swapped[caller], swapped[subtask] = answer[subtask], answer[caller]
    return {**step, "answer": swapped}


DIFFERENCES = (
    Difference("come later", _come_later),
    Difference("bad requests are 400", _bad_requests),
    Difference("unknown models and agents", _unknown_names, _no_turn_for_unknown_names),
    Difference("nothing to abort", events=_nothing_to_abort),
    Difference("errors say why", _errors_say_why),
    Difference("words of errors", _own_words),
    Difference("unknown routes", _unknown_routes),
    Difference("parents exist", _parents_exist, _nothing_made_of_a_parent_that_is_not_there),
    Difference("forked messages exist", _forked_messages_exist, _nothing_forked),
    Difference("search is literal", _search_is_literal),
    Difference("pages of lists", _pages_of_lists),
    Difference("no default variant", in_answers(_no_default_variant)),
    Difference("archives can be left", _left_archive, _left_archive_is_told),
    Difference("forks tell their origin", in_answers(_origin_of_forks)),
    Difference("forks are one event", events=_one_event_of_forks),
    Difference("cost of forks", _cost_of_forks),
    Difference("todos of forks", _todos_of_forks),
    Difference("receipts", _with_receipt),
    Difference("busy while reverting", events=_busy_while_reverting),
    Difference("diff of a revert told live", events=_diff_told_live),
    Difference("diffs end with a line", in_answers(_diffs_end_with_a_line)),
    Difference("diff of a session", _diff_of_a_session),
    Difference("final reverts", events=_final_reverts),
    Difference("cost of removed messages", events=_cost_of_removed_messages),
    Difference("deleted sessions stop", _deleted_sessions_stop, _stop_of_deleted_sessions),
    Difference("folders are projects", in_answers(_folders_are_projects)),
    Difference("snapshots without git", _snapshots_without_git),
    Difference("foreign origins", _foreign_origins),
    Difference("hidden keys", _hidden_keys),
    Difference("the offline model", _offline_model),
    Difference("own folders", in_answers(_own_folders)),
    Difference("addresses of models", in_answers(_addresses_of_models)),
    Difference("empty folders", in_answers(_empty_folders)),
    Difference("compactions touch the session", events=_compactions_touch),
    Difference("words of summaries", in_answers(_words_of_summaries)),
    Difference("words of tools", in_answers(_words_of_tools)),
    Difference("cost of subtasks", in_answers(_sum_of_subtasks), _cost_of_subtasks),
    Difference("listed by prompt", _listed_by_prompt),
    Difference("init is remembered", in_answers(_init_is_remembered)),
)
