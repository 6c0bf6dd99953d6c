"""What users should know about a server before they use it: which model answers, which settings are
ignored, how to attach. `kedge serve` prints it to standard error; `GET /` returns it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kedge.agent.context import Surroundings
from kedge.domain.errors import KedgeError
from kedge.engine.engine import Place
from kedge.server.requests import Backend
from kedge.server.settings import DEFAULT_USERNAME, ServerSettings

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
TO_CONFIGURE = (
    "Set a provider's key, such as ANTHROPIC_API_KEY or OPENAI_API_KEY, before `kedge serve`, or"
    " configure one in opencode.json: docs/models.md says how."
)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and what applies in one directory."""

    name: str = "kedge"
    version: str
    directory: str
    worktree: str
    database: str
    """Where sessions are stored; without the password."""
    model: str | None
    """The model for a prompt that names neither a model nor an agent; None if there is none."""
    canAnswer: bool
    """Whether that model has everything that a request needs; its provider was not asked."""
    problem: str | None = None
    """Why that model cannot be used, or differs from the configured one."""
    isOffline: bool
    """Whether the offline model answers, because no other is configured."""
    isProtected: bool
    """Whether a password is required."""
    notices: list[str]
    """Which parts of the configuration are ignored, and why."""
    attach: str
    """The command that attaches OpenCode's terminal UI to this server."""


async def overview_of(backend: Backend, place: Place, url: str) -> Overview:
    """The overview of a directory for a client that reaches the server at this address."""
    around = await backend.agent.surroundings_of(place.directory, place.worktree)
    answerer = _answerer(around)
    return Overview(
        version=backend.engine.version,
        directory=place.directory,
        worktree=place.worktree,
        database=backend.engine.store.location,
        model=answerer.model,
        canAnswer=answerer.why_not is None,
        problem=answerer.why_not or answerer.notice,
        isOffline=answerer.is_offline,
        isProtected=bool(backend.settings.password),
        notices=list(around.config.notices),
        attach=_attaching(url, backend.settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerer:
    """What would answer a prompt that names neither a model nor an agent."""

    model: str | None = None
    why_not: str | None = None
    """Why it would not answer."""
    notice: str | None = None
    """Why it is not the model that was configured."""
    is_offline: bool = False


def _answerer(around: Surroundings) -> Answerer:
    if around.config.problems:
        return Answerer(why_not=around.config.problems[0])
    catalog = around.catalog
    try:
        choice = around.chosen(None, None, None)
    except KedgeError as error:
        return Answerer(why_not=str(error))
    found = choice.model.providerID, choice.model.modelID
    return Answerer(
        model="/".join(found),
        why_not=catalog.why_not(*found),
        notice=choice.notice,
        is_offline=catalog.is_bare and found == catalog.default(),
    )


def _attaching(url: str, settings: ServerSettings) -> str:
    command = shlex.join(["opencode", "attach", url])
    if not settings.password:
        return command
    if settings.username != DEFAULT_USERNAME:
        command = f"OPENCODE_SERVER_USERNAME={shlex.quote(settings.username)} {command}"
    return f"{command} --password ..."


def local_url(url: str, hostname: str) -> str:
    """The URL of a server for programs on its own machine."""
    shown = f"[{hostname}]" if ":" in hostname else hostname
    return url.replace(f"//{shown}:", f"//{_EVERYWHERE.get(hostname, shown)}:", 1)


def lines(overview: Overview) -> Iterator[str]:
    """The overview as lines for a terminal; values in it may contain any characters."""
    if overview.isOffline:
        yield (
            f"no model is configured, so {overview.model} answers, which carries out plain"
            f" commands. {TO_CONFIGURE}"
        )
    elif not overview.canAnswer:
        by = "" if overview.model is None else f" by {overview.model}"
        yield f"prompts cannot be answered{by}: {overview.problem}"
    else:
        yield f"prompts are answered by {overview.model}"
        if overview.problem is not None:
            yield f"but {overview.problem}"
    yield from overview.notices
    yield f"sessions are kept in {overview.database}"
    yield f"attach with: {overview.attach}"
