"""The first minute of the README, command by command as it stands there, in an empty home."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import at_keyboard
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
    if shutil.which("make") is None:
        pytest.skip("there is no make here, which the README's first minute needs")
    start, by_hand, *_ = markdown.blocks(ROOT / "README.md", "console")
    (make_folder, _), (serve, shown) = commands(start)
    (path, _), (move, _), *typed = commands(by_hand)
    assert (path, move) == ('export PATH="$PWD/.venv/bin:$PATH"', f"cd {FOLDER}")
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    folder = tmp_path / "harbour"
    subprocess.run(make_folder.replace(FOLDER, str(folder)), shell=True, check=True)
    port = f'ARGS="--port 0 {folder}"'
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
        said, _, _ = server.stdout.readline().strip().rpartition(" ")
        assert shown.strip() == f"{said} {ADDRESS}"
        there = [type_in(line, wanted, folder, environ) for line, wanted in typed]
        assert there == [True, False, True]
    finally:
        # As Ctrl-C in a terminal does; what `make` says of it is not kedge's concern.
        os.killpg(server.pid, signal.SIGINT)
        server.wait(PATIENCE)
        assert server.stdout is not None
        server.stdout.close()


def type_in(line: str, wanted: str, folder: Path, environ: dict[str, str]) -> bool:
    """Type a command at a terminal, and Enter if it asks; returns whether the file is there."""
    with at_keyboard([shutil.which("bash") or "", "-c", line], folder, environ) as keyboard:
        if "[Y/n]" in wanted:
            keyboard.until("[Y/n]")
            keyboard.type(b"\n")
        done = keyboard.end()
    assert done.code == 0, done.out
    assert [each for each in wanted.splitlines() if each.strip() not in done.out] == []
    return (folder / "hello.txt").exists()
