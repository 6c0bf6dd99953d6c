"""What an agent works with in a directory: its configuration, models and agents."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kedge.agent.agents import Agents
from kedge.agent.commands import Commands
from kedge.config.values import Config
from kedge.domain.agents import AgentInfo
from kedge.domain.errors import InvalidInput
from kedge.domain.messages import MessageModel
from kedge.domain.sessions import SessionInfo
from kedge.engine.engine import Engine
from kedge.engine.prompts import NO_MODEL
from kedge.engine.session import Session
from kedge.engine.trust import Trusting
from kedge.model.catalog import Catalog

_MOST_CATALOGS = 64
"""Directories whose models are cached: clients may ask for those of any directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """One directory, as the agent sees it at a prompt."""

    config: Config
    catalog: Catalog
    agents: Agents
    commands: Commands
    is_git: bool
    last_model: MessageModel | None
    """The model of the session's last prompt."""

    @property
    def withheld(self) -> frozenset[str]:
        """The variables that are withheld from the agent's commands."""
        return self.catalog.key_variables() - {*self.config.keep_env}

    def chosen(
        self,
        agent: str | None,
        model: MessageModel | str | None,
        variant: str | None,
        *,
        is_asked: bool = True,
    ) -> "Choice":
        """The agent and model of a prompt: as requested, else the agent's own, else the session's
        last one, else the default.

        Raises `ModelNotFound` if the requested model, or the configured default, does not exist; a
        prompt that is not to be answered needs no model.
        """
        who = self.agents.get(agent)
        notice = None
        found = _named(model)
        if not is_asked:
            found = found or who.model or self.last_model or self._default()
        elif found is None:
            found, notice = self._usual(who)
        else:
            self._check(found)
        if variant is not None:
            found = msgspec.structs.replace(found, variant=variant)
        return Choice(agent=who.name, model=found, notice=notice)

    def _usual(self, agent: AgentInfo) -> tuple[MessageModel, str | None]:
        """The model if none was requested, and the notice about it."""
        wanted = agent.model or self.last_model
        if wanted is None:
            return self._check(self._default()), None
        found, why = self.available(wanted)
        if why is None or found == self.last_model:
            # The notice is given once, by the prompt that changes the session's model.
            return found, None
        whose = f"of the agent {agent.name}" if agent.model else "that this session had"
        return found, f"The model {whose} cannot be asked. {why}"

    def available(self, wanted: MessageModel) -> tuple[MessageModel, str | None]:
        """A model that was chosen before; or the default and the reason, if it is no longer
        available.

        Raises `ModelNotFound` if neither exists.
        """
        why = self.catalog.why_not(wanted.providerID, wanted.modelID)
        if why is None:
            return wanted, None
        if self.catalog.is_bare:
            # The offline model would run as commands what was meant for another model.
            return self._check(wanted), None
        default = self._check(self._default())
        if (default.providerID, default.modelID) == (wanted.providerID, wanted.modelID):
            # Its own error says what is missing.
            return wanted, None
        name = f"{default.providerID}/{default.modelID}"
        return (
            default,
            f"{why}{'' if why.endswith(('?', '.')) else '.'} The default answers: {name}.",
        )

    def _default(self) -> MessageModel:
        provider, id = self.catalog.default()
        return MessageModel(providerID=provider, modelID=id)

    def _check(self, model: MessageModel) -> MessageModel:
        _ = self.catalog.model(model.providerID, model.modelID)
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The agent and model that answer a prompt."""

    agent: str
    model: MessageModel
    notice: str | None
    """What the user should know about the choice."""


def _last_model(info: SessionInfo) -> MessageModel | None:
    if info.model is None:
        return None
    model = info.model
    last = MessageModel(providerID=model.providerID, modelID=model.id, variant=model.variant)
    return None if last == NO_MODEL else last


def _is_git(worktree: str) -> bool:
    return os.path.exists(os.path.join(worktree, ".git"))


def _named(model: object) -> MessageModel | None:
    if model is None or isinstance(model, MessageModel):
        return model
    provider, slash, id = model.partition("/") if isinstance(model, str) else ("", "", "")
    if not (provider and slash and id):
        raise InvalidInput(f"a model is named as provider/model, not {model!r}", field="model")
    return MessageModel(providerID=provider, modelID=id)


class SurroundingsBook:
    """The surroundings of every directory in use; read again at each prompt, so that a changed
    configuration takes effect at once."""

    def __init__(self, engine: Engine, environ: Mapping[str, str]) -> None:
        self._engine = engine
        self._environ = environ
        self._trusting = Trusting(engine.store, engine.clock)
        self._catalogs: dict[str, tuple[Config, Catalog]] = {}
        self._replaced: list[Catalog] = []
        """Their models may still be in use."""

    async def of(self, session: Session) -> Surroundings:
        """The current surroundings of a session."""
        directory, worktree = session.info.directory, session.worktree
        config = await self._trusting.config(directory, worktree, environ=self._environ)
        return self._made(directory, worktree, config, _last_model(session.info))

    async def at(self, directory: str, worktree: str) -> Surroundings:
        """The surroundings of a directory, as far as they can be read, even if it is gone: for
        display only."""
        config = await self._trusting.readable_config(directory, worktree, environ=self._environ)
        return self._made(directory, worktree, config, None)

    def _made(
        self, directory: str, worktree: str, config: Config, last_model: MessageModel | None
    ) -> Surroundings:
        return Surroundings(
            config=config,
            catalog=self._catalog(directory, config),
            agents=Agents(config, data=self._engine.data),
            commands=Commands(config),
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
        """Close the connections of replaced configurations."""
        replaced, self._replaced = self._replaced, []
        for catalog in replaced:
            await catalog.aclose()

    async def close(self) -> None:
        """Close the connections to providers."""
        self._replaced += [catalog for _, catalog in self._catalogs.values()]
        self._catalogs = {}
        await self.forget_replaced()
