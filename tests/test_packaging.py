"""What is handed out is whole: the wheel's files and the locks; it installs nothing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from kedge import _version

ROOT = Path(__file__).parents[1]
RUN_LOCK, TOOLS_LOCK = "requirements.lock", "requirements-dev.lock"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    """Queries, static files and the typing marker are in the wheel as well as the modules."""
    source = ROOT / "src"
    files = [file for file in (source / "kedge").rglob("*") if file.is_file()]
    expected = {str(file.relative_to(source)) for file in files if "__pycache__" not in file.parts}
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert "kedge/py.typed" in packed
    assert packed == expected


def test_the_wheel_says_its_version(wheel: Path) -> None:
    """The version in the wheel's name is the one that the package reports."""
    assert wheel.name == f"kedge-{_version.__version__}-py3-none-any.whl"


def project() -> tuple[set[str], set[str], set[str]]:
    """What pyproject.toml asks for: to run, for the extras, as tools."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = said["project"]["optional-dependencies"].values()
    asked = (
        said["project"]["dependencies"],
        [each for extra in extras for each in extra],
        said["dependency-groups"]["dev"],
    )
    runs, extra, tools = (
        {normal(re.split(r"[\[<>=!~; ]", each)[0]) for each in every} for every in asked
    )
    return runs, extra, tools


def pins(lock: str) -> dict[str, str]:
    """What a lock says of each package: version, condition and hashes."""
    found = re.findall(
        r"^([\w.-]+)(==.*\\\n(?:    .*\n)+)", (ROOT / lock).read_text(), re.MULTILINE
    )
    return {normal(name): pinned for name, pinned in found}


def test_the_locks_pin_every_dependency() -> None:
    """A dependency added to pyproject.toml is in the locks too (`make lock`)."""
    runs, extra, tools = project()
    assert runs - pins(RUN_LOCK).keys() == set()
    assert (runs | extra | tools) - pins(TOOLS_LOCK).keys() == set()


def test_the_lock_to_run_on_has_no_tools() -> None:
    """Who only wants to run kedge waits neither for the developers' tools nor for the extras."""
    _, extra, tools = project()
    assert pins(RUN_LOCK).keys() & (extra | tools) == set()
    # What tools alone bring along, and heavy enough to be noticed.
    assert pins(RUN_LOCK).keys() & {"jsonschema-rs", "psycopg-binary", "pygments", "rich"} == set()


def test_the_locks_agree() -> None:
    """What is tested is what is run: each pin of the one lock stands in the other."""
    runs, tools = pins(RUN_LOCK), pins(TOOLS_LOCK)
    assert runs.items() - tools.items() == set()


@pytest.mark.parametrize("name", [RUN_LOCK, TOOLS_LOCK])
def test_the_locks_name_only_versions_and_hashes(name: str) -> None:
    """No address, file or option that is true on one machine only gets into a lock."""
    pin = re.compile(r"[\w.-]+==[\w.+!]+( ; [^/@]+)? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    lines = (ROOT / name).read_text().splitlines()
    body = [line for line in lines if not line.startswith("#")]
    odd = [line for line in body if not (pin.fullmatch(line) or digest.fullmatch(line))]
    assert len(body) > 20
    assert odd == []


def normal(name: str) -> str:
    """A distribution's name in the one spelling that may be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
