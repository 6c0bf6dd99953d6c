"""Decides whether a tool call is permitted: by the rules, or by asking the user."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import ToolFailure
from kedge.domain import wire
from kedge.domain.errors import QuestionRejected
from kedge.domain.permissions import PermissionRule, Rulebook, ToolCallRef, remembered
from kedge.domain.questions import QuestionInfo

_MOST_RULES = 20
_LONGEST_TEXT = 64 * 1024
"""Characters of each text in a permission request."""


class PermissionDenied(ToolFailure):
    """A rule denies the call; the model gets the rule, and goes on."""

    def __init__(self, permission: str, text: str, rules: Sequence[PermissionRule]) -> None:
        told = wire.encode(list(rules[-_MOST_RULES:]))
        super().__init__(
            f"This call is not permitted: a rule denies {permission} for {_shortened(text, 200)}."
            f" Do not try it in another way. The rules about {permission} are, the last that"
            f" matches decides: {told}"
        )


class PermissionCorrected(ToolFailure):
    """The user rejected the call with a message; the model gets it, and goes on."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "The user rejected permission to use this specific tool call, and says what to do"
            f" instead: {message}"
        )


class PermissionRejected(Exception):
    """The user rejected the call, and the turn ends."""

    def __init__(
        self, message: str = "The user rejected permission to use this specific tool call."
    ) -> None:
        super().__init__(message)


class QuestionDismissed(PermissionRejected):
    """The user dismissed a question, and the turn ends."""


class Permissions:
    """Decides about the calls of a turn.

    The rules are those of the agent, then those of the session at the moment of the call.
    Permissions that were allowed for good answer where the rules ask, never where they deny.
    """

    def __init__(
        self, rulebook: Rulebook, *, firm: Collection[str] = (), withheld: Collection[str] = ()
    ) -> None:
        self.withheld = withheld
        self._rulebook = rulebook
        self._firm = firm
        """Permissions that are asked for each time, even if they were allowed for good."""

    async def permission(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: Call,
    ) -> None:
        """Return when the whole call is permitted; raise when it is not."""
        own, allowed = await call.engine.asks.rules(call.session.id)
        rulebook = self._rulebook.plus(own)
        open = []
        is_firm = permission in self._firm
        for text in patterns or ["*"]:
            action = rulebook.decide(permission, text).action
            if action == "deny":
                raise PermissionDenied(permission, text, rulebook.about(permission))
            if action == "ask" and (is_firm or not remembered(permission, text, allowed)):
                open.append(text)
        if open:
            await self._ask(permission, open, () if is_firm else always, metadata, call)

    async def forbid(self, permission: str, texts: Iterable[str], *, call: Call) -> list[str]:
        """Raise if a rule denies one of the texts, without asking about the others. Returns those
        that a rule may deny, as their meaning is not certain."""
        own, _ = await call.engine.asks.rules(call.session.id)
        rulebook = self._rulebook.plus(own)
        doubtful = []
        for text in texts:
            if rulebook.decide(permission, text).action == "deny":
                raise PermissionDenied(permission, text, rulebook.about(permission))
            if rulebook.could_deny(permission, text):
                doubtful.append(text)
        return doubtful

    async def rule(self, permission: str, text: str, *, call: Call) -> PermissionRule:
        """The rule that decides about a text, whatever a person allowed for good."""
        own, _ = await call.engine.asks.rules(call.session.id)
        return self._rulebook.plus(own).decide(permission, text)

    async def unasked(self, permission: str, texts: Iterable[str], *, call: Call) -> set[str]:
        """The texts that need no answer of the user."""
        own, allowed = await call.engine.asks.rules(call.session.id)
        rulebook = self._rulebook.plus(own)
        actions = {text: rulebook.decide(permission, text).action for text in texts}
        return {
            text
            for text, action in actions.items()
            if action == "allow" or (action == "ask" and remembered(permission, text, allowed))
        }

    async def _ask(
        self,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: Call,
    ) -> None:
        answer = await call.engine.asks.permission(
            call.step.turn,
            permission,
            patterns,
            always=always,
            metadata={key: _shown(value) for key, value in metadata.items()},
            tool=_reference(call),
        )
        if answer.reply != "reject":
            return
        if answer.message is not None:
            raise PermissionCorrected(answer.message)
        raise PermissionRejected

    async def question(self, questions: Sequence[QuestionInfo], *, call: Call) -> list[list[str]]:
        """The user's answers: for each question the chosen labels."""
        try:
            return await call.engine.asks.question(call.step.turn, questions, tool=_reference(call))
        except QuestionRejected as error:
            raise QuestionDismissed(str(error)) from error


def _reference(call: Call) -> ToolCallRef:
    return ToolCallRef(messageID=call.message_id, callID=call.call_id)


def _shown(value: object) -> object:
    """The metadata of a request for the user, without what is too long to read."""
    match value:
        case str():
            return _shortened(value, _LONGEST_TEXT)
        case list():
            return [_shown(each) for each in value]
        case dict():
            return {key: _shown(each) for key, each in value.items()}
        case _:
            return value


def _shortened(text: str, limit: int) -> str:
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]}\n… and {left} more characters"
