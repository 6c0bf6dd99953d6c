"""The whole event log replayed, and the whole state of a store, to compare them in tests."""

from kedge.store import replay
from kedge.store.port import Store
from kedge.store.queries.event_log import events_after
from kedge.store.transaction import Script
from kedge.testing.state import State, read_state, state_of

__all__ = ["Replay", "State", "both", "replayed", "state_of"]


class Replay(replay.Replay):
    """The state that follows from reading the event log from its beginning."""

    def state(self) -> State:
        """The state after the events so far."""
        return State(self.sessions(), self.projects())


async def replayed(store: Store) -> State:
    """The state that follows from the whole event log of a store."""
    return await store.scan(_replayed)


async def both(store: Store) -> tuple[State, State]:
    """The replayed log and the state tables at the same moment, even while others write."""

    def script() -> Script[tuple[State, State]]:
        return (yield from _replayed()), (yield from read_state())

    return await store.scan(script)


def _replayed() -> Script[State]:
    whole, seq = Replay(), 0
    while events := (yield from events_after(seq)):
        whole.apply_all(events)
        seq = events[-1].seq
    return whole.state()
