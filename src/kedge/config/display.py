"""Makes a configuration safe to display: any characters in it are escaped, keys and passwords
hidden."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from kedge.config.jsonc import KeyPath

_PLAIN = re.compile(r"[A-Za-z0-9_@/$*~-]+(\.[A-Za-z0-9_@/$*~-]+)*")
_LONGEST = 200
_REPEATED = re.compile(r"(\\u[0-9a-f]{4}|\\.|.)\1{40,}", re.DOTALL)
"""One character repeated many times, plain or as a JSON escape."""


def dotted(path: KeyPath, *, whole: bool = False) -> str:
    """A key in the usual notation: `provider.x.options.baseURL`; cut if it is long, unless
    `whole`."""
    shown = ""
    for key in path:
        if isinstance(key, int):
            shown += f"[{key}]"
        else:
            shown += f".{_plain(key)}"
    shown = shown.removeprefix(".")
    return folded(shown) if whole else shortened(shown)


def _plain(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else json.dumps(key)


def shown(value: object) -> str:
    """All of a value on one line, without characters that move a cursor."""
    return folded(json.dumps(value))


def folded(text: str) -> str:
    """The text without long repetitions, which could push the rest out of sight; nothing else is
    left out."""
    return _REPEATED.sub(lambda found: f"{found[1] * 3}… ({len(found[0]) - 3} more of it)", text)


def shortened(text: str) -> str:
    """The text, cut if it is long."""
    rest = len(text) - _LONGEST
    return text if rest <= 0 else f"{text[:_LONGEST]}… ({rest} more characters)"


def printable(text: str) -> str:
    """A text on one line, with characters that move a cursor as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"api.?key|^key$|[a-z]key$|token$|secret|passw|credential|authoriz|cookie|bearer", re.IGNORECASE
)
_NO_SECRET = re.compile(r"^setCacheKey$|^keybinds$")
_ALL_SECRET = {"headers", "environment", "oauth"}
_OPEN_OPTIONS = {"baseURL", "enterpriseUrl", "region", "project", "location", "apiVersion"}
"""String options of a provider that are shown; any other may be a secret of its client."""


def redacted(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a merged configuration with `(hidden)` in place of anything that may be a
    secret."""
    made = {key: _shown(key, value) for key, value in raw.items()}
    for provider in _objects(made.get("provider")):
        if isinstance(options := provider.get("options"), dict):
            provider["options"] = {key: _option(key, value) for key, value in options.items()}
    for server in _objects(made.get("mcp")):
        if isinstance(command := server.get("command"), list):
            server["command"] = [*command[:1], *(HIDDEN for _ in command[1:])]
    return made


def _objects(value: object) -> list[dict[str, Any]]:
    found = value.values() if isinstance(value, dict) else ()
    return [each for each in found if isinstance(each, dict)]


def _option(key: str, value: object) -> object:
    return HIDDEN if isinstance(value, str) and key not in _OPEN_OPTIONS else value


def _shown(key: str, value: object) -> object:
    if key in _ALL_SECRET or (_SECRET.search(key) and not _NO_SECRET.search(key)):
        return _hidden(value)
    if isinstance(value, dict):
        # The variables of a server have values; those of a provider are only names.
        hide = key == "env"
        return {name: _hidden(item) if hide else _shown(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown("", item) for item in value]
    return _without_login(value) if isinstance(value, str) else value


def _hidden(value: object) -> object:
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return value if isinstance(value, bool | int | float | None) else HIDDEN


def _without_login(text: str) -> str:
    """A URL without user, password and query; any other text unchanged."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return HIDDEN
    login = f"{HIDDEN}@" if "@" in parts.netloc else ""
    query = HIDDEN if parts.query else ""
    return urlunsplit((parts.scheme, login + host, parts.path, query, ""))
