"""What the routes work with."""

from dataclasses import dataclass, field

from kedge.agent import Agent
from kedge.engine.engine import Engine
from kedge.server.file_names import FileNames
from kedge.server.settings import ServerSettings
from kedge.server.streams import Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The engine and agent behind a server, and the streams of its clients."""

    engine: Engine
    agent: Agent
    settings: ServerSettings
    streams: Streams
    names: FileNames = field(default_factory=FileNames)
    """The names of files that were listed lately."""
