"""Lines made up to stall a comparison are noticed, and ordinary ones never are."""

from itertools import islice, product

from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.diffs.collisions import would_stall
from kedge.snapshot.diffs.lines import are_comparable, count

# Each pair leaves the hash as the other does, whatever the pairs before it were.
FIRST = (b"!B", b'"!')
SECOND = (b'"@', b"#!")
REST = ((b'"a', b"#@"), (b"!c", b'"@'), (b'"a', b"#@"), (b'"@', b"#!"))


def colliding(lines: int) -> list[bytes]:
    """So many different lines with one and the same hash in xdiff."""
    return [b"".join(parts) for parts in islice(product(FIRST, SECOND, *REST * 4), lines)]


def test_lines_with_one_hash_are_not_compared() -> None:
    """A file of them is not shown as text, at a fraction of the time that it would take."""
    old = b"\n".join(colliding(60_000))
    assert not are_comparable(old, old + b"\nmore")
    assert count(old, old + b"\nmore") == (0, 0)


def test_some_of_them_among_ordinary_lines_are_noticed() -> None:
    """A third of the lines is enough to be noticed."""
    assert would_stall({*colliding(2000), *(b"%d" % number for number in range(4000))})


@given(st.binary(max_size=20), st.integers(1, 7), st.binary(max_size=20))
def test_ordinary_lines_are_compared(head: bytes, step: int, tail: bytes) -> None:
    """Lines that differ in a number only are far from it."""
    lines = [b"%b%d%b" % (head, number, tail) for number in range(0, 6000 * step, step)]
    assert not would_stall(set(lines))


def test_few_lines_are_always_compared() -> None:
    """As long as it cannot take long, lines may be whatever they are."""
    old = b"\n".join(colliding(2000))
    assert count(old, old + b"\nmore") == (2, 1)
