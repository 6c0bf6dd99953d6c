"""Errors: what they say, what clients are told, and that they survive pickling."""

import inspect
import pickle
from collections.abc import Iterator

import pytest

from kedge.domain import errors
from kedge.domain.errors import KedgeError
from kedge.domain.wire import encode


def _all(kind: type[KedgeError] = KedgeError) -> Iterator[type[KedgeError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _all(each)


def _can_be_bare(kind: type[KedgeError]) -> bool:
    parameters = inspect.signature(kind).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)


EXAMPLES: list[tuple[KedgeError, str, dict[str, object]]] = [
    (errors.InvalidInput("Missing key", field="parts"), "Missing key", {"field": "parts"}),
    (errors.InvalidInput("Missing key"), "Missing key", {}),
    (errors.InvalidId("odd"), "odd", {}),
    (errors.InvalidCursor("odd"), "odd", {}),
    (errors.TooLarge("9 MiB is too much"), "9 MiB is too much", {}),
    (errors.NotFound("Tail", "7"), "Tail not found: 7", {}),
    (errors.SessionNotFound("ses_nope"), "Session not found: ses_nope", {}),
    (errors.MessageNotFound("msg_x"), "Message not found: msg_x", {}),
    (errors.PartNotFound("prt_x"), "Part not found: prt_x", {}),
    (
        errors.ModelNotFound("a", "b/c"),
        "Model not found: a/b/c",
        {"providerID": "a", "modelID": "b/c", "near": []},
    ),
    (
        errors.ModelNotFound("a", "", ["a/b"]),
        "Model not found: a: did you mean a/b?",
        {"providerID": "a", "modelID": "", "near": ["a/b"]},
    ),
    (
        errors.DirectoryNotFound("/nope"),
        "Directory not found: /nope: name a folder that exists, or create it",
        {},
    ),
    (
        errors.PermissionNotFound("per_x"),
        "Permission request not found: per_x",
        {"requestID": "per_x"},
    ),
    (errors.QuestionNotFound("que_x"), "Question request not found: que_x", {"requestID": "que_x"}),
    (errors.QuestionRejected("que_x"), "The user dismissed this question", {"requestID": "que_x"}),
    (errors.AgentNotFound("x", ["build"]), "Agent not found: x: there are build", {}),
    (errors.SessionBusy("ses_1"), "Session is busy: ses_1", {"sessionID": "ses_1"}),
    (errors.FileBusy("/a"), "Another session or process is writing the file: /a", {"path": "/a"}),
    (
        errors.LeaseLost("ses_1"),
        "Another process took over the session: ses_1",
        {"sessionID": "ses_1"},
    ),
    (errors.TurnAborted("ses_1"), "The turn was aborted: ses_1", {"sessionID": "ses_1"}),
    (errors.EngineClosed(), "The engine is closed; open a new one.", {}),
    (errors.AgentClosed(), "The agent is closed; make a new one.", {}),
    (errors.StoreFull("/data is full"), "/data is full", {}),
    (errors.InvariantBroken("two heads"), "two heads", {}),
]


@pytest.mark.parametrize(("error", "message", "details"), EXAMPLES)
def test_message_and_data(error: KedgeError, message: str, details: dict[str, object]) -> None:
    """An error says what happened, and a client is told the same with the details of its kind."""
    assert str(error) == message
    assert error.data == {"message": message, **details}


@pytest.mark.parametrize("error", [example[0] for example in EXAMPLES])
def test_pickling(error: KedgeError) -> None:
    """An error comes out of a pickle with its class, message, attributes and notes."""
    error.add_note("while testing")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.data == error.data
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", list(_all()))
def test_documented(kind: type[KedgeError]) -> None:
    """Every error class has a docstring of its own, a sentence that can be shown to people."""
    assert kind.__doc__
    assert kind.__doc__ not in {base.__doc__ for base in kind.__bases__}
    assert kind.__doc__.endswith(".")


@pytest.mark.parametrize("kind", [kind for kind in _all() if _can_be_bare(kind)])
def test_docstring_is_the_default_message(kind: type[KedgeError]) -> None:
    """An error raised without a message says its docstring."""
    assert str(kind()) == inspect.getdoc(kind)


def test_families() -> None:
    """Every error belongs to exactly one of those who must act."""
    families = (errors.CallerError, errors.OperatorError, errors.InternalError)
    for kind in set(_all()) - {KedgeError}:
        assert sum(issubclass(kind, family) for family in families) == 1


def test_attributes() -> None:
    """What an error is about can be read from it."""
    found = errors.SessionNotFound("ses_1")
    assert (found.kind, found.id) == ("Session", "ses_1")
    assert errors.DirectoryNotFound("/a").path == "/a"
    assert errors.SessionBusy("ses_1").sessionID == "ses_1"


def test_data_stays_small() -> None:
    """A caller's huge input does not come back in the error."""
    error = errors.InvalidInput("x" * 100_000, field="y" * 100_000)
    assert len(encode(error.data)) < 3000


def test_undecodable_path() -> None:
    """A path that is not UTF-8 gives a message that can be printed."""
    assert str(errors.DirectoryNotFound("/a\udcff")).startswith("Directory not found: /a\ufffd: ")
