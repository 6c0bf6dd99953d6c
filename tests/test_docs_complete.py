"""The documentation is complete: what a user can call, catch, hear or set is named in it as code.

That what it says is true is looked at in `test_docs`.
"""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from kedge.agent import Agent, AgentSettings
from kedge.domain import errors
from kedge.domain.events import EVENTS
from kedge.engine.asks import Asks
from kedge.engine.engine import Engine
from kedge.engine.event_log import EventLog
from kedge.engine.parts import Stream, ToolCall
from kedge.engine.session import Session
from kedge.engine.sessions import Sessions
from kedge.engine.settings import Settings
from kedge.engine.steps import Step
from kedge.engine.turns import Turn
from kedge.server import ServerSettings
from kedge.server.routes import ALL
from kedge.snapshot import (
    Change,
    Outcome,
    Patch,
    Protection,
    Reason,
    Result,
    Snapshot,
    Snapshots,
    SnapshotSettings,
    Status,
)
from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.resources import WAYS
from tests.support import markdown

ROOT = Path(__file__).parents[1]
# What a variable of each type is called on every page, so that a method is found by its call.
VARIABLES: dict[type, str] = {
    Engine: "engine",
    Sessions: "engine.sessions",
    Session: "session",
    Turn: "turn",
    Step: "step",
    Stream: "out",
    ToolCall: "call",
    EventLog: "engine.events",
    Asks: "engine.asks",
    Agent: "agent",
}

# What a value of each type is called in docs/snapshots.md, so that a field is found by its use.
SNAPSHOT_VALUES: dict[type, str] = {
    Snapshot: "snapshot",
    Change: "change",
    Patch: "patch",
    Result: "result",
    Status: "status",
    SnapshotSettings: "settings",
}


@pytest.fixture(scope="module")
def code() -> str:
    """All code of the README and of docs/, as one text."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return "\n".join(markdown.code(page) for page in pages)


@pytest.fixture(scope="module")
def snapshots_code() -> str:
    """All code of the page on snapshots, whose words are too common to be looked for elsewhere."""
    return markdown.code(ROOT / "docs" / "snapshots.md")


def missing(names: Iterable[str], code: str) -> list[str]:
    """The names that do not stand in the code as words of their own."""
    return [name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", code)]


def public_members(kind: type) -> list[str]:
    """The methods and properties that a class defines for its users."""
    return [
        name
        for name, member in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]


@pytest.mark.parametrize("kind", VARIABLES, ids=lambda kind: kind.__name__)
def test_every_public_method_is_named(kind: type, code: str) -> None:
    """Each method and property of a user's type stands in the docs as it is called."""
    calls = [f"{VARIABLES[kind]}.{name}" for name in public_members(kind)]
    assert calls
    assert missing(calls, code) == []


@pytest.mark.parametrize("kind", [Snapshots, AsyncSnapshots], ids=lambda kind: kind.__name__)
def test_every_verb_of_snapshots_is_named(kind: type, snapshots_code: str) -> None:
    """Each method of snapshots, blocking or not, stands on their page as it is called."""
    calls = [f"snapshots.{name}" for name in public_members(kind)]
    assert "snapshots.track" in calls
    assert missing([*calls, f"{kind.__name__}.open"], snapshots_code) == []


@pytest.mark.parametrize("kind", SNAPSHOT_VALUES, ids=lambda kind: kind.__name__)
def test_every_field_of_snapshots_is_named(kind: type, snapshots_code: str) -> None:
    """Each field and property of what snapshots answer or are set to stands on their page."""
    names = [*public_members(kind), *(field.name for field in dataclasses.fields(kind))]
    uses = [f"{SNAPSHOT_VALUES[kind]}.{name}" for name in names]
    assert missing(uses, snapshots_code) == []


@pytest.mark.parametrize(
    "words",
    # What only a session's revert comes to stands on the page about undo.
    [Reason, set(Outcome) - {Outcome.MERGED, Outcome.SHARED}, Protection, WAYS],
    ids=["reasons", "outcomes", "protection", "ways"],
)
def test_every_word_of_snapshots_is_named(words: Iterable[str], snapshots_code: str) -> None:
    """Each reason, outcome, kind of protection and way of knowing stands on their page."""
    assert missing(words, snapshots_code) == []


def test_every_event_is_named(code: str) -> None:
    """Each type of event stands in the docs."""
    assert missing(EVENTS, code) == []


def test_every_error_is_named(code: str) -> None:
    """Each class of error stands in the docs."""
    kinds = [name for name, found in vars(errors).items() if is_error(found)]
    assert "KedgeError" in kinds
    assert missing(kinds, code) == []


def is_error(found: object) -> bool:
    """Whether something is an error class of kedge."""
    return isinstance(found, type) and issubclass(found, errors.KedgeError)


@pytest.mark.parametrize(
    "kind", [Settings, AgentSettings, ServerSettings], ids=lambda kind: kind.__name__
)
def test_every_setting_is_named(kind: type, code: str) -> None:
    """Each field of the settings stands in the docs."""
    assert missing([field.name for field in dataclasses.fields(kind)], code) == []


def test_every_environment_variable_is_named(code: str) -> None:
    """Each variable that kedge reads or tells people to set stands in the docs."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    variables = {name for source in sources for name in re.findall(r"\bKEDGE_[A-Z_]+", source)}
    assert "KEDGE_DATA_DIR" in variables
    assert missing(sorted(variables), code) == []


def test_every_thread_is_named() -> None:
    """The table of threads has each by its name, and no other."""
    page = (ROOT / "docs" / "concurrency.md").read_text()
    listed = re.findall(r"^\| `(kedge-[a-z-]+)` \|", page, flags=re.MULTILINE)
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]
    started = {name for source in sources for name in thread_names(source)}
    assert "kedge-leases" in started
    assert sorted(listed) == sorted(started)


def thread_names(source: str) -> list[str]:
    """The names of the threads that a module starts."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Thread", "Executor")):
            given = [*node.args[1:], *(each.value for each in node.keywords)]
            texts = [each.value for each in given if isinstance(each, ast.Constant)]
            names += [text for text in texts if isinstance(text, str)]
    return names


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    """Only code counts, and only whole words: neither prose nor a longer name hides a gap."""
    page = tmp_path / "page.md"
    page.write_text("prose session.fork\n\n| `session.forks` |\n|---|\n| `session.abort()` |\n")
    names = ["session.fork", "session.forks", "session.abort", "abort"]
    assert missing(names, markdown.code(page)) == ["session.fork", "abort"]


def test_every_threat_has_its_tests() -> None:
    """Each row of the tables of threats names tests, and there are such tests."""
    rows = [
        line
        for line in (ROOT / "docs" / "security.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| what is tried |")
    ]
    assert len(rows) > 30
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row.rsplit("|", 2)[1])
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), (path, name)


def test_every_route_is_on_its_page() -> None:
    """The page of routes lists each with what it does, in the words of its description."""
    page = (ROOT / "docs" / "routes.md").read_text()
    for route in ALL:
        assert f"`{route.method} {route.path}`" in page
        assert route.summary.removeprefix("Not built: ") in page, route.path


def test_every_page_is_in_the_index() -> None:
    """Each page of docs/ is linked from the index, apart from single decisions."""
    docs = ROOT / "docs"
    linked = set(markdown.links(docs / "README.md"))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/")} - linked == {"README.md"}
