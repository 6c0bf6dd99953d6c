"""OpenCode's JavaScript SDK, by both of its entry points, in programs that node runs."""

import http.client
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.clients.conftest import server_name
from tests.clients.workspace import GREET, TIDES, Workspace
from tests.support.servers import Serve
from tests.support.timeouts import PATIENCE

SCRIPTS = Path(__file__).parent / "sdk"

SETTINGS = """
    GET /agent, GET /command, GET /config, GET /config/providers, GET /file, GET /file/content,
    GET /file/status, GET /find, GET /find/file, GET /find/symbol, GET /formatter, GET /lsp,
    GET /mcp, GET /path, GET /project, GET /project/current, GET /provider, GET /provider/auth,
    GET /vcs, GET /experimental/tool/ids, POST /log
"""
SESSIONS = """
    GET /session, POST /session, GET /session/status, GET /session/{ses}, DELETE /session/{ses},
    PATCH /session/{ses}, GET /session/{ses}/children, GET /session/{ses}/todo,
    GET /session/{ses}/diff, GET /session/{ses}/message, POST /session/{ses}/message,
    GET /session/{ses}/message/{msg}, POST /session/{ses}/fork, POST /session/{ses}/abort,
    POST /session/{ses}/prompt_async, POST /session/{ses}/shell,
    POST /session/{ses}/summarize, POST /session/{ses}/command, POST /session/{ses}/init,
    POST /session/{ses}/revert, POST /session/{ses}/unrevert, POST /session/{ses}/permissions/{per}
"""
STREAMS = "GET /event, GET /global/event"
SECOND = """
    DELETE /session/{ses}/message/{msg}, DELETE /session/{ses}/message/{msg}/part/{prt},
    PATCH /session/{ses}/message/{msg}/part/{prt}, GET /permission, POST /permission/{per}/reply,
    GET /question, POST /question/{que}/reply, POST /question/{que}/reject, GET /global/health,
    GET /skill, GET /experimental/session, GET /vcs/status, GET /vcs/diff
"""


def routes(*texts: str) -> set[str]:
    """The routes that some texts name."""
    return {" ".join(each.split()) for text in texts for each in text.split(",")}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        pytest.param("v1", routes(SETTINGS, SESSIONS, STREAMS), id="v1"),
        pytest.param("v2", routes(SETTINGS, SESSIONS, STREAMS, SECOND), id="v2"),
    ],
)
def test_a_program_uses_every_method(
    entry: str, wanted: set[str], sdk: Path, workspace: Workspace, serve: Serve
) -> None:
    """Every check that the program makes holds, and it has asked for every route."""
    workspace.configure("command/greet.md", GREET)
    workspace.configure("skills/tides/SKILL.md", TIDES)
    scripts = workspace.folder / "scripts"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / "node_modules").symlink_to(sdk / "node_modules")
    told = run_to_its_end(scripts, entry, workspace, serve)
    failed = [f"{each['behaviour']}: {each['error']}" for each in told["checks"] if "error" in each]
    assert not failed, "\n\n".join(failed)
    assert wanted - set(told["calls"]) == set()


def test_every_newer_route_is_known(sdk: Path, serve: Serve) -> None:
    """Whatever the SDK asks under `/api` is answered, or refused with the reason."""
    source = sdk / "node_modules/@opencode-ai/sdk/dist/v2/gen/sdk.gen.js"
    asked = re.findall(
        r"\.(get|post|put|patch|delete)\(\{\s*url: \"(/api/[^\"]+)\"", source.read_text()
    )
    assert ("get", "/api/fs/read/*") in asked
    server = urlsplit(serve().url)
    connection = http.client.HTTPConnection(str(server.hostname), server.port, timeout=PATIENCE)
    refused: dict[str, int] = {}
    for method, path in asked:
        # There is such a provider and integration.
        named = path.replace("{providerID}", "kedge").replace("{integrationID}", "openai")
        target = named.replace("{", "").replace("}", "")
        connection.request(method.upper(), f"{target}?query=x", headers={"connection": "close"})
        status = connection.getresponse().status
        connection.close()
        if status not in (200, 501):
            refused[f"{method} {path}"] = status
    assert refused == {}


def run_to_its_end(scripts: Path, entry: str, workspace: Workspace, serve: Serve) -> dict[str, Any]:
    """What the program tells at its end; it gets a server, and another one when it wants that."""
    server = serve()
    arguments = (entry, server.url, str(workspace.project), server_name(), str(PATIENCE))
    with subprocess.Popen(
        ["node", "story.mjs", *arguments],
        cwd=scripts,
        env=workspace.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        told: dict[str, Any] = {}
        for line in program.stdout:
            told = json.loads(line)
            if told.get("wanted") == "restart":
                server.stop()
                server = serve()
                program.stdin.write(f"{server.url}\n")
                program.stdin.flush()
    assert program.returncode == 0
    return told
