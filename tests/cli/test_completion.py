"""Completion in a real bash, key by key."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.projects import prompts
from tests.cli.terminal import Keyboard, Terminal, at_keyboard

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash here")


@contextmanager
def bash(terminal: Terminal) -> Iterator[Keyboard]:
    """An interactive bash in the project that completes kedge's commands."""
    script = terminal.home / "completion"
    script.write_text(terminal.run("completion", "bash").out)
    path = f"{Path(sys.executable).parent}:{terminal.environ['PATH']}"
    environ = {**terminal.environ, "PATH": path, "PS1": "$ "}
    words = [BASH or "", "--noprofile", "--norc", "-i"]
    with at_keyboard(words, terminal.project, environ, width=200) as keyboard:
        keyboard.type(b"source ~/completion; bind 'set enable-bracketed-paste off'; echo re''ady\n")
        keyboard.until("ready")
        yield keyboard


async def test_what_can_be_typed_is_completed(terminal: Terminal) -> None:
    """Commands, options and their values, ids with and without a prefix, files, models, agents."""
    id = await prompts(terminal, "write a.txt one")
    (terminal.project / "two words.txt").touch()
    (terminal.project / "folder").mkdir()
    config = terminal.home / ".config" / "kedge" / "kedge.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"agent": {"$(touch${IFS}owned)": {"mode": "primary"}}}))
    assert "$(touch" in terminal.run("agents").out
    with bash(terminal) as keyboard:
        for typed, made in (
            ("kedge sess", "kedge sessions "),
            ("kedge help backu", "kedge help backup "),
            ("kedge backup cr", "kedge backup create "),
            ("kedge undo --strategy ov", "kedge undo --strategy overwrite "),
            (f"kedge show {id[4:8]}", f"kedge show {id[4:]} "),
            (f"kedge diff -s {id[:8]}", f"kedge diff -s {id} "),
            (f"kedge -C . show {id[4:8]}", f"kedge -C . show {id[4:]} "),
            ("kedge cat two", "kedge cat two\\ words.txt "),
            ("kedge undo --files a", "kedge undo --files a.txt "),
            ("kedge sessions -C fol", "kedge sessions -C folder/"),
            ("kedge run --model ke", "kedge run --model kedge/offline "),
            ("kedge run --agent=pl", "kedge run --agent=plan "),
            ("kedge log --fu", "kedge log --full "),
            ("kedge revert l", "kedge revert last "),
        ):
            keyboard.type(typed.encode() + b"\t")
            keyboard.until(made)
            keyboard.type(b"\x15")
    assert not (terminal.project / "owned").exists()
