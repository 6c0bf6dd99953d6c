"""Cursors come back as they went out, and nothing else is taken for one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.cursors import EventCursor, PageCursor
from kedge.domain.errors import InvalidCursor

INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=128)
EPOCH = "0123456789abcdef"


def encoded(text: str) -> str:
    """What a forger would send for a JSON text."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(at=INTEGERS, id=IDS)
def test_a_page_cursor_comes_back(at: int, id: str) -> None:
    """Any number and any id of the longest allowed length survive the way through a client."""
    cursor = PageCursor(at, id)
    assert PageCursor.parse(cursor.text("l"), "l") == cursor


@given(seq=st.integers(0, 2**63 - 1))
def test_an_event_cursor_comes_back(seq: int) -> None:
    """Any sequence number survives the way through a client."""
    cursor = EventCursor(EPOCH, seq)
    assert EventCursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "forged",
    [
        None,
        7,
        b"bytes",
        "",
        "!",
        "a",
        "é",
        "x" * 600,
        encoded("null"),
        encoded("[]"),
        encoded("{}"),
        encoded('{"at":1}'),
        encoded('{"id":"a"}'),
        encoded('{"at":"1","id":"a"}'),
        encoded('{"at":1.5,"id":"a"}'),
        encoded('{"at":true,"id":"a"}'),
        encoded('{"at":9223372036854775808,"id":"a"}'),
        encoded('{"at":1,"id":null}'),
        encoded('{"at":1,"id":"a\\u0000"}'),
        encoded('{"at":1,"id":"a"'),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_a_forged_page_cursor_is_refused(forged: object) -> None:
    """Whatever it is, the answer is one typed, short error."""
    with pytest.raises(InvalidCursor, match="not a page cursor") as caught:
        PageCursor.parse(forged, "l")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "forged",
    [
        None,
        7,
        "",
        EPOCH,
        f"{EPOCH}-",
        f"{EPOCH}--1",
        f"{EPOCH}-01",
        f"{EPOCH}-1 ",
        f"{EPOCH}-1\n",
        f"{EPOCH}-٣",
        f"{EPOCH.upper()}-1",
        f"{EPOCH}0-1",
        f"{EPOCH}-9223372036854775808",
        f"{EPOCH}-{'9' * 5000}",
    ],
)
def test_a_forged_event_cursor_is_refused(forged: object) -> None:
    """Whatever it is, the answer is one typed, short error."""
    with pytest.raises(InvalidCursor, match="not an event cursor") as caught:
        EventCursor.parse(forged)
    assert len(str(caught.value)) < 200


def test_a_cursor_of_another_list_is_refused() -> None:
    """A page is never continued in a list that it is not a page of."""
    with pytest.raises(InvalidCursor, match="another list"):
        PageCursor.parse(PageCursor(1, "a").text("sessions"), "ses_1")
