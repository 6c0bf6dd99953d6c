"""The documentation is true: its Python runs, its commands and links exist; not its coverage."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import environment, markdown

ROOT = Path(__file__).parents[1]
EXECUTED = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
ON_POSTGRESQL = [ROOT / "README.md", *sorted(ROOT.glob("docs/guides/*.md"))]
PAGES = [*EXECUTED, ROOT / "CONTRIBUTING.md"]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

CLASS = re.compile(r"^class (\w+)", flags=re.MULTILINE)
NO_CLASSES = {"None", "Host", "Origin", "Protocol"}
"""What else the architecture page writes with a capital letter."""
NO_RUN: dict[str, str] = {}
"""Why a `python no-run` block cannot be run, by the page's name and the block's first line."""

# In two pieces each, so that this file does not hold them.
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "python" + "hosted",
    "npm" + "js",
    "deb.deb" + "ian",
    "crates" + ".io",
)


def name_of(page: Path) -> str:
    """A page's path as a person would type it."""
    return str(page.relative_to(ROOT))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh git repository with one commit as the working directory, and an empty home."""
    variables: dict[str, str] = {}
    environment.set_home(variables, tmp_path / "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    repository = tmp_path / "example"
    repository.mkdir()
    (repository / "README.md").write_text("# Example\n")
    identity = ("-c", "user.name=example", "-c", "user.email=example@localhost")
    for command in (
        ("init", "--quiet"),
        ("add", "."),
        (*identity, "commit", "--quiet", "-m", "one"),
    ):
        subprocess.run(("git", *command), cwd=repository, check=True)
    monkeypatch.chdir(repository)
    return repository


def unexcused(page: Path, excuses: dict[str, str]) -> list[str]:
    """The places of blocks that are kept from running without a reason."""
    kept = [block for block in markdown.blocks(page, "python") if "no-run" in block.words]
    return [block.place for block in kept if excuse_key(block) not in excuses]


def excuse_key(block: markdown.Block) -> str:
    """How NO_RUN names a block: line numbers would not survive the next change of the page."""
    return f"{block.page.name}: {block.content.splitlines()[0]}"


def make_commands(page: Path) -> list[tuple[str, str]]:
    """The targets in `$ make ...` lines of console blocks, each with its place."""
    commands = []
    for block in markdown.blocks(page, "console"):
        for offset, line in enumerate(block.content.splitlines()):
            if line.startswith("$ make"):
                words = line.split("#")[0].split()[2:]
                place = f"{page.name}:{block.line + offset}"
                commands += [(word, place) for word in words if "=" not in word]
    return commands


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python example runs as printed, top to bottom."""
    run_page(page, monkeypatch)


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the Python blocks of a page in one namespace."""
    # A real module, because types that the page defines are looked up by their module's name.
    module = ModuleType("kedge_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    runnable = [block for block in markdown.blocks(page, "python") if "no-run" not in block.words]
    markdown.run(runnable, module.__dict__)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("page", ON_POSTGRESQL, ids=name_of)
def test_first_pages_run_on_postgresql(
    page: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python of the README and the guides runs unchanged when a variable names a PostgreSQL."""
    monkeypatch.setenv("KEDGE_DATABASE_URL", postgres_url)
    run_page(page, monkeypatch)


@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_no_block_is_kept_from_running_without_a_reason(page: Path) -> None:
    """A block marked `no-run` is in NO_RUN with its reason."""
    assert unexcused(page, NO_RUN) == []


def test_no_reason_outlives_its_block() -> None:
    """NO_RUN names only blocks that are still there."""
    present = {excuse_key(block) for page in EXECUTED for block in markdown.blocks(page, "python")}
    assert NO_RUN.keys() <= present


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    """Every `$ make X` in a console block names a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    missing = [
        f"{place}: make {word}" for word, place in make_commands(page) if word not in targets
    ]
    assert missing == []


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_examples_print_what_the_guides_say(example: Path) -> None:
    """Every program in examples/ runs as a guide tells, and its output is printed there."""
    command = f"$ .venv/bin/python {name_of(example)}\n"
    pages = [
        page
        for page in EXECUTED
        if any(command in block.content for block in markdown.blocks(page, "console"))
    ]
    assert pages
    done = subprocess.run(
        [sys.executable, example], check=False, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for page in pages:
        assert done.stdout in [block.content for block in markdown.blocks(page, "text")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project names one that exists, and a heading that it has."""
    assert broken_links(page) == []


def broken_links(page: Path) -> list[str]:
    """The links of a page to files or headings that are not there."""
    broken = []
    for target in markdown.links(page):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in markdown.anchors(file)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", [ROOT / "docs" / "architecture.md"], ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    """Every file that the page names in code is there, by the end of its path."""
    paths = [f"/{name_of(file)}" for file in ROOT.rglob("*.py") if ".venv" not in file.parts]
    named = re.findall(r"`([\w/]+\.py)`", page.read_text())
    assert len(named) > 100
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in paths)] == []


def test_modules_that_have_moved_are_where_it_says() -> None:
    """CONTRIBUTING's table of new and old names leads to files that are there."""
    rows = re.findall(r"^\| `([\w/]+\.py)` \| `", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert len(rows) > 100
    assert [name for name in rows if not (ROOT / "src" / "kedge" / name).is_file()] == []


def test_classes_that_are_named_exist() -> None:
    """Every class that the architecture page names beside its file is defined there, and every
    other one somewhere."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    classes = {
        str(path.relative_to(ROOT / "src" / "kedge")): CLASS.findall(path.read_text())
        for path in (ROOT / "src").rglob("*.py")
    }
    beside = re.findall(r"`([A-Z]\w+)` \(`([\w/]+\.py)`\)", page)
    assert len(beside) > 5
    assert [pair for pair in beside if pair[0] not in classes[pair[1]]] == []
    known = {name for names in classes.values() for name in names} | NO_CLASSES
    assert [name for name in re.findall(r"`([A-Z][a-z]\w+)`", page) if name not in known] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A link to a missing file or heading counts as broken, one to the web is not looked at."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[1](page.md#a-b-c) [2](#d) [3](no.md) [4](https://example.invalid)\n"
    )
    assert broken_links(page) == ["#d", "no.md"]


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the user's setting: no file of the project names a host."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so which files are the project's is not known")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    files = [path for name in names if name and (path := ROOT / name.decode()).is_file()]
    assert ROOT / "pyproject.toml" in files
    assert [(name_of(file), host) for file in files for host in registry_hosts(file)] == []


def registry_hosts(file: Path) -> list[str]:
    """The registry hosts that a file names."""
    content = file.read_bytes().lower()
    return [host for host in REGISTRY_HOSTS if host.encode() in content]


def test_a_registry_host_is_found(tmp_path: Path) -> None:
    """The look for registry hosts can fail, also in a file that is not text."""
    file = tmp_path / "x"
    file.write_bytes(b"\xff\0 https://" + REGISTRY_HOSTS[0].upper().encode() + b"/simple")
    assert registry_hosts(file) == [REGISTRY_HOSTS[0]]


def test_a_block_kept_from_running_needs_a_reason(tmp_path: Path) -> None:
    """A `no-run` block counts as unexcused until its first line is listed."""
    page = tmp_path / "page.md"
    page.write_text("```python no-run\nrm_rf()\n```\n")
    assert unexcused(page, {}) == ["page.md:2"]
    assert unexcused(page, {"page.md: rm_rf()": "dangerous"}) == []


def test_make_commands_are_found(tmp_path: Path) -> None:
    """Targets are read from prompt lines of console blocks, without settings and remarks."""
    page = tmp_path / "page.md"
    page.write_text("```console\n$ make PYTHON=python3.13 test check  # both\nmake nothing\n```\n")
    assert make_commands(page) == [("test", "page.md:2"), ("check", "page.md:2")]
