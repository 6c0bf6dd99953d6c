"""Whether lines were made up to stall xdiff, which files them in a hash table anybody can foresee.

Lines that all belong in one bucket are compared each with each: 60,000 of them take 20 seconds, and
a file in somebody's repository may hold them. Nothing here is about ordinary repetition: equal
lines share one place in the table.
"""

import random
from collections import Counter
from math import comb

_SAMPLE = 100
_MOST_PAIRS = 100
"""Of the 4,950 pairs of a sample, so many may meet; 10 do by chance in the smallest table.

The share of pairs that meet is the share of the worst time that will be taken: here two per cent.
"""

_TABLE_BITS = range(9, 19)
"""xdiff's table has about as many buckets as it guesses lines; a guess can be misled too."""

# Nobody can foresee which lines are looked at.
_CHOICE = random.SystemRandom()


def would_stall(lines: set[bytes]) -> bool:
    """Whether so many of these lines would meet in one bucket that comparing them takes long."""
    picked = _CHOICE.sample(list(lines), min(_SAMPLE, len(lines)))
    hashes = [_hash(line) for line in picked]
    return any(_pairs_that_meet(hashes, bits) > _MOST_PAIRS for bits in _TABLE_BITS)


def _hash(line: bytes) -> int:
    value = 5381
    for byte in line:
        value = (value * 33 & 0xFFFF_FFFF_FFFF_FFFF) ^ byte
    return value


def _pairs_that_meet(hashes: list[int], bits: int) -> int:
    buckets = Counter((value + (value >> bits)) & ((1 << bits) - 1) for value in hashes)
    return sum(comb(held, 2) for held in buckets.values())
