"""The sums a session keeps, without a database."""

from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.sessions import CacheCount, SessionInfo, SessionTime, TokenCount
from kedge.store.queries.totals import Totals, with_totals

COSTS = st.lists(st.integers(0, 10_000_000).map(lambda n: n / 1_000_000), max_size=30)


def session() -> SessionInfo:
    """A session that has cost nothing yet."""
    cache = CacheCount(read=0, write=0)
    return SessionInfo(
        id="ses_1",
        slug="s",
        projectID="p",
        directory="/",
        cost=0,
        tokens=TokenCount(input=0, output=0, reasoning=0, cache=cache),
        title="t",
        version="1",
        time=SessionTime(created=0, updated=0),
    )


@given(costs=COSTS, data=st.data())
def test_what_is_taken_out_leaves_no_dust(costs: list[float], data: st.DataObject) -> None:
    """Costs added and taken away again, in any order, leave exactly nothing."""
    info = session()
    for cost in costs:
        info = with_totals(info, Totals(cost=cost, input=1, read=2))
    assert info.tokens.input == len(costs)
    for cost in data.draw(st.permutations(costs)):
        info = with_totals(info, Totals(cost=cost, input=1, read=2).negative())
    assert info == session()


def test_totals_add_up_field_by_field() -> None:
    """Each kind of token has its own sum."""
    total = Totals(1, 2, 3, 4, 5, 6) + Totals(10, 20, 30, 40, 50, 60)
    assert total == Totals(11, 22, 33, 44, 55, 66)
    assert total + total.negative() == Totals()
