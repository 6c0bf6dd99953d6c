"""Who is let in: hosts, origins, passwords, and the headers that browsers want."""

import base64
import logging
from collections.abc import AsyncIterator, Mapping
from itertools import product
from urllib.parse import urlsplit

import pytest

from kedge.domain.errors import CannotListen, InvalidInput
from kedge.server import ServerSettings
from kedge.server.settings import forget_secrets, password_in
from tests.agent.world import World
from tests.server.world import Reply, Served, read_reply, serve

PASSWORD = "s3cret: ü"
TOKEN = base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
BASIC = {"authorization": f"Basic {TOKEN}"}
OWN = ("localhost", "LocalHost:4096", "127.0.0.1", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:80")
OTHERS = (
    *("evil.com", "localhost.evil.com", "localhost.", "127.0.0.1.nip.io", "0.0.0.0"),
    *("2130706433", "127.1", "0x7f000001", "evil.com:4096", "localhost@evil.com"),
    *("evil.com#localhost", "[::1]evil.com", "127.0.0.1]", "localhost:80:80", "[::]", ""),
    *("localhost evil.com", "localhost/evil.com", "192.168.0.1", "localhost:evil"),
)
ALLOWED = (
    "https://app.opencode.ai",
    "tauri://localhost",
    "oc://renderer/index.html",
)
FOREIGN = (
    "null",
    "http://localhost",
    "http://localhost:3000",
    "https://LOCALHOST:3000",
    "http://127.0.0.1:5173",
    "http://[::1]:5173",
    "http://tauri.localhost",
    "https://tauri.localhost",
    "https://evil.example",
    "http://localhost.evil.com",
    "http://localhost:80.evil.com",
    "http://evil.com#localhost",
    "http://localhost@evil.com",
    "http://127.0.0.1.nip.io",
    "http://127.0.0.2.evil.com:3000",
    "https://opencode.ai.evil.com",
    "https://evilopencode.ai",
    "http://app.opencode.ai",
    "file://",
    "http://localhost:",
    "http://[::1",
    "chrome-extension://abcdef",
)
PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, PUT, PATCH, POST, DELETE",
    "access-control-allow-headers": "content-type,x-opencode-directory",
    "access-control-max-age": "86400",
    "vary": "Access-Control-Request-Headers, Origin",
}
GUARDED = (
    *("/session", "/global/health", "/event", "/doc", "/"),
    *("/session/bad", "/nosuch", "/file?path="),
)
NEARLY: tuple[Mapping[str, str], ...] = (
    {"authorization": f"Basic {base64.b64encode(b'opencode:wrong').decode()}"},
    {"authorization": f"Basic {base64.b64encode(f'other:{PASSWORD}'.encode()).decode()}"},
    {"authorization": f"Basic {base64.b64encode(b'opencode:').decode()}"},
    {"authorization": f"Bearer {TOKEN}"},
    {"authorization": f"Basic {TOKEN}A"},
    {"authorization": f"Basic {TOKEN}{TOKEN}"},
    {"authorization": f"Basic {PASSWORD.encode().hex()}"},
    {"authorization": "Basic"},
    {"authorization": "Basic \xff"},
    {"authorization": TOKEN},
    {"proxy-authorization": f"Basic {TOKEN}"},
    {"cookie": f"auth_token={TOKEN}"},
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture
async def locked(world: World) -> AsyncIterator[Served]:
    """A server that wants a password."""
    async with serve(world, password=PASSWORD) as running:
        yield running


async def raw(served: Served, lines: str) -> Reply:
    """The answer to a request whose head is given line by line."""
    async with served.connected() as (reader, writer):
        writer.write(lines.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n")
        return await read_reply(reader)


async def test_the_machines_own_names_are_let_in(served: Served) -> None:
    """Every way to name the machine that only the machine itself can mean."""
    for host in OWN:
        reply = await served.get("/global/health", headers={"host": host})
        assert reply.status == 200, host


async def test_a_foreign_host_is_refused(served: Served) -> None:
    """A page whose name was made to point to this machine gets nothing."""
    for host in OTHERS:
        reply = await served.get("/global/health", headers={"host": host})
        assert reply.status in (400, 403), host
        assert b"healthy" not in reply.body, host


async def test_a_request_without_host_or_with_two_is_refused(served: Served) -> None:
    """Neither says whom it is for."""
    none = await raw(served, "GET /global/health HTTP/1.1\nconnection: close")
    old = await raw(served, "GET /global/health HTTP/1.0")
    two = await raw(
        served, "GET /global/health HTTP/1.1\nhost: localhost\nhost: evil.com\nconnection: close"
    )
    assert {none.status, old.status, two.status} <= {400, 403}


async def test_the_clients_origins_are_let_in(served: Served) -> None:
    """Those of OpenCode's clients."""
    for origin in ALLOWED:
        reply = await served.get("/global/health", headers={"origin": origin})
        assert reply.status == 200, origin
        assert reply.headers["access-control-allow-origin"] == origin
        assert reply.headers["vary"] == "Origin"


async def test_a_foreign_origin_is_refused(served: Served) -> None:
    """A web page can neither read nor do anything, with any method."""
    for method, origin in product(("GET", "POST", "DELETE", "HEAD"), FOREIGN):
        reply = await served.ask(method, "/session", headers={"origin": origin})
        assert reply.status == 403, origin
        assert "access-control-allow-origin" not in reply.headers


async def test_what_foreign_pages_send_without_an_origin_is_refused(served: Served) -> None:
    """Images, frames and links have none, but browsers say where they come from."""
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        reply = await served.get("/session", headers={"sec-fetch-site": site})
        assert reply.status == status, site
    typed = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}
    assert (await served.get("/doc", headers=typed)).status == 200
    allowed = {"sec-fetch-site": "cross-site", "origin": "https://app.opencode.ai"}
    assert (await served.get("/session", headers=allowed)).status == 200


async def test_a_page_of_another_port_is_foreign(served: Served) -> None:
    """A dev server runs whatever its packages bring, so it has no rights on this machine, however
    the page sends its request."""
    for site in ({}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site"}):
        for origin in ("http://localhost:3000", "http://127.0.0.1:3000", "http://localhost"):
            plain = {"content-type": "text/plain"}
            for more in ({}, plain, {"host": "localhost:4096"}):
                headers = {"origin": origin, **site, **more}
                reply = await served.ask("POST", "/session", headers=headers)
                assert reply.status == 403, headers
                assert "access-control-allow-origin" not in reply.headers
    assert (await served.get("/session")).json == []


async def test_the_servers_own_pages_are_let_in(served: Served) -> None:
    """What came from this very server may speak with it, by whatever name it is called."""
    port = urlsplit(served.url).port
    for name in ("localhost", "127.0.0.1", "[::1]"):
        own = {"host": f"{name}:{port}", "origin": f"http://{name}:{port}"}
        for site in ({}, {"sec-fetch-site": "same-origin"}):
            reply = await served.ask("POST", "/session", headers={**own, **site})
            assert reply.status == 200, own
    mixed = {"host": f"localhost:{port}", "origin": f"http://127.0.0.1:{port}"}
    assert (await served.get("/session", headers=mixed)).status == 403
    hidden = {"sec-fetch-site": "same-origin", "origin": "http://localhost:3000"}
    assert (await served.get("/session", headers=hidden)).status == 403


async def test_a_page_of_another_port_can_be_allowed(world: World) -> None:
    """By its origin, and no other port with it."""
    async with serve(world, cors=("http://localhost:3000",)) as served:
        named = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
        reply = await served.ask("POST", "/session", headers=named)
        assert reply.status == 200
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
        for other in ("http://localhost:3001", "https://localhost:3000", "http://127.0.0.1:3000"):
            assert (await served.get("/session", headers={"origin": other})).status == 403


async def test_a_repeated_origin_is_refused(served: Served) -> None:
    """An allowed one does not cover up another."""
    head = "GET /session HTTP/1.1\nhost: localhost\nconnection: close"
    ours = "https://app.opencode.ai"
    for first, second in ((ours, "http://evil.com"), ("null", ours)):
        reply = await raw(served, f"{head}\norigin: {first}\norigin: {second}")
        assert reply.status == 400


async def test_a_preflight_is_answered_as_recorded(served: Served) -> None:
    """The same to all, but only those who are allowed are told so."""
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-opencode-directory",
    }
    for origin in (*ALLOWED, *FOREIGN):
        reply = await served.ask("OPTIONS", "/session", headers={**asked, "origin": origin})
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers.items() >= PREFLIGHT.items()
        assert "access-control-allow-credentials" not in reply.headers
        told = reply.headers.get("access-control-allow-origin")
        assert told == (origin if origin in ALLOWED else None)


async def test_what_is_no_preflight_is_a_request(served: Served) -> None:
    """OPTIONS alone lets nobody in."""
    refused = await served.ask("OPTIONS", "/session", headers={"origin": "https://evil.example"})
    assert refused.status == 403
    assert (await served.ask("OPTIONS", "/session")).status == 405


async def test_more_origins_can_be_allowed(world: World) -> None:
    """With the host that they name, as a proxy hands it on; others stay out."""
    async with serve(world, cors=("https://kedge.example:8443/",)) as served:
        named = {"host": "kedge.example:8443", "origin": "https://KEDGE.example:8443"}
        reply = await served.get("/global/health", headers=named)
        assert reply.status == 200
        assert reply.headers["access-control-allow-origin"] == named["origin"]
        for other in ({"origin": "https://kedge.example"}, {"host": "example"}):
            assert (await served.get("/global/health", headers=other)).status == 403
    async with serve(world, cors=("*",)) as served:
        reply = await served.get("/global/health", headers={"origin": "https://any.example"})
        assert reply.headers["access-control-allow-origin"] == "https://any.example"


async def test_a_password_guards_every_route(locked: Served) -> None:
    """Also those that do not exist, with any method, before anything is looked at."""
    for target, method in product(GUARDED, METHODS):
        reply = await locked.ask(method, target)
        assert (reply.status, reply.body) == (401, b""), (method, target)
        assert reply.headers["www-authenticate"] == 'Basic realm="Secure Area"'
        assert reply.headers["content-length"] == "0"
        assert reply.headers["vary"] == "Origin"


async def test_the_newer_routes_say_it_in_json(locked: Served) -> None:
    """As recorded."""
    reply = await locked.get("/api/health")
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Basic realm="Secure Area"'
    assert reply.json == {"_tag": "UnauthorizedError", "message": "Authentication required"}


async def test_anything_but_the_password_is_refused(locked: Served) -> None:
    """Nearly right is wrong."""
    for headers in NEARLY:
        reply = await locked.get("/session", headers=headers)
        assert reply.status == 401, headers


async def test_the_password_lets_in(locked: Served) -> None:
    """In the header or in the query; the scheme in any case."""
    for headers in (BASIC, {"authorization": f"bAsIc  {TOKEN}"}):
        assert (await locked.get("/session", headers=headers)).status == 200
    for token in (TOKEN, TOKEN.replace("=", "%3D").replace("+", "%2B")):
        assert (await locked.get(f"/session?auth_token={token}")).status == 200
    assert (await locked.get(f"/session?auth_token={TOKEN}&auth_token={TOKEN}")).status == 401


async def test_two_passwords_are_none(locked: Served) -> None:
    """A right one beside a wrong one does not count, in either order."""
    wrong = "Basic b3RoZXI6b3RoZXI="
    for first, second in ((wrong, f"Basic {TOKEN}"), (f"Basic {TOKEN}", wrong)):
        head = "GET /session HTTP/1.1\nhost: localhost\nconnection: close"
        reply = await raw(locked, f"{head}\nauthorization: {first}\nauthorization: {second}")
        assert reply.status == 400


async def test_with_a_password_any_host_will_do(locked: Served) -> None:
    """Who knows it is let in, also from a page that came from the same host or through a proxy."""
    named = {**BASIC, "host": "kedge.example:1"}
    proxied = {"origin": "https://proxy.example", "sec-fetch-site": "same-origin"}
    for more in ({}, {"origin": "http://KEDGE.example:1"}, proxied):
        reply = await locked.get("/session", headers={**named, **more})
        assert reply.status == 200, more
        assert "access-control-allow-origin" not in reply.headers


async def test_a_password_does_not_speak_for_foreign_pages(locked: Served) -> None:
    """Browsers add the one that they know to a request of any page, which needs no reply."""
    for origin in FOREIGN:
        reply = await locked.ask("POST", "/session", headers={**BASIC, "origin": origin})
        assert reply.status == 403, origin
    assert (await locked.get("/session", headers=BASIC)).json == []


async def test_a_preflight_needs_no_password(locked: Served) -> None:
    """Browsers send none with it."""
    asked = {"origin": "tauri://localhost", "access-control-request-method": "GET"}
    reply = await locked.ask("OPTIONS", "/session", headers=asked)
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == "tauri://localhost"
    assert reply.headers["access-control-allow-headers"] == ""
    assert reply.headers["vary"] == "Origin"


async def test_the_password_is_never_told(locked: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in an answer nor in the log, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    for target in ("/nosuch", "/session/bad", "/config", "/session?roots=maybe", "/path"):
        mark = "&" if "?" in target else "?"
        reply = await locked.get(f"{target}{mark}auth_token={TOKEN}")
        assert TOKEN.encode() not in reply.body
        assert PASSWORD.encode() not in reply.body
    assert TOKEN not in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("hostname", ["0.0.0.0", "::", "192.168.1.1", "example.com"])
def test_other_machines_need_a_password(hostname: str) -> None:
    """A server that others can reach does not start without one, and says how to set it."""
    with pytest.raises(CannotListen, match="KEDGE_SERVER_PASSWORD"):
        ServerSettings(hostname=hostname)
    assert not ServerSettings(hostname=hostname, password="x").is_local


@pytest.mark.parametrize(
    "origin", ["example.com", "", "https://", "https://a b", "https://a/path", "http://[::1"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    """A mistyped origin would silently never match."""
    with pytest.raises(InvalidInput, match="not an origin"):
        ServerSettings(cors=(origin,))


def test_the_password_is_kept_from_what_the_server_starts() -> None:
    """Commands of an agent could else do what only clients may, such as allow themselves more."""
    for name in ("KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD"):
        url = "postgresql://me:secret@host/kedge"
        environ = {name: PASSWORD, "PATH": "/bin", "KEDGE_DATABASE_URL": url}
        assert password_in(environ) == PASSWORD
        forget_secrets(environ)
        assert environ == {"PATH": "/bin"}
