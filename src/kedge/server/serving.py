"""A server from its start to its end: what it is made of, in which order it comes and goes."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from kedge.agent import Agent
from kedge.domain.errors import KedgeError
from kedge.engine.opening import open as open_engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from kedge.server.app import Application, Door
from kedge.server.backend import Backend
from kedge.server.commands import adopting
from kedge.server.gate import Gate
from kedge.server.http import http_server, listening_socket, url_of
from kedge.server.request_log import RequestLog
from kedge.server.routes import ALL
from kedge.server.settings import ServerSettings
from kedge.server.streams import Streams, streaming

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A server at work."""

    url: str
    backend: Backend


@asynccontextmanager
async def serving(
    directory: str | os.PathLike[str] = ".",
    *,
    settings: ServerSettings | None = None,
    engine_settings: Settings | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """A server on a directory, for as long as the block lasts.

    It listens before the database is open; requests that arrive meanwhile wait.
    """
    chosen = settings or ServerSettings()
    listener = listening_socket(chosen)
    url = url_of(chosen.hostname, listener)
    door = Door()
    async with AsyncExitStack() as parts:
        # The last is ended first.
        gate = Gate(door, chosen)
        app = RequestLog(gate) if chosen.log_requests else gate
        stop_accepting = await parts.enter_async_context(http_server(app, listener))
        parts.push_async_callback(door.close)
        engine = await parts.enter_async_context(
            open_engine(
                directory,
                data_dir=data_dir,
                database=database,
                settings=engine_settings,
                recover=False,
            )
        )
        if not chosen.commands_may_grant:
            await parts.enter_async_context(adopting(engine.processes))
        agent = await parts.enter_async_context(Agent(engine, environ=environ))
        streams = await parts.enter_async_context(streaming(engine, chosen))
        backend = Backend(engine=engine, agent=agent, settings=chosen, streams=streams)
        # Those who wait for an answer must not be kept waiting, nor keep the engine from closing.
        parts.push_async_callback(door.close)
        parts.push_async_callback(_interrupt, agent, streams)
        parts.callback(stop_accepting)
        engine.recovery.answer_left_with(partial(_answer_left, backend))
        # Listeners are told of what is found now, so it is before they come.
        await _trying(engine.recovery.look)
        recovering = asyncio.create_task(_trying(engine.recovery.recover))
        parts.callback(recovering.cancel)
        door.open(Application(ALL, backend))
        yield Running(url, backend)


async def _trying(recovery: Callable[[], Awaitable[None]]) -> None:
    try:
        await recovery()
    except KedgeError as error:
        # The engine tries again every few seconds.
        _log.warning("what killed processes left is not in order yet: %s", error)


async def _answer_left(backend: Backend, session: Session) -> None:
    """Answer prompts that were left, if their session is for clients of this server."""
    if backend.settings.allows(session.info.directory):
        await backend.agent.answer_left(session)


async def _interrupt(agent: Agent, streams: Streams) -> None:
    """End what runs while somebody listens: who comes back later may not ask what became of it."""
    await agent.close()
    await streams.flushed()
