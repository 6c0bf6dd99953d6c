"""Ids: their form, their order, the wrap, blocks and the check of foreign ones."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.clock import SystemClock
from kedge.domain.errors import InvalidId, InvariantBroken
from kedge.domain.ids import IdBlock, IdMaker, check_id
from kedge.testing.clock import ManualClock

# The moment of the last wrap, as PROTOCOL section 1 has it: 2026-08-14T11:19:55.136Z.
WRAP_MS = 1_786_706_395_136
WRAP = 1 << 48


def _tick(id: str) -> int:
    bits = int(id.split("_")[1][:12], 16)
    return WRAP - 1 - bits if id.startswith("ses_") else bits


def _maker(now: int = WRAP_MS + 1_000_000) -> tuple[IdMaker, ManualClock]:
    clock = ManualClock(now)
    return IdMaker(clock, lambda count: bytes(range(count))), clock


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        ("session", "ses"),
        ("message", "msg"),
        ("part", "prt"),
        ("permission", "per"),
        ("question", "que"),
        ("event", "evt"),
        ("request", "req"),
    ],
)
def test_form(kind: str, prefix: str) -> None:
    """An id is its prefix, 12 hex digits and 14 base62 characters."""
    id = getattr(IdMaker(), kind)()
    assert re.fullmatch(rf"{prefix}_[0-9a-f]{{12}}[0-9A-Za-z]{{14}}", id)
    assert check_id(prefix, id) == id


def test_bits_are_time_and_counter() -> None:
    """The hex digits are the milliseconds and a counter that starts at 1 in each of them."""
    maker, clock = _maker(WRAP_MS + 0x1234)
    assert maker.message() == "msg_000001234001" + "0123456789ABCD"
    assert maker.part() == "prt_000001234002" + "0123456789ABCD"
    clock.advance(1)
    assert maker.message() == "msg_000001235001" + "0123456789ABCD"


def test_session_bits_are_inverted() -> None:
    """A session's hex digits are the bitwise NOT of time and counter."""
    maker, _ = _maker(WRAP_MS + 0x1234)
    assert maker.session() == "ses_fffffedcbffe" + "0123456789ABCD"


def test_same_bits_as_the_real_server() -> None:
    """Sessions that the real server made have the bits that their creation time asks for."""
    recorded = Path(__file__).parent / "recorded" / "sessions.jsonl"
    first = json.loads(recorded.read_text("utf-8").splitlines()[0])
    maker, _ = _maker(first["time"]["created"])
    assert maker.session()[:13] == first["id"][:13]


def test_random_part_is_random() -> None:
    """Two makers at the same moment make different ids."""
    clock = ManualClock(WRAP_MS)
    assert IdMaker(clock).message() != IdMaker(clock).message()


@given(st.lists(st.integers(-5000, 5000)))
def test_ascending_whatever_the_clock_does(steps: list[int]) -> None:
    """Ids ascend, and those of sessions descend, also when the clock stands still or steps back."""
    maker, clock = _maker()
    messages, sessions = [maker.message()], [maker.session()]
    for step in steps:
        clock.advance(step)
        messages.append(maker.message())
        sessions.append(maker.session())
    assert all(a < b for a, b in pairwise(messages))
    assert all(a > b for a, b in pairwise(sessions))


def test_counter_overflow_carries() -> None:
    """More than 4095 ids in one millisecond run on into the next, without a repeat."""
    maker, clock = _maker()
    ids = [maker.message() for _ in range(5000)]
    clock.advance(1)
    ids.append(maker.message())
    assert all(a < b for a, b in pairwise(ids))
    assert [_tick(b) - _tick(a) for a, b in pairwise(ids)] == [1] * 5000


def test_wrap() -> None:
    """At the wrap the bits start again from zero: later ids sort first, and none repeats."""
    maker, clock = _maker(WRAP_MS - 1)
    before = [maker.message() for _ in range(4095)]
    clock.advance(1)
    after = [maker.message() for _ in range(3)]
    assert _tick(before[-1]) == WRAP - 1
    assert [_tick(id) for id in after] == [1, 2, 3]
    assert after[-1] < before[0]
    assert len({*before, *after}) == 4098


def test_carry_over_the_wrap() -> None:
    """A counter that overflows just before the wrap carries over it."""
    maker, _ = _maker(WRAP_MS - 1)
    ids = [maker.message() for _ in range(4097)]
    assert [_tick(id) for id in ids[-3:]] == [WRAP - 1, 0, 1]


class _SlowInt(int):
    """A number that takes long to compare, so that threads would overtake each other meanwhile."""

    def __mul__(self, other: int) -> "_SlowInt":
        return _SlowInt(int(self) * other)

    def __lt__(self, other: int) -> bool:
        for _ in range(1000):
            pass
        return int(self) < other


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """The interpreter changes threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("busy_threads")
def test_threads() -> None:
    """Threads that share a maker never get the same id, and each sees its own ascend."""
    maker, _ = _maker(_SlowInt(WRAP_MS + 1_000_000))
    start = threading.Barrier(8)
    made: list[list[str]] = [[] for _ in range(8)]

    def work(ids: list[str]) -> None:
        start.wait()
        ids.extend(maker.message() for _ in range(200))

    threads = [threading.Thread(target=work, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for ids in made for id in ids}) == 1600
    assert all(a < b for ids in made for a, b in pairwise(ids))


@given(st.lists(st.tuples(st.integers(-10, 10), st.integers(0, 9000)), max_size=20))
def test_blocks_are_apart(steps: list[tuple[int, int]]) -> None:
    """Blocks and single ids never overlap, and all of them ascend."""
    maker, clock = _maker()
    ticks = [_tick(maker.message())]
    for step, count in steps:
        clock.advance(step)
        block = maker.block(count)
        ticks += [_tick(block.id("msg", n)) for n in (0, count - 1) if count]
        ticks.append(_tick(maker.message()))
    assert all(a <= b for a, b in pairwise(ticks))
    assert len(set(ticks)) == 1 + len(steps) + sum(min(count, 2) for _, count in steps)


def test_block_ids_are_consecutive() -> None:
    """The n-th id of a block is its base and n in hex, and its suffix."""
    block = _maker(WRAP_MS)[0].block(3)
    assert block == IdBlock(base=1, suffix="0123456789ABCD")
    assert [block.id("prt", n) for n in range(3)] == [
        f"prt_00000000000{n}0123456789ABCD" for n in (1, 2, 3)
    ]


@given(st.integers(1, 20_000), st.integers(0, 4095))
def test_block_never_wraps_inside(count: int, used: int) -> None:
    """A block that does not fit before the wrap starts after it, at zero."""
    maker, _ = _maker(WRAP_MS - 1)
    maker.block(used)
    block = maker.block(count)
    fits = used + 1 + count <= 4096
    assert block.base == (WRAP - 4096 + used + 1 if fits else 0)
    ids = [block.id("msg", n) for n in range(count)]
    assert all(a < b for a, b in pairwise(ids))
    assert _tick(maker.message()) == (block.base + count) % WRAP


def test_block_bounds() -> None:
    """An id outside of what 48 bits hold, or a block of impossible size, is a bug."""
    block = IdBlock(base=WRAP - 2, suffix="0123456789ABCD")
    assert block.id("msg", 1) == "msg_ffffffffffff0123456789ABCD"
    for n in (-1, 2):
        with pytest.raises(InvariantBroken):
            block.id("msg", n)
    for count in (-1, WRAP + 1):
        with pytest.raises(InvariantBroken):
            IdMaker().block(count)


def test_system_clock() -> None:
    """The system's clock counts milliseconds since the epoch."""
    # Between the years 2020 and 2100: seconds or microseconds would be far outside.
    assert 1_577_836_800_000 < SystemClock().now() < 4_102_444_800_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [("bad", '"bad"'), ("", '""'), ("ses_1", '"ses_1"'), (5, "int"), (None, "NoneType")],
)
def test_check_refuses_other_kinds(value: object, shown: str) -> None:
    """What does not start with the prefix is refused in the words of the wire."""
    with pytest.raises(InvalidId) as caught:
        check_id("msg", value)
    assert str(caught.value) == f'Expected a string starting with "msg", got {shown}'


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=125))
def test_check_accepts_any_ending(ending: str) -> None:
    """After the prefix, clients may use any printable ASCII."""
    assert check_id("msg", "msg" + ending) == "msg" + ending


@given(st.text(max_size=5), st.characters(categories=["Zs", "Cc", "Lo", "Cs"]), st.text(max_size=5))
def test_check_refuses_odd_characters(before: str, odd: str, after: str) -> None:
    """Spaces, control characters and anything that is not ASCII are refused, with a message."""
    with pytest.raises(InvalidId, match=r'^Expected a string starting with "msg", got "msg'):
        check_id("msg", f"msg{before}{odd}{after}")


def test_check_refuses_long_ids() -> None:
    """An id has at most 128 characters, and a long one is not repeated in full."""
    assert check_id("msg", "msg" + "x" * 125)
    with pytest.raises(InvalidId, match="longer than 128 characters") as caught:
        check_id("msg", "msg" + "x" * 100_000)
    assert len(str(caught.value)) < 300
