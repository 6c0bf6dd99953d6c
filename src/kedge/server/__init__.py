"""The HTTP server, which speaks OpenCode's session protocol."""

from kedge.server.lifecycle import Running, serving
from kedge.server.settings import ServerSettings

__all__ = ["Running", "ServerSettings", "serving"]
