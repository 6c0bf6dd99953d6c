"""kedge: the durable, rewindable session engine for coding agents."""

from importlib import import_module
from typing import TYPE_CHECKING

from kedge._version import __version__

if TYPE_CHECKING:
    from kedge import errors, values
    from kedge.engine.engine import Engine
    from kedge.engine.opening import open
    from kedge.engine.session import Session
    from kedge.engine.settings import Settings
else:
    # Imported when they are used: `kedge serve` starts itself once more before it does anything.
    _MODULES = {
        "Engine": "kedge.engine.engine",
        "Session": "kedge.engine.session",
        "Settings": "kedge.engine.settings",
        "open": "kedge.engine.opening",
    }

    def __getattr__(name: str) -> object:
        if name in ("errors", "values"):
            return import_module(f"kedge.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module 'kedge' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_MODULES[name]), name)
        return found


__all__ = ["Engine", "Session", "Settings", "__version__", "errors", "open", "values"]
