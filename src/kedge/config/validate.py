"""Checks each value of a configuration file, so that an error names its key.

Unknown keys are not checked. An unknown word is left out where newer versions of OpenCode may have
new ones, and is an error where it decides what is permitted.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from kedge.config.jsonc import KeyPath

Check: TypeAlias = Callable[[Any, KeyPath, list[KeyPath]], None]

MOST_RULES = 500
"""How many permission rules a file may have: every decision goes through all of them."""
LONGEST_PATTERN = 500
_COLOR = re.compile(r"#[0-9a-fA-F]{6}|primary|secondary|accent|success|warning|error|info")


class Mistake(Exception):
    """A value is not valid for its key."""

    def __init__(self, path: KeyPath, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


def check(value: object) -> list[KeyPath]:
    """Raise the first error; returns the keys with words that kedge does not know."""
    odd: list[KeyPath] = []
    _FILE(value, (), odd)
    for n, path in enumerate(_rules(value), 1):
        if n > MOST_RULES:
            raise Mistake(path, f"there are more than {MOST_RULES} rules in the file; remove some")
        if any(isinstance(key, str) and len(key) > LONGEST_PATTERN for key in path):
            raise Mistake(path, f"the pattern is longer than {LONGEST_PATTERN} characters")
    return odd


def check_models(value: Mapping[str, Any]) -> None:
    """Raise if a model is named without its provider. Call it after `{env:}` and `{file:}` were
    replaced."""
    # A variable that is not set selects no model.
    named: list[tuple[KeyPath, str]] = [
        ((key,), value[key]) for key in ("model", "small_model") if value.get(key)
    ]
    commands = ((("command", name), each) for name, each in value.get("command", {}).items())
    for path, agent in (*_agents(value), *commands):
        if "model" in agent:
            named.append(((*path, "model"), agent["model"]))
    for path, text in named:
        provider, _, model = text.partition("/")
        if not (provider and model):
            raise Mistake(path, f'expected "provider/model", found {json.dumps(text[:100])}')


def _agents(value: Mapping[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    for key in ("agent", "mode"):
        for name, agent in value.get(key, {}).items():
            yield (key, name), agent


def _rules(value: Any) -> Iterator[KeyPath]:  # noqa: ANN401 - any JSON
    """The key of every permission rule of a file that has a valid shape."""
    for path, holder in (((), value), *_agents(value)):
        given = holder.get("permission", {})
        for name, action in given.items() if isinstance(given, dict) else ():
            inner = action if isinstance(action, dict) else {None: action}
            for pattern in inner:
                last = () if pattern is None else (pattern,)
                yield (*path, "permission", name, *last)
        for name in holder.get("tools", {}):
            yield (*path, "tools", name)


def _text(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if not isinstance(value, str):
        raise Mistake(path, "expected a string")


def _flag(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if not isinstance(value, bool):
        raise Mistake(path, "expected true or false")


def _number(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise Mistake(path, "expected a number that is not negative")


def _count(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise Mistake(path, "expected a whole number that is not negative")


def _some(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    _count(value, path, odd)
    if value == 0:
        raise Mistake(path, "expected a whole number from 1 on")


def _share(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise Mistake(path, "expected a share above 0 and up to 1, for example 0.8")


def _time(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    if value is not False:
        try:
            _some(value, path, odd)
        except Mistake:
            raise Mistake(path, "expected a number of milliseconds, or false") from None


def _anything(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    pass


def _word(*known: str) -> Check:
    def look(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
        _text(value, path, odd)
        if value not in known:
            odd.append(path)

    return look


def _color(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    _text(value, path, odd)
    if not _COLOR.fullmatch(str(value)):
        odd.append(path)


def _list(each: Check) -> Check:
    def look(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
        if not isinstance(value, list):
            raise Mistake(path, "expected a list")
        for n, item in enumerate(value):
            each(item, (*path, n), odd)

    return look


def _table(each: Check) -> Check:
    """An object whose keys are names chosen by the user."""

    def look(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
        if not isinstance(value, dict):
            raise Mistake(path, "expected an object")
        for key, item in value.items():
            each(item, (*path, key), odd)

    return look


def _record(fields: Mapping[str, Check]) -> Check:
    """An object with fixed keys."""

    def look(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
        if not isinstance(value, dict):
            raise Mistake(path, "expected an object")
        for key, item in value.items():
            fields.get(key, _anything)(item, (*path, key), odd)

    return look


def _permission(value: object, path: KeyPath, odd: list[KeyPath], levels: int = 2) -> None:
    if isinstance(value, dict) and levels:
        for key, item in value.items():
            _permission(item, (*path, key), odd, levels - 1)
    elif value not in ("allow", "ask", "deny"):
        shape = ", or an object" if levels else ""
        raise Mistake(path, f'expected "allow", "ask" or "deny"{shape}')


_TEXTS = _list(_text)
_TEXT_TABLE = _table(_text)
_MODALITIES = _list(_word("text", "audio", "image", "video", "pdf"))
_MODEL = _record(
    {
        **dict.fromkeys(("id", "name", "family", "release_date"), _text),
        **dict.fromkeys(("reasoning", "attachment", "tool_call", "temperature"), _flag),
        "status": _word("alpha", "beta", "deprecated", "active"),
        "limit": _record(dict.fromkeys(("context", "input", "output"), _count)),
        "cost": _record(
            dict.fromkeys(("input", "output", "cache_read", "cache_write"), _number),
        ),
        "modalities": _record({"input": _MODALITIES, "output": _MODALITIES}),
        "provider": _record({"npm": _text, "api": _text}),
        "options": _table(_anything),
        "headers": _TEXT_TABLE,
        "variants": _table(_table(_anything)),
    }
)
_PROVIDER = _record(
    {
        **dict.fromkeys(("id", "npm", "api", "name"), _text),
        **dict.fromkeys(("env", "whitelist", "blacklist"), _TEXTS),
        "options": _record(
            {"baseURL": _text, "apiKey": _text, "headers": _TEXT_TABLE, "timeout": _time}
        ),
        "models": _table(_MODEL),
    }
)
_AGENT = _record(
    {
        **dict.fromkeys(("model", "variant", "prompt", "description"), _text),
        **dict.fromkeys(("temperature", "top_p"), _number),
        **dict.fromkeys(("steps", "maxSteps"), _some),
        **dict.fromkeys(("disable", "hidden"), _flag),
        "mode": _word("subagent", "primary", "all"),
        "color": _color,
        "permission": _permission,
        "tools": _table(_flag),
        "options": _table(_anything),
    }
)


def _command(value: object, path: KeyPath, odd: list[KeyPath]) -> None:
    _COMMAND(value, path, odd)
    if isinstance(value, dict) and not str(value.get("template", "")).strip():
        raise Mistake(path, "expected a `template`, the text of the prompt")


_COMMAND = _record(
    {
        **dict.fromkeys(("template", "description", "agent", "model", "variant"), _text),
        "subtask": _flag,
    }
)
_FILE = _record(
    {
        **dict.fromkeys(("model", "small_model", "default_agent", "username", "shell"), _text),
        **dict.fromkeys(("enabled_providers", "disabled_providers", "instructions"), _TEXTS),
        "keep_env": _TEXTS,
        **dict.fromkeys(("snapshot", "autoshare"), _flag),
        "subagent_depth": _count,
        "subagent_timeout": _time,
        "experimental": _record({"primary_tools": _TEXTS}),
        **dict.fromkeys(("agent", "mode"), _table(_AGENT)),
        "command": _table(_command),
        "skills": _record(dict.fromkeys(("paths", "urls"), _TEXTS)),
        "provider": _table(_PROVIDER),
        "permission": _permission,
        "tools": _table(_flag),
        "tool_output": _record(dict.fromkeys(("max_bytes", "max_lines"), _some)),
        "compaction": _record(
            {
                **dict.fromkeys(("auto", "prune"), _flag),
                **dict.fromkeys(("tail_turns", "preserve_recent_tokens", "reserved"), _count),
                "threshold": _share,
            }
        ),
        "share": _word("manual", "auto", "disabled"),
    }
)
