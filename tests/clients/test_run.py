"""`opencode run --attach`, which sends one prompt and prints what comes of it."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.clients.workspace import Workspace
from tests.support.servers import Serve
from tests.support.timeouts import PATIENCE

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Done:
    """What a run gave back; what it tells about its work is on the side."""

    code: int
    answer: str
    told: str


def run(program: Path, url: str, workspace: Workspace, *arguments: str, script: str = "") -> Done:
    """Run it to its end; a script goes through its standard input."""
    done = subprocess.run(
        [program, "run", "--attach", url, *arguments],
        cwd=workspace.project,
        env=workspace.environ,
        input=script,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, _COLOUR.sub("", done.stderr))


def test_prompts_from_the_command_line(opencode: Path, workspace: Workspace, serve: Serve) -> None:
    """Answers are printed, tools told of, sessions continued, and errors are exit codes."""
    url = serve().url

    script = "write run.txt one\nbash cat run.txt\nsay It is written."
    done = run(opencode, url, workspace, script=script)
    assert (done.code, done.answer) == (0, "It is written.\n")
    assert "← Write run.txt" in done.told
    assert re.search(r"^\$ cat run.txt\none$", done.told, re.MULTILINE)
    assert workspace.text("run.txt") == "one\n"

    done = run(opencode, url, workspace, "--continue", "say And another.")
    assert (done.code, done.answer) == (0, "And another.\n")

    done = run(opencode, url, workspace, "--continue", "--format", "json", "bash cat run.txt")
    events = [json.loads(line) for line in done.answer.splitlines()]
    assert [event["type"] for event in events] == [
        *("step_start", "tool_use", "step_finish"),
        *("step_start", "text", "step_finish"),
    ]
    assert events[1]["part"]["state"]["output"] == "one\n"
    # Had it been a new session, the model would have introduced itself.
    assert events[4]["part"]["text"] == "Done: bash."
    session = events[0]["sessionID"]

    done = run(opencode, url, workspace, "--session", session, "bash touch refused.txt")
    assert "permission requested: bash (touch refused.txt); auto-rejecting" in done.told
    assert workspace.text("refused.txt") is None

    done = run(opencode, url, workspace, "--session", "ses_nope", "say Nothing.")
    assert (done.code, done.answer) == (1, "")
    assert "Session not found" in done.told


def test_a_password_is_asked_for(opencode: Path, workspace: Workspace, serve: Serve) -> None:
    """Who knows the password of a server, by OpenCode's own variable, may use it; nobody else."""
    url = serve(OPENCODE_SERVER_PASSWORD="sesame").url

    done = run(opencode, url, workspace, "say Nothing.")
    assert (done.code, done.answer) == (1, "")

    done = run(opencode, url, workspace, "--password", "sesame", "say Open.")
    assert (done.code, done.answer) == (0, "Open.\n")
