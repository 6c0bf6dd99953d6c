"""What the wire accepts, mends and refuses; which values there are is tested beside them."""

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import InvalidInput
from kedge.domain.messages import Answer, MessageWithParts
from kedge.domain.parts import Part, PartTime, StepFinishPart, TextPart
from kedge.domain.sessions import CacheCount, SessionTime, TokenCount
from kedge.domain.wire import MAX_DEPTH, convert, decode, encode
from tests.domain.strategies import Json, json_values


def _text(text: str) -> TextPart:
    return TextPart(id="prt_1", sessionID="ses_1", messageID="msg_1", text=text)


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth - 1):
        inner = [inner]
    return inner


@given(json_values)
def test_free_data_round_trip(obj: Json) -> None:
    """What encode accepts, decode reads, unchanged."""
    assert decode(encode(obj), object) == obj


@given(st.lists(st.sampled_from("\ud83d\ude00\ud800x") | st.characters()).map("".join))
def test_any_text_can_be_encoded(text: str) -> None:
    """Any Python text, also as a key, becomes UTF-8 that differs only where surrogates were."""
    mended = decode(encode(_text(text)), TextPart).text
    mended.encode()
    assert [c for c in mended if c != "\ufffd"] == [
        c
        for c in text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if c != "\ufffd"
    ]
    assert decode(encode({text: [text]}), object) == {mended: [mended]}


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("x\ud83d", "x\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced(text: str, mended: str) -> None:
    """A lone surrogate becomes U+FFFD and a pair the character that it stands for."""
    assert decode(encode(_text(text)), TextPart).text == mended
    assert decode(f'"{text}"', str) == mended


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uDC00x"', "\ufffdx"),
        (rb'"\ud800\ud800"', "\ufffd\ufffd"),
        (rb'"\ud800\u0041"', "\ufffdA"),
        (rb'"\ud83d\uDE00\udc00"', "😀\ufffd"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800"', "\\\ufffd"),
        (rb'"\u0000\ud800"', "\0\ufffd"),
    ],
)
def test_escaped_lone_surrogates_are_replaced(raw: bytes, text: str) -> None:
    """An escaped lone surrogate, as JavaScript writes it, is replaced; everything else stays."""
    assert decode(raw, str) == text
    assert decode(b"{" + raw + b":" + raw + b"}", object) == {text: text}


def test_lone_surrogate_beside_unknown_key() -> None:
    """Mending also works where unknown keys need the slow way."""
    raw = encode(_text("*")).replace("*", r"\ud800").replace("{", r'{"new\udfff":"\udbff",', 1)
    part: Part = decode(raw, Part)
    assert part.extra == {"new\ufffd": "\ufffd"}
    assert encode(part).count("\ufffd") == 3


def test_nul_survives() -> None:
    """A NUL character in text is kept and escaped."""
    assert r"a\u0000b" in encode(_text("a\0b"))
    assert decode(encode(_text("a\0b")), TextPart).text == "a\0b"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_not_finite_numbers_are_refused(number: float) -> None:
    """NaN and infinities are refused wherever they are, instead of becoming null."""
    time = SessionTime(created=1, updated=1, archived=number)
    for value in (number, time, {"a": [number]}, {"null": None, "a": (number,)}, [None, number]):
        with pytest.raises(InvalidInput, match="finite"):
            encode(value)


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_not_finite_numbers_in_text_are_refused(raw: str) -> None:
    """JSON text has no NaN and no infinities."""
    with pytest.raises(InvalidInput):
        decode(raw, object)


def test_null_in_free_data() -> None:
    """A null that the client put there stays."""
    assert encode({"a": None, "b": "null"}) == '{"a":null,"b":"null"}'


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 0])
def test_64_bit_integers(number: int) -> None:
    """Integers of 64 bits are exact."""
    assert decode(encode({"n": number}), object) == {"n": number}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400])
def test_larger_integers_are_refused(number: int) -> None:
    """Integers that a database column cannot hold are refused, both ways."""
    with pytest.raises(InvalidInput):
        encode({"n": [number]})
    with pytest.raises(InvalidInput):
        decode(f'{{"n": [{number}]}}', object)


def test_enormous_integers_are_refused() -> None:
    """Integers with more digits than Python itself would read are refused too."""
    with pytest.raises(InvalidInput):
        encode(10**5000)
    with pytest.raises(InvalidInput):
        decode("9" * 5000, object)


def test_long_digits_in_text_are_text() -> None:
    """A long run of digits inside text or a fraction is no large integer."""
    obj = {"a": "9" * 40, "b": 0.12345678901234567890123}
    assert decode(encode(obj), object) == obj
    assert decode("[0.10000000000000000000000000001]", object) == [0.1]


@pytest.mark.parametrize("close", ["", "x"])
def test_depth_limit(close: str) -> None:
    """Nesting is limited, both ways and for every caller alike; brackets in text do not count."""
    fits = [_nested(MAX_DEPTH - 1), '[{"\\' * 300 + close]
    assert decode(encode(fits), object) == fits
    deep = [fits[0], [fits[0]], fits[1]]
    with pytest.raises(InvalidInput, match="deep"):
        encode(deep)
    with pytest.raises(InvalidInput, match="deep"):
        decode("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), object)
    with pytest.raises(InvalidInput, match="deep"):
        decode('{"a":[' * MAX_DEPTH + "1" + "]}" * MAX_DEPTH, object)


def test_bottomless_nesting() -> None:
    """Nesting beyond what the interpreter can take is refused like any other that is too deep."""
    with pytest.raises(InvalidInput, match="deep"):
        decode("[" * 200_000, object)
    with pytest.raises(InvalidInput, match="deep"):
        encode(_nested(50_000))


def test_wide_is_not_deep() -> None:
    """Many objects beside each other are fine."""
    wide: list[Json] = [{"a": [{}]}] * 10_000
    assert decode(encode(wide), object) == wide


@pytest.mark.parametrize("value", [object(), {"a": 1j}, {(1, 2): 3}, [lambda: None]])
def test_unsupported_types_are_refused(value: object) -> None:
    """What JSON cannot hold is the caller's mistake."""
    with pytest.raises(InvalidInput):
        encode(value)


@pytest.mark.parametrize("raw", ["", "{", "[1,]", "1 2", b'"\xff"', b'{"\xed\xa0\x80":1}', "\0"])
def test_malformed_text_is_refused(raw: str | bytes) -> None:
    """Text that is not JSON, or not UTF-8, is refused."""
    with pytest.raises(InvalidInput, match="malformed JSON"):
        decode(raw, object)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("{", "malformed JSON: it ends too early"),
        ('{"a": 1,\n "b": x}', "malformed JSON in line 2, column 7"),
        (b'"\xff"', "malformed JSON: it is not UTF-8"),
        ('{"a": [0, 1e999]}', "a[1]: expected a finite number; found inf"),
        ('{"a": NaN}', "a: expected a finite number; found nan"),
        (
            "[" + "9" * 5000 + "]",
            "[0]: expected a whole number of at most 64 bits; found a larger one",
        ),
        ("[" * 200_000 + "x", "nested more than 128 levels deep"),
    ],
)
def test_where_text_is_no_json(raw: str | bytes, message: str) -> None:
    """What is wrong with a text is said with its place."""
    with pytest.raises(InvalidInput) as caught:
        decode(raw, object)
    assert str(caught.value) == message


def test_telling_the_place_takes_no_room_for_every_value() -> None:
    """What is refused may be deep and wide: the way to each value is longer than the text."""
    wide = ",".join(["1"] * 20_000 + ["1e999"])
    raw = f'{{"x":{"[" * 100}{wide}{"]" * 100}}}'
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="expected a finite number; found inf") as caught:
            decode(raw, PartTime)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(raw)
    finally:
        tracemalloc.stop()
    assert caught.value.field == f"x{'[0]' * 99}[20000]"


@pytest.mark.parametrize(
    ("raw", "message", "field"),
    [
        ('{"start": "x"}', "start: expected a whole number; found 'x'", "start"),
        ("{}", "start: missing; expected a whole number", "start"),
        ("[]", "expected an object; found an array", None),
    ],
)
def test_problem_names_its_place(raw: str, message: str, field: str | None) -> None:
    """A message says what was expected, what came and where."""
    with pytest.raises(InvalidInput) as caught:
        decode(raw, PartTime)
    assert str(caught.value) == message
    assert caught.value.field == field


def test_problem_in_a_union() -> None:
    """An unknown tag and a problem inside a list name the place too."""
    raw = '{"info": {"role": "robot"}, "parts": []}'
    with pytest.raises(InvalidInput) as caught:
        decode(raw, MessageWithParts)
    assert str(caught.value) == "info.role: expected one of user, assistant; found 'robot'"


def test_an_answer_is_no_prompt() -> None:
    """A type that is made of a generic value is held to what it is made for."""
    raw = '{"info": {"role": "user"}, "parts": []}'
    with pytest.raises(InvalidInput) as caught:
        decode(raw, Answer)
    assert str(caught.value) == "info.role: expected 'assistant'; found 'user'"


def test_convert() -> None:
    """Objects of JSON's own types convert by the same rules as text."""
    assert convert({"start": 1}, PartTime) == PartTime(start=1)
    assert convert(PartTime(start=1, end=2), PartTime) == PartTime(start=1, end=2)
    with pytest.raises(InvalidInput, match=r"^start: expected"):
        convert({"start": "1"}, PartTime)


def test_zero_is_sent() -> None:
    """Fields that the real server always sends are there also when they are zero."""
    tokens = TokenCount(input=0, output=0, reasoning=0, cache=CacheCount(read=0, write=0))
    part = StepFinishPart(
        id="prt_1", sessionID="ses_1", messageID="msg_1", reason="stop", cost=0, tokens=tokens
    )
    assert encode(part) == (
        '{"type":"step-finish","id":"prt_1","sessionID":"ses_1","messageID":"msg_1",'
        '"reason":"stop","cost":0,'
        '"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}}'
    )
