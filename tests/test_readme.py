"""The first minute of the README, command by command as it stands there, in an empty home."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import environment, markdown
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[1]
FOLDER, ADDRESS = "/tmp/harbour", "http://127.0.0.1:4096"
# What is installed here is in use by these tests, perhaps for another Python than `make`'s own.
MAKE = "make -s -o .venv/.runs-python3"


def commands(block: markdown.Block) -> list[tuple[str, str]]:
    """What is typed, each with what is shown after it."""
    typed = block.content.removeprefix("$ ").split("\n$ ")
    return [(first, rest) for first, _, rest in (each.partition("\n") for each in typed)]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What a new user has."""
    variables = {"PATH": os.environ["PATH"]}
    environment.set_home(variables, tmp_path / "home")
    return variables


def test_a_minute_to_the_first_undo(tmp_path: Path, environ: dict[str, str]) -> None:
    """A server, a prompt, an undo and a redo, with the output that the README shows."""
    for program in ("make", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here, which the README's first minute needs")
    start, _, by_hand, *_ = markdown.blocks(ROOT / "README.md", "console")
    (make_folder, _), (serve, shown) = commands(start)
    folder = str(tmp_path / "harbour")
    subprocess.run(make_folder.replace(FOLDER, folder), shell=True, check=True)
    port = f'ARGS="--port 0 --data {tmp_path / "data"} {folder}"'
    server = subprocess.Popen(
        ["bash", "-c", "exec " + serve.replace(f"ARGS={FOLDER}", port).replace("make", MAKE)],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        said, _, url = server.stdout.readline().strip().rpartition(" ")
        assert shown.strip() == f"{said} {ADDRESS}"
        script = "\n".join(f"{typed}; echo ---" for typed, _ in commands(by_hand))
        done = subprocess.run(
            ["bash", "-euc", script.replace(FOLDER, folder).replace(ADDRESS, url)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stderr == ""
        outputs = done.stdout.split("---\n")
        for (typed, wanted), got in zip(commands(by_hand), outputs, strict=False):
            assert got.strip() == wanted.strip() or (
                typed.startswith("curl") and got.startswith("{")
            ), typed
    finally:
        # As Ctrl-C in a terminal does; what `make` says of it is not kedge's concern.
        os.killpg(server.pid, signal.SIGINT)
        server.wait(PATIENCE)
        assert server.stdout is not None
        server.stdout.close()
