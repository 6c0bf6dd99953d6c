"""The library as its users have it: public names, a program that runs, and what type checkers say.

The program and the checkers see the wheel in an environment of its own, and not the source tree.
"""

import ast
import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import typing
import venv
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

import kedge
from kedge import errors, events, snapshot, values
from tests.support import environment
from tests.support.clients import HOW_TO_MEND
from tests.support.clients_npm import Unavailable, installed, or_skip
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "library.md"
SCRIPT = ROOT / "tests" / "library_script.py"
PYRIGHT = "1.1.414"

SAID = """\
person to build: Write two notes, then build
model, tool-calls: I write the notes.; write: 4 characters; write: 4 characters
model, tool-calls: All done.; bash: made
todos: ['Build it']
diff: first.txt +1 -0, made.txt +1 -0, second.txt +1 -0
tree: ['first.txt', 'made.txt', 'second.txt']
undone: {'first.txt': 'deleted'}
redone: {'first.txt': 'recreated'}
undone: {'first.txt': 'deleted', 'made.txt': 'deleted', 'second.txt': 'deleted'}
redone: {'first.txt': 'recreated', 'made.txt': 'recreated', 'second.txt': 'recreated'}
found: ['Notes', 'Notes (fork #1)']
sessions: ['Notes', 'Notes (fork #1)']
refused: True {'message': 'Session not found: ses_nowhere'}
refused: FileChanged
asked: 1
undone: {'plan.md': 'deleted'}
answer: model, stop: The plan is written.
"""

MISTAKES = """\
import kedge
from kedge import IdMaker  # refused
from kedge.events import SessionExploded  # refused


async def mistakes(engine: kedge.Engine, session: kedge.Session, agent: kedge.Agent) -> None:
    kedge.nothing()  # refused
    kedge.Settings(lease_time="long")  # refused
    kedge.open(".", data="/tmp")  # refused
    kedge.PermissionRule(permission="bash", pattern="*", action="maybe")  # refused
    await session.revert("msg_1", scope="everything")  # refused
    await session.revert("msg_1", strategy="hope")  # refused
    await session.revert("msg_1", files=[1])  # refused
    (await session.diff())[0].name  # refused
    (await session.messages()).messages[0].info.parentID  # refused
    (await session.messages()).cursor  # refused
    async with session.turn("go") as turn, turn.step(model="small") as step:  # refused
        step.tool("write", {}, effects="all")  # refused
    await agent.prompt(session, "go", modle="small")  # refused
    (await agent.prompt(session, "go", no_reply=True)).info.parentID  # refused
    (await agent.prompt(session, "go")).info.parentID.upper()
    await engine.asks.reply_permission("per_1", "perhaps")  # refused
"""
"""Wrong uses, each in a line that says so, and a right one."""

INTERNAL = {
    "Agents",
    "AsyncSnapshots",
    "Batch",
    "Catalog",
    "Choice",
    "Commands",
    "Config",
    "Diffs",
    "Emit",
    "EventCursor",
    "Fence",
    "FileWork",
    "Growing",
    "Query",
    "Reverts",
    "StoredEvent",
    "Timeline",
    "ToolSpec",
}
"""Types of members that are kedge's own or, as snapshots, public elsewhere."""


def test_every_public_name_is_there() -> None:
    """What is announced can be imported, and `dir` shows it."""
    for module in (kedge, errors, events, values, snapshot, import_module("kedge.agent")):
        names = module.__all__
        assert len(set(names)) == len(names)
        assert [name for name in names if not hasattr(module, name)] == []
    assert set(kedge.__all__) <= set(dir(kedge))


def test_a_name_that_is_not_public_is_not_there() -> None:
    """It is no attribute, as of any module."""
    with pytest.raises(AttributeError, match="module 'kedge' has no attribute 'IdMaker'"):
        _ = kedge.IdMaker  # type: ignore[attr-defined]  # the error is the point


def test_a_public_name_is_one_thing() -> None:
    """Each value, and each name of the agent, is the same wherever it is imported from."""
    for module in (values, import_module("kedge.agent")):
        assert {name for name in module.__all__ if name not in kedge.__all__} == set()
        for name in module.__all__:
            assert getattr(kedge, name) is getattr(module, name)


def test_every_event_has_its_class() -> None:
    """All that `event.properties` can be are in `kedge.events`."""
    found = import_module("kedge.domain.events").EVENTS.values()
    assert {kind.__name__ for kind in found} <= set(events.__all__)


def test_the_page_lists_every_public_name() -> None:
    """Those of docs/library.md are those of `kedge.__all__`, each of them once."""
    section = PAGE.read_text().split("## Every name\n")[1].split("| module |")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    listed = re.findall(r"`(\w+)`", "\n".join(cells))
    assert sorted(listed) == sorted(kedge.__all__)


def test_importing_kedge_imports_nothing_else() -> None:
    """Programs wait for what they use alone; `kedge --help` for next to nothing."""
    code = "import sys; import kedge; print([n for n in sys.modules if n.startswith('kedge')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "['kedge._version', 'kedge']\n"


@pytest.mark.parametrize(
    "program", [SCRIPT, *sorted(ROOT.glob("examples/*.py"))], ids=lambda path: path.name
)
def test_programs_to_learn_from_import_what_is_public(program: Path) -> None:
    """What people copy does not break with the next version."""
    public = {"kedge", "kedge.errors", "kedge.events", "kedge.snapshot"}
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kedge"):
            assert node.module in public
            assert {each.name for each in node.names} <= set(import_module(node.module).__all__)
        if isinstance(node, ast.Import):
            names = {each.name for each in node.names if each.name.startswith("kedge")}
            assert names <= public


def test_what_public_methods_take_and_give_is_public() -> None:
    """A program can name the type of everything that it gets or passes."""
    kinds = {kind for kind in map(public_object, kedge.__all__) if inspect.isclass(kind)}
    kinds |= {getattr(events, name) for name in events.__all__}
    known = {*kinds, *(getattr(errors, name) for name in errors.__all__)}
    found = {
        each.__name__: place
        for kind in kinds
        for place, hint in hints_of(kind)
        for each in types_in(hint)
        if each.__module__.startswith("kedge") and each not in known
    }
    assert {name: place for name, place in found.items() if name not in INTERNAL} == {}


def public_object(name: str) -> object:
    """What a public name stands for."""
    return getattr(kedge, name)


def hints_of(kind: type) -> Iterator[tuple[str, object]]:
    """The types of the fields of a class, and of what its public methods take and give."""
    # Those that are imported for type checkers alone.
    named = {name: public_object(name) for name in kedge.__all__}
    named |= {name: type(name, (), {"__module__": "kedge"}) for name in INTERNAL}
    members: list[tuple[str, Callable[..., object] | type]] = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function):
            members.append((f"{kind.__name__}.{name}", function))
    if issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind):
        members.append((kind.__name__, kind))
    for place, member in members:
        for hint in typing.get_type_hints(member, localns=named).values():
            yield place, hint


def types_in(hint: object) -> Iterator[type]:
    """The classes that an annotation names."""
    for each in (hint, typing.get_origin(hint)):
        if isinstance(each, type):
            yield each
    for part in typing.get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from types_in(each)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which the wheel of kedge is installed."""
    folder = tmp_path_factory.mktemp("user")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", code], text=True).strip())
    with ZipFile(wheel) as packed:
        packed.extractall(packages)
    # Its dependencies are those of the tests; their folder's own .pth files do not count there.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The user's program, far from the source tree."""
    return Path(shutil.copy(SCRIPT, tmp_path / "program.py"))


def test_the_program_runs(python: Path, program: Path, tmp_path: Path) -> None:
    """It uses the installed kedge, and says what it should."""
    folder = tmp_path / "project"
    folder.mkdir()
    variables = {"PATH": os.environ["PATH"]}
    environment.set_home(variables, tmp_path / "home")
    done = subprocess.run(
        [python, "-W", "error", program, folder, tmp_path / "data"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr) == (SAID, "")
    where = subprocess.check_output(
        [python, "-c", "import kedge; print(kedge.__file__)"], cwd=tmp_path, text=True
    )
    assert Path(where).is_relative_to(python.parents[1])


def mypy_lines(python: Path, files: list[Path]) -> set[tuple[str, int]]:
    """Where `mypy --strict` finds errors."""
    folder = files[0].parent
    options = ["--strict", "--config-file=", f"--python-executable={python}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={folder / 'cache'}", *files],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    found = re.findall(r"^(.+?):(\d+): error: ", done.stdout, flags=re.MULTILINE)
    assert done.returncode == (1 if found else 0), done.stdout
    return {(Path(name).name, int(line)) for name, line in found}


def pyright_lines(python: Path, files: list[Path]) -> set[tuple[str, int]]:
    """Where pyright finds errors in its strict mode."""
    folder = files[0].parent
    index = or_skip(install_pyright)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    done = subprocess.run(
        ["node", index, "--outputjson", "--pythonpath", python],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(files), done.stdout
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in said["generalDiagnostics"]
        if each["severity"] == "error"
    }


def install_pyright() -> Path:
    """The script of pyright, for node."""
    if shutil.which("node") is None:
        raise Unavailable(f"pyright needs node, which is not here; {HOW_TO_MEND}")
    found = installed("pyright", "pyright", PYRIGHT, _index)
    if found is None:
        raise Unavailable(f"npm has no pyright {PYRIGHT}")
    return found


def _index(folder: Path) -> Path | None:
    index = folder / "node_modules" / "pyright" / "index.js"
    return index if index.exists() else None


@pytest.mark.parametrize("errors_of", [mypy_lines, pyright_lines], ids=["mypy", "pyright"])
def test_type_checkers_pass_the_program_and_refuse_mistakes(
    errors_of: Callable[[Path, list[Path]], set[tuple[str, int]]], python: Path, program: Path
) -> None:
    """Nothing is said of the program, and something of each wrong use."""
    mistakes = program.with_name("mistakes.py")
    mistakes.write_text(MISTAKES)
    wrong = {
        ("mistakes.py", number)
        for number, line in enumerate(MISTAKES.splitlines(), start=1)
        if line.endswith("# refused")
    }
    assert errors_of(python, [program, mistakes]) == wrong
