"""The cost of a session: the sum over its step-finish parts, kept in the session object."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import msgspec

from kedge.domain import wire
from kedge.domain.sessions import (
    NO_TOKENS,
    CacheCount,
    SessionInfo,
    SubtaskTotals,
    TokenCount,
)
from kedge.store.queries.sessions import lock_session, save_session, store_session
from kedge.store.transaction import Script, row, rows


class _Finish(msgspec.Struct):
    """The fields of a stored step-finish part that totals need."""

    cost: float
    tokens: TokenCount


@dataclass(frozen=True, slots=True)
class Totals:
    """Money and tokens of some steps."""

    cost: float = 0.0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    read: int = 0
    write: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        names = [each.name for each in fields(self)]
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def negative(self) -> "Totals":
        """Totals that subtract these when added."""
        return Totals(**{each.name: -getattr(self, each.name) for each in fields(self)})


def totals_of(cost: float, tokens: TokenCount) -> Totals:
    """The totals of one step."""
    cache = tokens.cache
    return Totals(cost, tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write)


def message_totals(session_id: str, first: int, last: int) -> Script[Totals]:
    """The totals of the steps in messages at these positions."""
    found = yield from rows("part_finishes", session_id=session_id, first=first, last=last)
    return sum_finishes(data for (data,) in found)


def sum_finishes(stored: Iterable[str]) -> Totals:
    """The sum over stored step-finish parts."""
    total = Totals()
    for data in stored:
        finish = wire.decode(data, _Finish)
        total += totals_of(finish.cost, finish.tokens)
    return total


def with_totals(info: SessionInfo, extra: Totals) -> SessionInfo:
    """The session with these totals added to its own."""
    if extra == Totals():
        return info
    cost, tokens = summed(info.cost, info.tokens, extra)
    return msgspec.structs.replace(info, cost=cost, tokens=tokens)


def summed(cost: float, tokens: TokenCount, extra: Totals) -> tuple[float, TokenCount]:
    """Cost and tokens with these totals added."""
    total = totals_of(cost, tokens) + extra
    sums = TokenCount(
        input=total.input,
        output=total.output,
        reasoning=total.reasoning,
        cache=CacheCount(read=total.read, write=total.write),
    )
    # Remove rounding errors of floats: subtracting what was added must give zero again.
    return round(total.cost, 12) + 0.0, sums


def add_totals(info: SessionInfo, extra: Totals) -> Script[None]:
    """Add to the totals of a session that the transaction has locked, and to those of the sessions
    that it works for."""
    after = with_totals(info, extra)
    if after == info:
        return
    yield from save_session(after)
    yield from add_subtask_totals(info, extra)


def add_subtask_totals(info: SessionInfo, extra: Totals) -> Script[None]:
    """Add what a session has used to the totals of those that it works for."""
    if extra == Totals():
        return
    above = info.parentID
    while above is not None and (yield from row("session_lock", id=above)) is not None:
        locked = yield from lock_session(above)
        charged = _with_subtask(locked.info, extra)
        if locked.time_deleted is None:
            yield from save_session(charged)
        else:
            yield from store_session(charged)
        above = locked.info.parentID


def _with_subtask(info: SessionInfo, extra: Totals) -> SessionInfo:
    """The session with these totals added to those of its subtasks."""
    before = info.subtasks or SubtaskTotals(cost=0, tokens=NO_TOKENS)
    cost, tokens = summed(before.cost, before.tokens, extra)
    return msgspec.structs.replace(info, subtasks=SubtaskTotals(cost=cost, tokens=tokens))
