"""Receipts as on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.file_states import Outcome
from kedge.domain.receipts import Receipt, ReceiptEntry, receipt_entry
from kedge.domain.wire import decode, encode

entries = st.builds(
    receipt_entry,
    st.binary(min_size=1, max_size=8)
    | st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
    st.sampled_from(Outcome),
    st.none() | st.just("it was changed since"),
    st.sampled_from(["declared", "observed"]),
)


def test_form() -> None:
    """An entry that went as asked has just a path, an outcome and a source."""
    entry = receipt_entry(b"src/a.py", Outcome.RESTORED, None, "declared")
    receipt = Receipt(files=[entry], notes=["n"], applied=True, strategy="merge")
    assert decode(encode(receipt), dict) == {
        "files": [{"path": "src/a.py", "outcome": "restored", "source": "declared"}],
        "notes": ["n"],
        "applied": True,
        "strategy": "merge",
    }


def test_path_not_utf8() -> None:
    """A path that is not UTF-8 is shown with U+FFFD, and its bytes stand beside it."""
    entry = receipt_entry(b"a/\xff\n", Outcome.CONFLICT, "it exists already", "observed")
    assert decode(encode(entry), dict) == {
        "path": "a/\ufffd\n",
        "pathBase64": "YS//Cg==",
        "outcome": "conflict",
        "reason": "it exists already",
        "source": "observed",
    }


@pytest.mark.parametrize(
    "path", [b"a", "\u00e9\U0001f600".encode(), b"\xff\xfe", "\ufffd".encode()]
)
def test_path_bytes(path: bytes) -> None:
    """Whatever the path, its bytes can be had from its entry."""
    entry = receipt_entry(path, Outcome.DELETED, None, "declared")
    assert entry.path_bytes == path


@given(st.lists(entries, max_size=3), st.booleans())
def test_round_trip(files: list[ReceiptEntry], applied: bool) -> None:
    """A receipt comes back from its JSON text as it was."""
    receipt = Receipt(files=files, notes=[], applied=applied, strategy="abort")
    assert decode(encode(receipt), Receipt) == receipt
