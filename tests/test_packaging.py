"""What is handed out is whole: the wheel's files and the lock; it installs nothing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from kedge import _version

ROOT = Path(__file__).parents[1]


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


def test_the_lock_pins_every_dependency() -> None:
    """A dependency added to pyproject.toml is in the lock too (`make lock`)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    wanted += project["dependency-groups"]["dev"]
    names = {normal(re.split(r"[\[<>=!~; ]", each)[0]) for each in wanted}
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {normal(name) for name in re.findall(r"^([\w.-]+)==", lock, flags=re.MULTILINE)}
    assert names - pinned == set()


def test_the_lock_names_only_versions_and_hashes() -> None:
    """No address, file or option that is true on one machine only gets into the lock."""
    pin = re.compile(r"[\w.-]+==[\w.+!]+( ; [^/@]+)? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    body = [line for line in lines if not line.startswith("#")]
    odd = [line for line in body if not (pin.fullmatch(line) or digest.fullmatch(line))]
    assert len(body) > 20
    assert odd == []


def normal(name: str) -> str:
    """A distribution's name in the one spelling that may be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
