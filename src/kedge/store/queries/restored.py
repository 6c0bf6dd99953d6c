"""What is done to the rows of a backup before they are used again.

The processes that ran when it was made may still run, on this machine: they belong to the database
that the backup is of. So nothing of theirs is taken over: runs end, nothing is cleaned up in
worktrees, and prompts that waited there are not answered here too.
"""

from kedge.domain.ids import IdMaker
from kedge.domain.wire_errors import aborted
from kedge.store.queries.leases import clock, lease_owners, take_over
from kedge.store.queries.prompts import account_for, sessions_with_unanswered
from kedge.store.transaction import Script, ScriptMaker, row, run

_RESTORED = aborted("It ran when the backup was made that this session was restored from")
_FAR = 2**62


def is_in_use() -> Script[bool]:
    """Whether a process holds a session, as far as the database knows."""
    now = yield from clock()
    return (yield from row("checkup_live_leases", now=now)) is not None


def begin_anew(epoch: str) -> Script[None]:
    """Give the database an identity of its own, and forget the processes of the old one.

    Events that follow get numbers that mean others in the old database: with the old epoch, a
    client would go on behind them and miss them.
    """
    yield from run("meta_set", key="epoch", value=epoch)
    yield from run("checkup_forget_processes")
    yield from run("checkup_forget_samples")
    yield from run("checkup_forget_machine")
    yield from run("checkup_forget_rules")


def sessions_at_work() -> Script[list[str]]:
    """The sessions that ran when the backup was made, or had prompts that waited."""
    found: list[str] = []
    while page := (yield from lease_owners(found[-1] if found else "", 500)):
        found += [id for id, _, _ in page]
    return list(dict.fromkeys(found + (yield from sessions_with_unanswered())))


def end_work(session_id: str, ids: IdMaker, now: int, closing: ScriptMaker[None]) -> Script[None]:
    """End the run of a session, and answer the prompts that waited by saying that they were not
    run. `closing` records that what its calls did is not known."""
    yield from take_over(
        session_id,
        "restored",
        is_alive=_is_gone,
        now=now,
        error=_RESTORED,
        closing=closing,
    )
    yield from account_for(session_id, ids, oldest=_FAR, is_alive=_is_gone, now=now)


def _is_gone(owner: str, expired: bool) -> bool:
    return False
