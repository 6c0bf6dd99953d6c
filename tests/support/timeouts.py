"""How long tests wait for what must come, and how to make settings as patient."""

from typing import Any

PATIENCE = 300.0
"""Seconds. Nothing but a hang takes that long, however loaded the machine is."""


def defaults_of(kind: type) -> dict[str, Any]:
    """The default values of a class of settings; to be changed by `monkeypatch.setitem`."""
    defaults: dict[str, Any] = vars(kind)["__init__"].__kwdefaults__
    return defaults
