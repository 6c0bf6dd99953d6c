"""Random answers of a model, and what may happen while they are given; see `test_properties`."""

import json
from dataclasses import dataclass
from typing import Literal, TypeVar

from hypothesis import strategies as st

from tests.support.model_server import (
    Answer,
    Call,
    Cut,
    Fault,
    Item,
    Refusal,
    Reply,
    Text,
    Thinking,
)

T = TypeVar("T")
FILES = ("a.txt", "b.txt", "new.txt", "sub/deep.txt")
_COMMANDS = (
    "printf more >> {0}",
    "rm -f {0}",
    "mkdir -p sub && cp a.txt {0}",
    "mv -f {0} {1}",
    "chmod +x {0}",
    "echo {0} && exit 3",
    "cat < {0} > /dev/null",
)
_PIECES = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=6
)
_CONTENTS = st.text(st.sampled_from("one two\n\u00e9\U0001f6a2"), max_size=20)
_NAMES = st.sampled_from(FILES)


@dataclass(frozen=True)
class Happening:
    """Something that a person does when so many events have been heard."""

    kind: Literal["abort", "prompt", "no reply", "leave"]
    after: int


def _call(tool: str, **arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Call]:
    return st.builds(
        lambda given: Call(name=tool, pieces=(json.dumps(given),)), st.fixed_dictionaries(arguments)
    )


_TODO = st.fixed_dictionaries(
    {
        "content": _CONTENTS,
        "status": st.sampled_from(["pending", "in_progress", "completed"]),
        "priority": st.sampled_from(["high", "low"]),
    }
)
_COMMAND = st.builds(str.format, st.sampled_from(_COMMANDS), _NAMES, _NAMES)
_GOOD: st.SearchStrategy[Item] = st.one_of(
    _call("write", filePath=_NAMES, content=_CONTENTS),
    _call("bash", command=_COMMAND),
    _call("bash", command=_COMMAND),
    _call(
        "edit", filePath=_NAMES, oldString=st.sampled_from(["one", "line 1\n"]), newString=_CONTENTS
    ),
    _call("read", filePath=_NAMES),
    _call("todowrite", todos=st.lists(_TODO, max_size=3)),
)
_BAD: st.SearchStrategy[Item] = st.one_of(
    _call("glob", pattern=st.just("[")),
    _call("nonsense", what=_CONTENTS),
    _call("write", filePath=st.integers()),
    st.builds(
        lambda raw: Call(name="edit", pieces=(raw,)), st.sampled_from(["{", "[]", "", "nul"])
    ),
)
_WORDS: st.SearchStrategy[Item] = st.one_of(
    st.builds(lambda pieces: Text(pieces=tuple(pieces)), _PIECES),
    st.builds(lambda pieces: Thinking(pieces=tuple(pieces)), _PIECES),
)


def _mostly(usual: st.SearchStrategy[T], *others: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """The first one, and now and then one of the others."""
    chosen = st.integers(0, 5 + len(others))
    return chosen.flatmap(lambda at: others[at - 6] if at > 5 else usual)


_ITEMS = _mostly(_GOOD, _BAD, _WORDS, _WORDS)
_BREAKS: st.SearchStrategy[list[Item]] = _mostly(st.just([]), st.sampled_from([[Fault()], [Cut()]]))


def _answer(items: list[Item], breaks: list[Item], finish: str | None) -> Answer:
    return Answer(items=(*items, *breaks), finish=finish)


_FINISH: st.SearchStrategy[str | None] = _mostly(st.none(), st.just("length"))
_REPLIES: st.SearchStrategy[Reply] = _mostly(
    st.builds(_answer, st.lists(_ITEMS, min_size=1, max_size=4), _BREAKS, _FINISH),
    st.builds(Refusal, status=st.sampled_from([400, 401, 429, 503])),
)
SCRIPTS = st.lists(_REPLIES, min_size=1, max_size=6)
HAPPENINGS = st.lists(
    st.builds(
        Happening,
        st.sampled_from(["abort", "prompt", "prompt", "no reply", "leave"]),
        st.integers(0, 50),
    ),
    max_size=3,
)

DECISIONS = st.lists(st.sampled_from(["once", "always", "reject", "correct", "abort"]), max_size=6)
"""What a person says when asked for permission; nobody is asked if there is nothing to say."""
