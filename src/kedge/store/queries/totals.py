"""The cost of a session: the sum over its step-finish parts, kept in the session object."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import msgspec

from kedge.domain import wire
from kedge.domain.sessions import CacheCount, SessionInfo, TokenCount
from kedge.store.queries.sessions import save_session
from kedge.store.transaction import Script, rows


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
    total = totals_of(info.cost, info.tokens) + extra
    tokens = TokenCount(
        input=total.input,
        output=total.output,
        reasoning=total.reasoning,
        cache=CacheCount(read=total.read, write=total.write),
    )
    # Remove rounding errors of floats: subtracting what was added must give zero again.
    return msgspec.structs.replace(info, cost=round(total.cost, 12) + 0.0, tokens=tokens)


def add_totals(info: SessionInfo, extra: Totals) -> Script[None]:
    """Add to the totals of a session that the transaction has locked."""
    after = with_totals(info, extra)
    if after != info:
        yield from save_session(after)
