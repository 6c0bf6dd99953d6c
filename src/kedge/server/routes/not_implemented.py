"""OpenCode's routes that kedge does not implement yet: they answer 501 with the reason."""

from kedge.server.errors import NotBuilt
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response
from kedge.server.router import Handler, Routes, always

routes = Routes()

_LATER: dict[str, tuple[tuple[str, str, str], ...]] = {
    "sharing sessions comes with a later version": (
        ("POST", "/session/{sessionID}/share", "session.share"),
        ("DELETE", "/session/{sessionID}/share", "session.unshare"),
    ),
    "worktrees come with a later version": (
        ("GET", "/experimental/worktree", "worktree.list"),
        ("POST", "/experimental/worktree", "worktree.create"),
        ("DELETE", "/experimental/worktree", "worktree.remove"),
        ("POST", "/experimental/worktree/reset", "worktree.reset"),
    ),
    "workspaces, copies of projects and the console belong to a service of OpenCode's": (
        (
            "POST",
            "/experimental/control-plane/move-session",
            "experimental.controlPlane.moveSession",
        ),
        ("GET", "/experimental/console/orgs", "experimental.console.listOrgs"),
        ("POST", "/experimental/console/switch", "experimental.console.switchOrg"),
        ("POST", "/experimental/workspace", "experimental.workspace.create"),
        ("GET", "/experimental/workspace/adapter", "experimental.workspace.adapter.list"),
        ("POST", "/experimental/workspace/sync-list", "experimental.workspace.syncList"),
        ("POST", "/experimental/workspace/warp", "experimental.workspace.warp"),
        ("DELETE", "/experimental/workspace/{id}", "experimental.workspace.remove"),
        ("POST", "/experimental/project/{projectID}/copy", "v2.projectCopy.create"),
        ("DELETE", "/experimental/project/{projectID}/copy", "v2.projectCopy.remove"),
        ("POST", "/experimental/project/{projectID}/copy/refresh", "v2.projectCopy.refresh"),
        (
            "POST",
            "/experimental/project/{projectID}/copy/generate-name",
            "experimental.projectCopy.generateName",
        ),
    ),
    "terminals come with a later version": (
        ("GET", "/pty", "pty.list"),
        ("POST", "/pty", "pty.create"),
        ("GET", "/pty/shells", "pty.shells"),
        ("GET", "/pty/{ptyID}", "pty.get"),
        ("PUT", "/pty/{ptyID}", "pty.update"),
        ("DELETE", "/pty/{ptyID}", "pty.remove"),
        ("GET", "/pty/{ptyID}/connect", "pty.connect"),
        ("POST", "/pty/{ptyID}/connect-token", "pty.connectToken"),
        ("GET", "/api/pty", "v2.pty.list"),
        ("POST", "/api/pty", "v2.pty.create"),
        ("GET", "/api/pty/{ptyID}", "v2.pty.get"),
        ("PUT", "/api/pty/{ptyID}", "v2.pty.update"),
        ("DELETE", "/api/pty/{ptyID}", "v2.pty.remove"),
        ("GET", "/api/pty/{ptyID}/connect", "v2.pty.connect"),
        ("POST", "/api/pty/{ptyID}/connect-token", "v2.pty.connectToken"),
    ),
    "MCP servers come with a later version": (
        ("POST", "/mcp", "mcp.add"),
        ("POST", "/mcp/{name}/auth", "mcp.auth.start"),
        ("DELETE", "/mcp/{name}/auth", "mcp.auth.remove"),
        ("POST", "/mcp/{name}/auth/callback", "mcp.auth.callback"),
        ("POST", "/mcp/{name}/auth/authenticate", "mcp.auth.authenticate"),
        ("POST", "/mcp/{name}/connect", "mcp.connect"),
        ("POST", "/mcp/{name}/disconnect", "mcp.disconnect"),
    ),
    "kedge keeps no keys: name them in the configuration or in the environment": (
        ("PUT", "/auth/{providerID}", "auth.set"),
        ("DELETE", "/auth/{providerID}", "auth.remove"),
        ("POST", "/provider/{providerID}/oauth/authorize", "provider.oauth.authorize"),
        ("POST", "/provider/{providerID}/oauth/callback", "provider.oauth.callback"),
        ("PATCH", "/api/credential/{credentialID}", "v2.credential.update"),
        ("DELETE", "/api/credential/{credentialID}", "v2.credential.remove"),
        ("POST", "/api/integration/{integrationID}/connect/key", "v2.integration.connect.key"),
        ("POST", "/api/integration/{integrationID}/connect/oauth", "v2.integration.connect.oauth"),
        ("GET", "/api/integration/attempt/{attemptID}", "v2.integration.attempt.status"),
        ("DELETE", "/api/integration/attempt/{attemptID}", "v2.integration.attempt.cancel"),
        (
            "POST",
            "/api/integration/attempt/{attemptID}/complete",
            "v2.integration.attempt.complete",
        ),
    ),
    "kedge does not write configuration: edit opencode.json, it counts from the next prompt on": (
        ("PATCH", "/config", "config.update"),
        ("PATCH", "/global/config", "global.config.update"),
    ),
    "kedge does not change your repository beside what an agent does in it": (
        ("POST", "/project/git/init", "project.initGit"),
        ("POST", "/vcs/apply", "vcs.apply"),
    ),
    "kedge is upgraded with the tool that installed it": (
        ("POST", "/global/upgrade", "global.upgrade"),
    ),
    "sessions are not copied between servers; give several servers one PostgreSQL": (
        ("POST", "/sync/start", "sync.start"),
        ("POST", "/sync/replay", "sync.replay"),
        ("POST", "/sync/steal", "sync.steal"),
        ("POST", "/sync/history", "sync.history.list"),
    ),
    "sessions are reached under /session: this server speaks OpenCode's first protocol": (
        ("GET", "/api/session", "v2.session.list"),
        ("POST", "/api/session", "v2.session.create"),
        ("GET", "/api/session/active", "v2.session.active"),
        ("GET", "/api/session/{sessionID}", "v2.session.get"),
        ("POST", "/api/session/{sessionID}/agent", "v2.session.switchAgent"),
        ("POST", "/api/session/{sessionID}/compact", "v2.session.compact"),
        ("GET", "/api/session/{sessionID}/context", "v2.session.context"),
        ("GET", "/api/session/{sessionID}/event", "v2.session.events"),
        ("GET", "/api/session/{sessionID}/history", "v2.session.history"),
        ("POST", "/api/session/{sessionID}/interrupt", "v2.session.interrupt"),
        ("GET", "/api/session/{sessionID}/message", "v2.session.messages"),
        ("GET", "/api/session/{sessionID}/message/{messageID}", "v2.session.message"),
        ("POST", "/api/session/{sessionID}/model", "v2.session.switchModel"),
        ("POST", "/api/session/{sessionID}/prompt", "v2.session.prompt"),
        ("POST", "/api/session/{sessionID}/revert/clear", "v2.session.revert.clear"),
        ("POST", "/api/session/{sessionID}/revert/commit", "v2.session.revert.commit"),
        ("POST", "/api/session/{sessionID}/revert/stage", "v2.session.revert.stage"),
        ("POST", "/api/session/{sessionID}/wait", "v2.session.wait"),
        ("GET", "/api/event", "v2.event.subscribe"),
    ),
    "asks are reached under /permission and /question": (
        ("GET", "/api/permission/request", "v2.permission.request.list"),
        ("GET", "/api/permission/saved", "v2.permission.saved.list"),
        ("DELETE", "/api/permission/saved/{id}", "v2.permission.saved.remove"),
        ("GET", "/api/question/request", "v2.question.request.list"),
        ("GET", "/api/session/{sessionID}/permission", "v2.session.permission.list"),
        ("POST", "/api/session/{sessionID}/permission", "v2.session.permission.create"),
        ("GET", "/api/session/{sessionID}/permission/{requestID}", "v2.session.permission.get"),
        (
            "POST",
            "/api/session/{sessionID}/permission/{requestID}/reply",
            "v2.session.permission.reply",
        ),
        ("GET", "/api/session/{sessionID}/question", "v2.session.question.list"),
        (
            "POST",
            "/api/session/{sessionID}/question/{requestID}/reject",
            "v2.session.question.reject",
        ),
        (
            "POST",
            "/api/session/{sessionID}/question/{requestID}/reply",
            "v2.session.question.reply",
        ),
    ),
    "files are read by GET /file/content": (("GET", "/api/fs/read/*", "v2.fs.read"),),
    "kedge does not steer terminal UIs": (
        ("POST", "/tui/append-prompt", "tui.appendPrompt"),
        ("POST", "/tui/open-help", "tui.openHelp"),
        ("POST", "/tui/open-sessions", "tui.openSessions"),
        ("POST", "/tui/open-themes", "tui.openThemes"),
        ("POST", "/tui/open-models", "tui.openModels"),
        ("POST", "/tui/submit-prompt", "tui.submitPrompt"),
        ("POST", "/tui/clear-prompt", "tui.clearPrompt"),
        ("POST", "/tui/execute-command", "tui.executeCommand"),
        ("POST", "/tui/show-toast", "tui.showToast"),
        ("POST", "/tui/publish", "tui.publish"),
        ("POST", "/tui/select-session", "tui.selectSession"),
        ("GET", "/tui/control/next", "tui.control.next"),
        ("POST", "/tui/control/response", "tui.control.response"),
    ),
}
"""By reason: the method, path and operation id of each route that is not implemented."""


def _refusing(reason: str) -> Handler:
    async def refuse(request: Request[NoQuery, NoBody]) -> Response:
        raise NotBuilt(f"Not built: {reason}")

    refuse.__doc__ = f"Not built: {reason}."
    return refuse


for _reason, _group in _LATER.items():
    for _method, _path, _operation in _group:
        _grants = None if _method == "GET" else always
        routes.add(_method, _path, _operation, status=501, grants=_grants)(_refusing(_reason))
