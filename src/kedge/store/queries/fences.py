"""Fencing: a paused owner of a session must not write after another process took the session
over."""

from dataclasses import dataclass

from kedge.domain.errors import LeaseLost
from kedge.store.transaction import Script, row


@dataclass(frozen=True, slots=True)
class Fence:
    """The lease under which an owner writes."""

    session_id: str
    generation: int

    def check(self, generation: int | None) -> None:
        """Raise unless `generation` is the one this owner was given."""
        if generation != self.generation:
            raise LeaseLost(self.session_id)


def pass_fence(fence: Fence | None) -> Script[None]:
    """Refuse an owner that lost its lease; without a fence there is nothing to check.

    Comes right after the session is locked: all transactions lock the session first, the lease
    second.
    """
    if fence is not None:
        found = yield from row("lease_lock", session_id=fence.session_id)
        held = found is not None and found[1] is not None
        fence.check(found[0] if found and held else None)
