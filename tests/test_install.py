"""What `make` does before everything else: `.venv` from a lock, by real installers, offline."""

import base64
import hashlib
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest

from tests.support import environment
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
UNREACHABLE = "http://127.0.0.1:1"


class Checkout:
    """A small project with kedge's own scripts, and the folder that its packages come from."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        (self.root / "pyproject.toml").touch()
        package = self.root / "src" / "kedge"
        package.mkdir(parents=True)
        (package / "__main__.py").write_text("def run():\n    import ballast\n    print('runs')\n")
        ballast = self.wheel("ballast", {"ballast.py": ""})
        self.pins = {"ballast": ballast}
        self.lock("requirements.lock", ballast)
        # By way of a script, because the real wheel is large.
        script = f'#!/bin/sh\nexec "{UV}" "$@"\n'
        uv = self.wheel("uv", {"uv-1.0.data/scripts/uv": script})
        self.lock("requirements-dev.lock", ballast, self.wheel("tool", {"tool.py": ""}), uv)
        self.environ = {"PATH": str(folder / "bin")}
        environment.set_home(self.environ, folder / "home")
        self.path = folder / "bin"
        self.path.mkdir()

    def wheel(self, name: str, files: dict[str, str]) -> str:
        """Make a package that can be installed; gives its line of a lock."""
        info = f"{name}-1.0.dist-info"
        files = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = [f"{path},{_digest(text)},{len(text)}" for path, text in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,\n"])
        file = self.wheels / f"{name}-1.0-py3-none-any.whl"
        with ZipFile(file, "w") as packed:
            for path, text in files.items():
                entry = ZipInfo(path)
                entry.external_attr = 0o100755 << 16
                packed.writestr(entry, text)
        return (
            f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        )

    def lock(self, name: str, *pins: str) -> None:
        """Write a lock."""
        (self.root / name).write_text("".join(pins))

    def pip_finds(self, *, alone: bool = True) -> None:
        """Let pip find the packages, and know of no other place."""
        self.environ["PIP_FIND_LINKS"] = str(self.wheels)
        # Else it tries one that is not there, once.
        self.environ |= {"PIP_NO_INDEX": "1"} if alone else {"PIP_RETRIES": "0"}
        if not alone:
            self.environ |= {"HTTPS_PROXY": UNREACHABLE, "HTTP_PROXY": UNREACHABLE}

    def uv_finds(self, *places: Path) -> None:
        """Let uv find packages in these folders alone."""
        file = self.path / "uv.toml"
        file.write_text(f"no-index = true\nfind-links = {[str(place) for place in places]}\n")
        self.environ["UV_CONFIG_FILE"] = str(file)

    def command(self, *arguments: str) -> list[str]:
        """What the Makefile runs, once it has found the Python."""
        return [sys.executable, str(self.root / "scripts" / "environment.py"), *arguments]

    def install(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Install, to the end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self) -> "subprocess.Popen[str]":
        """Begin to install."""
        return subprocess.Popen(self.command(), env=self.environ, stderr=subprocess.PIPE, text=True)

    def run(self) -> str:
        """What the installed command says."""
        command = [self.root / ".venv" / "bin" / "kedge"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def has(self, module: str) -> bool:
        """Whether a module is installed."""
        return any(self.root.glob(f".venv/lib/python3*/site-packages/{module}.py"))


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh one."""
    return Checkout(tmp_path)


def test_pip_fetches_the_uv_that_installs(checkout: Checkout) -> None:
    """Where there is no uv, the locked one is put into `.venv`; the tools are left out."""
    checkout.pip_finds(alone=False)
    checkout.uv_finds(checkout.wheels)
    done = checkout.install()
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[1:-1] == [
        "kedge: fetching uv, which is faster than pip ...",
        "kedge: fetching the packages of requirements.lock ...",
        "kedge: fetching 1 package ...",
        "kedge: unpacking them ...",
    ]
    assert (checkout.run(), checkout.has("tool")) == ("runs\n", False)


@pytest.mark.parametrize("own", [None, "mine.pem"])
def test_uv_trusts_the_certificates_that_pip_trusts(checkout: Checkout, own: str | None) -> None:
    """Where a proxy looks into connections, it is pip that was told its certificate; what was said
    to all programs counts more."""
    told = checkout.path / "told"
    script = f'#!/bin/sh\necho "$SSL_CERT_FILE" >>"{told}"\nexec "{UV}" "$@"\n'
    uv = checkout.wheel("uv", {"uv-1.0.data/scripts/uv": script})
    checkout.lock("requirements-dev.lock", checkout.pins["ballast"], uv)
    (checkout.path / "a proxy's.pem").touch()
    checkout.environ["PIP_CERT"] = str(checkout.path / "a proxy's.pem")
    if own is not None:
        checkout.environ["SSL_CERT_FILE"] = own
    checkout.pip_finds(alone=False)
    checkout.uv_finds(checkout.wheels)
    assert checkout.install().returncode == 0
    assert checkout.install("--tools").returncode == 0
    assert told.read_text().splitlines() == [own or checkout.environ["PIP_CERT"]] * 2


def test_the_tools_come_on_top(checkout: Checkout) -> None:
    """What works on kedge runs it too, in the same `.venv`."""
    checkout.pip_finds()
    assert checkout.install().returncode == 0
    assert checkout.install("--tools").returncode == 0
    assert (checkout.run(), checkout.has("tool")) == ("runs\n", True)


def test_pip_installs_where_it_alone_knows_the_way(checkout: Checkout) -> None:
    """Who told pip where packages are need not tell uv as well."""
    checkout.pip_finds()
    done = checkout.install()
    assert "uv" not in done.stderr
    assert "kedge: unpacking them ..." in done.stderr.splitlines()
    assert checkout.run() == "runs\n"


def test_pip_goes_on_where_uv_does_not_manage(checkout: Checkout) -> None:
    """A uv that reaches nothing is no reason to fail."""
    (checkout.path / "uv").symlink_to(UV)
    checkout.uv_finds()
    checkout.pip_finds()
    done = checkout.install()
    assert "kedge: uv did not manage, so pip goes on; it said: " in done.stderr
    assert checkout.run() == "runs\n"


def test_pip_goes_on_where_there_is_no_uv_to_be_had(checkout: Checkout) -> None:
    """As on a machine that uv is not made for."""
    (checkout.wheels / "uv-1.0-py3-none-any.whl").unlink()
    checkout.pip_finds(alone=False)
    done = checkout.install()
    assert "kedge: there is no uv to be had, so pip goes on: ERROR: " in done.stderr
    assert checkout.run() == "runs\n"


@pytest.mark.parametrize("with_uv", [True, False])
def test_another_package_than_the_locked_one_is_refused(checkout: Checkout, with_uv: bool) -> None:
    """Hashes are checked by whichever installs, and what failed is made anew."""
    checkout.pip_finds()
    if with_uv:
        (checkout.path / "uv").symlink_to(UV)
        checkout.uv_finds(checkout.wheels)
    checkout.wheel("ballast", {"ballast.py": "print('another')"})
    done = checkout.install()
    assert done.returncode == 1
    assert "the packages of requirements.lock could not be installed" in done.stderr
    assert "hash" in done.stderr.lower()
    assert not checkout.has("ballast")
    checkout.wheel("ballast", {"ballast.py": ""})
    assert checkout.install().returncode == 0
    assert checkout.run() == "runs\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_installation_is_begun_anew(checkout: Checkout, number: int) -> None:
    """Ctrl-C while packages are fetched ends all of it, and what it left is not used."""
    checkout.pip_finds()
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"http://127.0.0.1:{server.getsockname()[1]}/"
        found, checkout.environ["PIP_FIND_LINKS"] = checkout.environ["PIP_FIND_LINKS"], silent
        with checkout.start() as installing:
            fetching, _ = server.accept()
            (checkout.root / ".venv" / "left").touch()
            installing.send_signal(number)
            _, said = installing.communicate(timeout=PATIENCE)
            with fetching:
                fetching.settimeout(PATIENCE)
                # pip has ended as well: nothing follows its request.
                while fetching.recv(4096):
                    pass
    assert installing.returncode == 130
    assert said.splitlines()[-1] == "kedge: stopped; the next make begins with a new .venv"
    checkout.environ["PIP_FIND_LINKS"] = found
    assert checkout.install().returncode == 0
    assert not (checkout.root / ".venv" / "left").exists()
    assert checkout.run() == "runs\n"


def test_a_killed_installation_is_waited_for_and_begun_anew(checkout: Checkout) -> None:
    """An installer that outlives what started it does not write into the next `.venv`."""
    checkout.pip_finds()
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"http://127.0.0.1:{server.getsockname()[1]}/"
        found, checkout.environ["PIP_FIND_LINKS"] = checkout.environ["PIP_FIND_LINKS"], silent
        with checkout.start() as installing:
            fetching, _ = server.accept()
            (checkout.root / ".venv" / "left").touch()
            installing.kill()
        checkout.environ["PIP_FIND_LINKS"] = found
        with fetching, checkout.start() as second:
            assert second.stderr is not None
            said = second.stderr.readline()
            assert said == "kedge: waiting for another make, which is installing ...\n"
            assert (checkout.root / ".venv" / "left").exists()
            server.close()
            fetching.close()
            second.communicate(timeout=PATIENCE)
    assert second.returncode == 0
    assert not (checkout.root / ".venv" / "left").exists()
    assert checkout.run() == "runs\n"


def test_a_terminal_gets_one_line_that_lives(checkout: Checkout) -> None:
    """It says what is done and for how long, and only the last line stays."""
    checkout.pip_finds()
    ours, theirs = pty.openpty()
    with subprocess.Popen(checkout.command(), env=checkout.environ, stderr=theirs) as installing:
        os.close(theirs)
        shown = b""
        # Linux reports the end of a terminal as an error.
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    assert installing.returncode == 0
    assert b"\rkedge: preparing .venv for Python " in shown
    assert shown.count(b"\n") == 1
    assert b"kedge: .venv is there, after " in shown.splitlines()[-1]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
