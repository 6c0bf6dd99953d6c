"""kedge: the durable, rewindable session engine for coding agents."""

from kedge import errors, values
from kedge._version import __version__
from kedge.engine.engine import Engine
from kedge.engine.opening import open
from kedge.engine.session import Session
from kedge.engine.settings import Settings

__all__ = ["Engine", "Session", "Settings", "__version__", "errors", "open", "values"]
