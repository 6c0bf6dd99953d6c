"""A configuration that can be shown: without keys, tokens and passwords."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"api.?key|^key$|[a-z]key$|token$|secret|passw|credential|authoriz|cookie|bearer", re.IGNORECASE
)
_NO_SECRET = re.compile(r"^setCacheKey$|^keybinds$")
_ALL_SECRET = {"headers", "environment", "oauth"}
_OPEN_OPTIONS = {"baseURL", "enterpriseUrl", "region", "project", "location", "apiVersion"}
"""Strings among a provider's options that are shown; any other may be a secret of its client."""


def redacted(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a merged configuration with `(hidden)` in the place of whatever may be a secret."""
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
        # The variables of a server have values; those of a provider are names.
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
    """An address without user, password and query; any other text as it is."""
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
