"""The description of the server: valid, complete, and with OpenCode's operation ids."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from kedge.server import openapi
from kedge.server.routes import ALL
from tests.server.world import Served

OPENCODE = """
GET /api/health v2.health.get
GET /api/session v2.session.list
POST /api/session v2.session.create
GET /api/session/active v2.session.active
GET /api/session/{sessionID} v2.session.get
POST /api/session/{sessionID}/agent v2.session.switchAgent
POST /api/session/{sessionID}/compact v2.session.compact
GET /api/session/{sessionID}/context v2.session.context
GET /api/session/{sessionID}/event v2.session.events
GET /api/session/{sessionID}/history v2.session.history
POST /api/session/{sessionID}/interrupt v2.session.interrupt
GET /api/session/{sessionID}/message v2.session.messages
GET /api/session/{sessionID}/message/{messageID} v2.session.message
POST /api/session/{sessionID}/model v2.session.switchModel
POST /api/session/{sessionID}/prompt v2.session.prompt
POST /api/session/{sessionID}/revert/clear v2.session.revert.clear
POST /api/session/{sessionID}/revert/commit v2.session.revert.commit
POST /api/session/{sessionID}/revert/stage v2.session.revert.stage
POST /api/session/{sessionID}/wait v2.session.wait
GET /api/event v2.event.subscribe
GET /api/permission/request v2.permission.request.list
GET /api/permission/saved v2.permission.saved.list
DELETE /api/permission/saved/{id} v2.permission.saved.remove
GET /api/question/request v2.question.request.list
GET /api/session/{sessionID}/permission v2.session.permission.list
POST /api/session/{sessionID}/permission v2.session.permission.create
GET /api/session/{sessionID}/permission/{requestID} v2.session.permission.get
POST /api/session/{sessionID}/permission/{requestID}/reply v2.session.permission.reply
GET /api/session/{sessionID}/question v2.session.question.list
POST /api/session/{sessionID}/question/{requestID}/reject v2.session.question.reject
POST /api/session/{sessionID}/question/{requestID}/reply v2.session.question.reply
GET /api/pty v2.pty.list
POST /api/pty v2.pty.create
GET /api/pty/{ptyID} v2.pty.get
PUT /api/pty/{ptyID} v2.pty.update
DELETE /api/pty/{ptyID} v2.pty.remove
GET /api/pty/{ptyID}/connect v2.pty.connect
POST /api/pty/{ptyID}/connect-token v2.pty.connectToken
PATCH /api/credential/{credentialID} v2.credential.update
DELETE /api/credential/{credentialID} v2.credential.remove
GET /api/integration/{integrationID} v2.integration.get
POST /api/integration/{integrationID}/connect/key v2.integration.connect.key
POST /api/integration/{integrationID}/connect/oauth v2.integration.connect.oauth
GET /api/integration/attempt/{attemptID} v2.integration.attempt.status
DELETE /api/integration/attempt/{attemptID} v2.integration.attempt.cancel
POST /api/integration/attempt/{attemptID}/complete v2.integration.attempt.complete
GET /api/provider/{providerID} v2.provider.get
GET /api/fs/list v2.fs.list
GET /api/fs/read/* v2.fs.read
PUT /auth/{providerID} auth.set
DELETE /auth/{providerID} auth.remove
POST /log app.log
GET /global/health global.health
GET /global/event global.event
GET /global/config global.config.get
PATCH /global/config global.config.update
POST /global/dispose global.dispose
POST /global/upgrade global.upgrade
GET /event event.subscribe
GET /config config.get
PATCH /config config.update
GET /config/providers config.providers
GET /experimental/capabilities experimental.capabilities.get
GET /experimental/tool tool.list
GET /experimental/tool/ids tool.ids
GET /experimental/worktree worktree.list
POST /experimental/worktree worktree.create
DELETE /experimental/worktree worktree.remove
POST /experimental/worktree/reset worktree.reset
GET /experimental/session experimental.session.list
GET /find find.text
GET /find/file find.files
GET /find/symbol find.symbols
GET /file file.list
GET /file/content file.read
GET /file/status file.status
POST /instance/dispose instance.dispose
GET /path path.get
GET /vcs vcs.get
GET /vcs/status vcs.status
GET /vcs/diff vcs.diff
GET /vcs/diff/raw vcs.diff.raw
POST /vcs/apply vcs.apply
GET /command command.list
GET /agent app.agents
GET /skill app.skills
GET /lsp lsp.status
GET /formatter formatter.status
GET /mcp mcp.status
POST /mcp mcp.add
POST /mcp/{name}/auth mcp.auth.start
DELETE /mcp/{name}/auth mcp.auth.remove
POST /mcp/{name}/auth/callback mcp.auth.callback
POST /mcp/{name}/auth/authenticate mcp.auth.authenticate
POST /mcp/{name}/connect mcp.connect
POST /mcp/{name}/disconnect mcp.disconnect
GET /project project.list
GET /project/current project.current
POST /project/git/init project.initGit
PATCH /project/{projectID} project.update
GET /project/{projectID}/directories project.directories
GET /question question.list
POST /question/{requestID}/reply question.reply
POST /question/{requestID}/reject question.reject
GET /permission permission.list
POST /permission/{requestID}/reply permission.reply
GET /provider provider.list
GET /provider/auth provider.auth
POST /provider/{providerID}/oauth/authorize provider.oauth.authorize
POST /provider/{providerID}/oauth/callback provider.oauth.callback
GET /session session.list
POST /session session.create
GET /session/status session.status
GET /session/{sessionID} session.get
DELETE /session/{sessionID} session.delete
PATCH /session/{sessionID} session.update
GET /session/{sessionID}/children session.children
GET /session/{sessionID}/todo session.todo
GET /session/{sessionID}/diff session.diff
GET /session/{sessionID}/message session.messages
POST /session/{sessionID}/message session.prompt
GET /session/{sessionID}/message/{messageID} session.message
DELETE /session/{sessionID}/message/{messageID} session.deleteMessage
POST /session/{sessionID}/fork session.fork
POST /session/{sessionID}/abort session.abort
POST /session/{sessionID}/init session.init
POST /session/{sessionID}/share session.share
DELETE /session/{sessionID}/share session.unshare
POST /session/{sessionID}/summarize session.summarize
POST /session/{sessionID}/prompt_async session.prompt_async
POST /session/{sessionID}/command session.command
POST /session/{sessionID}/shell session.shell
POST /session/{sessionID}/revert session.revert
POST /session/{sessionID}/unrevert session.unrevert
POST /session/{sessionID}/permissions/{permissionID} permission.respond
DELETE /session/{sessionID}/message/{messageID}/part/{partID} part.delete
PATCH /session/{sessionID}/message/{messageID}/part/{partID} part.update
POST /sync/start sync.start
POST /sync/replay sync.replay
POST /sync/steal sync.steal
POST /sync/history sync.history.list
POST /tui/append-prompt tui.appendPrompt
POST /tui/open-help tui.openHelp
POST /tui/open-sessions tui.openSessions
POST /tui/open-themes tui.openThemes
POST /tui/open-models tui.openModels
POST /tui/submit-prompt tui.submitPrompt
POST /tui/clear-prompt tui.clearPrompt
POST /tui/execute-command tui.executeCommand
POST /tui/show-toast tui.showToast
POST /tui/publish tui.publish
POST /tui/select-session tui.selectSession
GET /tui/control/next tui.control.next
POST /tui/control/response tui.control.response
"""
"""Every operation of OpenCode 1.18.33: its method, path and id."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The description, without a server."""
    return openapi.describe(ALL, "1.0")


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and operation."""
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_operation_of_opencode_is_there(described: dict[str, Any]) -> None:
    """Built, or there to say that it is not: with the same method, path and id."""
    here = {
        f"{method} {path} {operation['operationId']}"
        for method, path, operation in operations(described)
    }
    assert set(OPENCODE.strip().splitlines()) - here == set()


def test_what_is_kedges_own_says_so(described: dict[str, Any]) -> None:
    """By its mark, and by an id that begins with kedge."""
    for _, path, operation in operations(described):
        assert operation.get("x-kedge", False) == operation["operationId"].startswith("kedge."), (
            path
        )


def test_ids_are_unique(described: dict[str, Any]) -> None:
    """Clients that are generated from the description name their methods by them."""
    ids = [operation["operationId"] for _, _, operation in operations(described)]
    assert len(ids) == len(set(ids))


def test_every_operation_is_described(described: dict[str, Any]) -> None:
    """With a sentence, its parameters, what it answers, and how it refuses."""
    for method, path, operation in operations(described):
        where = f"{method} {path}"
        assert operation["summary"].endswith((".", ":")), where
        said = [(each["in"], each["name"]) for each in operation["parameters"]]
        assert len(said) == len(set(said)), where
        assert ("query", "directory") in said, where
        in_path = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert {name for place, name in said if place == "path"} == in_path, where
        assert {"4XX", "5XX"} < set(operation["responses"]), where


def test_it_is_openapi(described: dict[str, Any]) -> None:
    """As the standard's own schema has it."""
    schemathesis.openapi.from_dict(described).validate()


def test_references_lead_somewhere_and_schemas_are_valid(described: dict[str, Any]) -> None:
    """Every schema is JSON Schema 2020-12, and every reference has a target that is used."""
    components = described["components"]["schemas"]
    for name, schema in components.items():
        jsonschema_rs.meta.validate(schema)
        assert "\U0010ffff" not in schema.get("properties", {}), name
    found = set(_references(described))
    assert found == {f"#/components/schemas/{name}" for name in components}


def test_values_that_keep_unknown_keys_say_so(described: dict[str, Any]) -> None:
    """What a client adds to them is no error; the field that keeps it does not show."""
    session = described["components"]["schemas"]["SessionInfo"]
    assert session["additionalProperties"] is True
    assert {"id", "slug", "projectID", "directory", "title", "version", "time"} <= set(
        session["required"]
    )


async def test_it_is_served(served: Served) -> None:
    """As the routes that answer it are."""
    reply = await served.get("/doc")
    assert reply.json["openapi"] == "3.1.0"
    assert reply.json["info"]["version"] == served.running.backend.engine.version
    assert "/doc" in reply.json["paths"]


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for each in node.values():
            yield from _references(each)
    elif isinstance(node, list | tuple):
        for each in node:
            yield from _references(each)
