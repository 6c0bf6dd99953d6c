"""How keys and values of a configuration are shown: whatever they hold, a terminal shows it."""

import json
import re

from kedge.config.jsonc import KeyPath

_PLAIN = re.compile(r"[A-Za-z0-9_@/$*~-]+(\.[A-Za-z0-9_@/$*~-]+)*")
_LONGEST = 200
_REPEATED = re.compile(r"(\\u[0-9a-f]{4}|\\.|.)\1{40,}", re.DOTALL)
"""One character many times, as JSON or as itself."""


def dotted(path: KeyPath, *, whole: bool = False) -> str:
    """A key as people write it: `provider.x.options.baseURL`; cut if it is long and not wanted
    whole."""
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
    """All of a value on one line, without anything that moves a cursor."""
    return folded(json.dumps(value))


def folded(text: str) -> str:
    """The text with nothing left out but repetitions, which could move the rest out of sight."""
    return _REPEATED.sub(lambda found: f"{found[1] * 3}… ({len(found[0]) - 3} more of it)", text)


def shortened(text: str) -> str:
    """The text, cut if it is long."""
    rest = len(text) - _LONGEST
    return text if rest <= 0 else f"{text[:_LONGEST]}… ({rest} more characters)"


def printable(text: str) -> str:
    """A text on one line, with whatever moves a cursor written as an escape."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )
