"""The root route: an overview of this server, as a page for browsers and as JSON for programs."""

import base64
import hashlib
import re
from collections.abc import Iterator
from html import escape

from kedge.server.overview import TO_CONFIGURE, Overview, overview_of
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes

routes = Routes()
_HOST = re.compile(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?", re.ASCII)
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1c2024, #e7e9eb);
  --soft: light-dark(#535960, #adb3bb); --line: light-dark(#e6e4de, #292d33);
  --sunken: light-dark(#f7f6f3, #101214); --accent: light-dark(#2a56b5, #8db0ff);
  --warn: light-dark(#805000, #efc06c); --warn-bg: light-dark(#fdf5e4, #272013);
  --warn-line: light-dark(#e4c17c, #5f4b20); --canvas: light-dark(#ffffff, #16181b);
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--canvas); color: var(--ink);
  font: 14px/22px ui-sans-serif, -apple-system, "Segoe UI", Roboto, system-ui, sans-serif; }
main { max-width: 720px; margin: 0 auto; padding: 64px 24px 48px; }
h1 { font-size: 20px; line-height: 28px; font-weight: 600; margin: 0; }
h1 small { font-size: 12px; font-weight: 400; color: var(--soft); margin-left: 8px; }
.lead { font-size: 16px; line-height: 24px; color: var(--soft); margin: 4px 0 32px; }
h2 { font-size: 13px; line-height: 20px; font-weight: 600; margin: 32px 0 8px; }
pre, code { font: 12px/20px var(--mono); }
pre { background: var(--sunken); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; margin: 0; overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 24px; margin: 0;
  border-top: 1px solid var(--line); }
dt, dd { margin: 0; padding: 8px 0; border-bottom: 1px solid var(--line); }
dt { color: var(--soft); margin-right: -24px; padding-right: 24px; }
dd { overflow-wrap: anywhere; }
.warn { background: var(--warn-bg); border: 1px solid var(--warn-line); border-radius: 10px;
  padding: 12px 16px; margin: 0; overflow-wrap: anywhere; }
ul.warn { padding-left: 32px; }
.warn b { color: var(--warn); font-weight: 600; }
p.soft { color: var(--soft); margin: 8px 0 0; }
a { color: var(--accent); }
@media (max-width: 480px) { main { padding: 32px 16px; }
  dl { grid-template-columns: 1fr; } dt { border: 0; padding: 8px 0 0; } dd { padding-top: 0; } }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = (
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'".encode(),
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept"),
)


@routes.get("/", "kedge.overview", answer=Overview)
async def get_overview(request: Request[NoQuery, NoBody]) -> Response:
    """The server, its model, what is ignored, and how to attach; a page for browsers."""
    host = request.headers.get(b"host", b"").decode("latin-1")
    # The address that the client used; only a valid host name is put into a command.
    url = f"http://{host}" if _HOST.fullmatch(host) else "URL"
    found = await overview_of(request.backend, await request.known_place(), url)
    if b"text/html" in request.headers.get(b"accept", b"").lower():
        return Response(_page(found).encode(), 200, b"text/html; charset=utf-8", _HEADERS)
    return json(found, headers=[("vary", "Accept")])


def _page(found: Overview) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>kedge: {escape(found.directory)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main>{''.join(_sections(found))}</main></body></html>\n"
    )


def _sections(found: Overview) -> Iterator[str]:
    yield f"<h1>kedge <small>{escape(found.version)}</small></h1>"
    yield (
        '<p class="lead">This server runs coding agents in your folder, and can take back what'
        " they did.</p>"
    )
    if found.isOffline:
        yield f'<p class="warn"><b>No model is configured.</b> {_marked(TO_CONFIGURE)}</p>'
    elif found.problem is not None:
        what = "Another model answers" if found.canAnswer else "The model cannot be asked"
        yield f'<p class="warn"><b>{what}.</b> {escape(found.problem)}</p>'
    yield f"<h2>Attach a terminal</h2><pre>{escape(found.attach)}</pre>"
    if found.isProtected:
        yield '<p class="soft">The password is the one that the server was started with.</p>'
    yield "<h2>What answers here</h2><dl>"
    yield f"<dt>Folder</dt><dd><code>{escape(found.directory)}</code></dd>"
    model = "none" if found.model is None else f"<code>{escape(found.model)}</code>"
    yield f"<dt>Model</dt><dd>{model}{', which carries out plain commands' * found.isOffline}</dd>"
    yield f"<dt>Sessions</dt><dd><code>{escape(found.database)}</code></dd>"
    protected = "a password is needed" if found.isProtected else "programs on this machine only"
    yield f"<dt>Access</dt><dd>{protected}</dd></dl>"
    if found.notices:
        items = "".join(f"<li>{_marked(notice)}</li>" for notice in found.notices)
        yield f'<h2>Ignored in the configuration</h2><ul class="warn">{items}</ul>'
    yield (
        '<h2>For programs</h2><p class="soft"><a href="/doc">/doc</a> describes every route in'
        ' OpenAPI; <a href="/global/health">/global/health</a> says whether all is well. There'
        " is no web interface yet.</p>"
    )


def _marked(text: str) -> str:
    """HTML of a text in which `code` is marked up."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
