"""What an agent finds where it works: configuration, models and agents of a directory."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kedge.agent.agents import Agents
from kedge.config.values import Config
from kedge.domain.errors import InvalidInput
from kedge.domain.messages import MessageModel
from kedge.domain.sessions import SessionInfo
from kedge.engine.engine import Engine
from kedge.engine.prompts import NO_MODEL
from kedge.engine.session import Session
from kedge.engine.trusting import Trusting
from kedge.model.catalog import Catalog

_MOST_CATALOGS = 64
"""Directories whose models are remembered: anybody may ask for those of any directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """One directory, as the agent sees it at a prompt."""

    config: Config
    catalog: Catalog
    agents: Agents
    is_git: bool
    last_model: MessageModel | None
    """The one that the session was last prompted with."""

    def chosen(
        self, agent: str | None, model: MessageModel | str | None, variant: str | None
    ) -> dict[str, Any]:
        """The agent and model of a prompt: as asked for, else as the agent wants, else the one that
        the session had last, else the default."""
        who = self.agents.get(agent)
        found = _named(model) or who.model or self.last_model
        if found is None:
            provider, id = self.catalog.default()
            found = MessageModel(providerID=provider, modelID=id)
        if variant is not None:
            found = msgspec.structs.replace(found, variant=variant)
        return {"agent": who.name, "model": found}


def _last_model(info: SessionInfo) -> MessageModel | None:
    if info.model is None:
        return None
    model = info.model
    last = MessageModel(providerID=model.providerID, modelID=model.id, variant=model.variant)
    return None if last == NO_MODEL else last


def _is_git(worktree: str) -> bool:
    return os.path.exists(os.path.join(worktree, ".git"))


def _named(model: MessageModel | str | None) -> MessageModel | None:
    if not isinstance(model, str):
        return model
    provider, slash, id = model.partition("/")
    if not (provider and slash and id):
        raise InvalidInput(f"a model is named as provider/model, not {model!r}", field="model")
    return MessageModel(providerID=provider, modelID=id)


class SurroundingsBook:
    """The surroundings of every directory that was worked in; read anew at each prompt, so that a
    changed configuration counts at once."""

    def __init__(self, engine: Engine, environ: Mapping[str, str]) -> None:
        self._engine = engine
        self._environ = environ
        self._trusting = Trusting(engine.store, engine.clock)
        self._catalogs: dict[str, tuple[Config, Catalog]] = {}
        self._replaced: list[Catalog] = []
        """Their models may still be speaking."""

    async def of(self, session: Session) -> Surroundings:
        """The surroundings of a session, as they are now."""
        directory, worktree = session.info.directory, session.worktree
        config = await self._trusting.config(directory, worktree, environ=self._environ)
        return self._made(directory, worktree, config, _last_model(session.info))

    async def at(self, directory: str, worktree: str) -> Surroundings:
        """What can be read of the surroundings of a directory, which may be gone: to be shown."""
        config = await self._trusting.readable_config(directory, worktree, environ=self._environ)
        return self._made(directory, worktree, config, None)

    def _made(
        self, directory: str, worktree: str, config: Config, last_model: MessageModel | None
    ) -> Surroundings:
        return Surroundings(
            config=config,
            catalog=self._catalog(directory, config),
            agents=Agents(config, data=self._engine.data),
            is_git=_is_git(worktree),
            last_model=last_model,
        )

    def _catalog(self, directory: str, config: Config) -> Catalog:
        known = self._catalogs.get(directory)
        if known is not None and known[0] == config:
            return known[1]
        if known is not None:
            self._replaced.append(known[1])
        catalog = Catalog(config, self._environ)
        self._catalogs[directory] = (config, catalog)
        if len(self._catalogs) > _MOST_CATALOGS:
            _, oldest = self._catalogs.pop(next(iter(self._catalogs)))
            self._replaced.append(oldest)
        return catalog

    async def forget_replaced(self) -> None:
        """Let go of the connections that belong to configurations of before."""
        replaced, self._replaced = self._replaced, []
        for catalog in replaced:
            await catalog.aclose()

    async def close(self) -> None:
        """Let go of the connections to providers."""
        self._replaced += [catalog for _, catalog in self._catalogs.values()]
        self._catalogs = {}
        await self.forget_replaced()
