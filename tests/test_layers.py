"""Imports inside kedge point downwards only; this reads the source and runs none of it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "kedge"

# From low to high. Units of one layer do not know each other. `__init__` is the package's own face.
LAYERS = (
    {"_version", "_async"},
    {"domain"},
    {"config", "_failpoints"},
    {"store", "snapshot", "model"},
    {"engine"},
    {"errors", "events", "maintenance", "values"},
    {"agent"},
    {"__init__"},
    {"server"},
    {"cli", "web"},
    {"__main__"},
    {"testing"},
)
HEIGHT = {unit: height for height, units in enumerate(LAYERS) for unit in units}
BELOW_THE_ENGINE = {"store", "snapshot"}
USERS_OF_THE_ENGINE = {
    "agent", "server", "cli", "web", "errors", "events", "maintenance", "values"
}  # fmt: skip
"""They get from the engine what they need of the store and of snapshots."""
FACE_MAY_IMPORT = {
    "_version", "agent", "domain", "engine", "errors", "events", "maintenance", "values"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import statement of one unit of kedge, of something in kedge."""

    where: str
    importer: str
    imported: str


def imports_of(file: Path, package: Path) -> Iterator[Import]:
    """Every import of something in `package`, wherever in the file it stands."""
    parts = file.relative_to(package).with_suffix("").parts
    for node in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for target in _targets(node, (package.name, *parts[:-1])):
            if target[0] == package.name:
                yield Import(
                    where=f"{'/'.join(file.relative_to(package.parent).parts)}:{node.lineno}",
                    importer=parts[0],
                    imported=_unit(target[1:], package),
                )


def _targets(node: ast.Import | ast.ImportFrom, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield tuple(name.name.split("."))
        return
    module = tuple(node.module.split(".")) if node.module else ()
    base = (*here[: len(here) - node.level + 1], *module) if node.level else module
    for name in node.names:
        yield (*base, name.name)


def _unit(names: tuple[str, ...], package: Path) -> str:
    """The unit that a dotted name below the package lives in."""
    if names and ((package / names[0]).is_dir() or (package / f"{names[0]}.py").is_file()):
        return names[0]
    return "__init__"


def complaint(found: Import) -> str | None:
    """What is wrong with an import, if anything is."""
    for unit in (found.importer, found.imported):
        if unit not in HEIGHT:
            return (
                f"{found.where}: kedge.{unit} is in no layer; give it one in tests/test_layers.py"
            )
    if found.importer == found.imported:
        return None
    if found.importer == "__init__":
        allowed = found.imported in FACE_MAY_IMPORT
    elif found.importer in USERS_OF_THE_ENGINE and found.imported in BELOW_THE_ENGINE:
        allowed = False
    else:
        allowed = HEIGHT[found.importer] > HEIGHT[found.imported]
    return None if allowed else f"{found.where}: {found.importer} must not import {found.imported}"


def complaints(package: Path) -> list[str]:
    """Everything wrong with the imports of a package."""
    found = [each for file in sorted(package.rglob("*.py")) for each in imports_of(file, package)]
    return [text for each in found if (text := complaint(each)) is not None]


def test_imports_point_downwards() -> None:
    """No module of kedge imports from its own layer's neighbours or from above."""
    assert complaints(PACKAGE) == []


def test_every_unit_has_a_layer() -> None:
    """A new folder or module directly in kedge needs a layer, even if it imports nothing."""
    units = {file.relative_to(PACKAGE).with_suffix("").parts[0] for file in PACKAGE.rglob("*.py")}
    assert units <= HEIGHT.keys()


def test_the_drawn_layers_are_these() -> None:
    """CONTRIBUTING draws the layers from high to low, with all that is in them."""
    page = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text()
    [drawing] = re.findall(r"```text\n(cli\n.*?)```", page, flags=re.DOTALL)
    drawn = [set(re.findall(r"\w+", line)) & HEIGHT.keys() for line in drawing.splitlines()]
    there = {file.stem for file in PACKAGE.iterdir()} - {"__main__", "testing"}
    assert drawn[::-1] == [units & there for units in LAYERS if units & there]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the same name and with the same units as kedge, all of them empty."""
    package = tmp_path / "kedge"
    for unit in HEIGHT:
        if unit not in ("__init__", "__main__", "_version"):
            (package / unit).mkdir(parents=True)
            (package / unit / "__init__.py").touch()
    (package / "__init__.py").touch()
    return package


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("domain/ids.py", "import kedge.store.port", "domain must not import store"),
        ("domain/ids.py", "from kedge import engine", "domain must not import engine"),
        ("domain/ids.py", "from kedge import open", "domain must not import __init__"),
        ("domain/ids.py", "from ..store import port", "domain must not import store"),
        ("domain/deep/ids.py", "from ... import store", "domain must not import store"),
        ("store/sqlite.py", "from kedge.snapshot import track", "store must not import snapshot"),
        ("engine/turns.py", "def f():\n    import kedge.agent", "engine must not import agent"),
        (
            "engine/turns.py",
            "if TYPE_CHECKING:\n    from kedge.server import routes",
            "engine must not import server",
        ),
        ("server/app.py", "from kedge.testing import clock", "server must not import testing"),
        ("server/app.py", "from kedge.store import port", "server must not import store"),
        ("agent/step.py", "import kedge.snapshot.values", "agent must not import snapshot"),
        ("cli/main.py", "from kedge.store import port", "cli must not import store"),
        ("__init__.py", "from kedge.store import port", "__init__ must not import store"),
        ("extra/x.py", "import kedge.domain", "kedge.extra is in no layer"),
    ],
)
def test_a_wrong_import_is_found(package: Path, file: str, source: str, expected: str) -> None:
    """Absolute and relative imports are seen, also in functions and type-checking blocks."""
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    [text] = complaints(package)
    line = len(source.splitlines())
    assert text.startswith(f"kedge/{file}:{line}: {expected}")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("engine/turns.py", "from kedge.store import port\nimport kedge.domain.ids"),
        (
            "engine/turns.py",
            "from . import revert\nfrom .plan import steps\nfrom ..domain import x",
        ),
        ("cli/main.py", "from kedge import open, domain\nimport kedge"),
        ("__init__.py", "from kedge.engine import open\nfrom kedge.agent import Agent"),
        ("testing/clock.py", "import kedge.server"),
        ("domain/ids.py", "import json\nfrom store import x"),
    ],
)
def test_a_right_import_is_let_pass(package: Path, file: str, source: str) -> None:
    """What points downwards, stays inside a unit, or leaves kedge is nobody's concern here."""
    (package / "_version.py").touch()
    (package / file).write_text(source)
    assert complaints(package) == []
