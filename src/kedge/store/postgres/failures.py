"""Translates PostgreSQL's errors to kedge's: what to do next, or that a retry is enough."""

import psycopg

from kedge.domain.errors import (
    InvalidInput,
    KedgeError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TooLarge,
)

_RACES = {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "23505",  # unique_violation: another transaction created it first; the next attempt finds it
}
_GONE = {
    "25P03",  # idle_in_transaction_session_timeout
    "57P01",  # admin_shutdown
    "57P02",  # crash_shutdown
    "57P03",  # cannot_connect_now
    "57P05",  # idle_session_timeout
}


class CommitLost(Exception):
    """The connection was lost after a commit was sent and before it was answered."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


def is_lost_race(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed when it is run again."""
    return error.sqlstate in _RACES


def is_lost_connection(error: psycopg.Error) -> bool:
    """Whether the server went away, and took the open transaction with it."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state in _GONE or state.startswith("08")


def outcome_unknown(location: str) -> StoreUnavailable:
    """For a lost commit whose outcome could not be determined in time."""
    return StoreUnavailable(
        f"the connection to {location} was lost during a commit; whether it was stored is not"
        " known, so look before you repeat it"
    )


def pool_exhausted(location: str) -> StoreBusy:
    """For a caller that got no connection although the server answers."""
    return StoreBusy(f"all connections to {location} have been busy for too long; try again later")


def translated(error: psycopg.Error, location: str) -> KedgeError:
    """The typed error for something that PostgreSQL refused to do."""
    match error.sqlstate:
        case "53100":
            return StoreFull(
                f"the disk of {location} is full; nothing was stored; make room and retry"
            )
        case "25006":
            return StoreReadOnly(
                f"{location} is read-only, maybe a standby; point KEDGE_DATABASE_URL at the primary"
            )
        case "42501":
            return StoreReadOnly(
                f"the user of {location} lacks a permission ({_reason(error)}); grant it, or use"
                " another user"
            )
        case "40001" | "40P01" | "55P03" | "57014":
            return StoreBusy(
                f"{location} did not get to it in time ({_reason(error)}); look for a long"
                " transaction, then retry"
            )
        case "54000":
            return TooLarge(f"the value is larger than PostgreSQL stores ({_reason(error)})")
        case "XX001" | "XX002":
            return StoreCorrupt(f"{location} is damaged ({_reason(error)}); restore a backup")
        case None if isinstance(error, psycopg.DataError):
            return InvalidInput(f"PostgreSQL cannot store this text: {_reason(error)}")
        case _:
            return StoreUnavailable(
                f"{location} cannot be used: {_reason(error)}; check that the server runs and that"
                " KEDGE_DATABASE_URL is right"
            )


def _reason(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())
