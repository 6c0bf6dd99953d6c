"""Clients that are broken or mean, on raw sockets: the server answers or hangs up, keeps serving
others, holds little memory, and complains about nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from kedge.server import granian, request_body
from kedge.server.requests import NoBody
from kedge.server.routes import ALL, turns
from tests.agent.world import World
from tests.server.process import Process, served_apart
from tests.server.world import Client, Served, read_reply, serve
from tests.support.timeouts import PATIENCE

MIB = 1 << 20
HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"
CLOSE = b"connection: close\r\n"
MOST_MEMORY = 400 * MIB
"""Far below what is sent, far above what an idle server needs."""


def get(target: bytes, *headers: bytes) -> bytes:
    """A request without a body, after which the server shall hang up."""
    return b"GET %b HTTP/1.1\r\n%b%b%b\r\n" % (target, HOST, CLOSE, b"".join(headers))


def post(*headers: bytes, body: bytes = b"") -> bytes:
    """A request that makes a session, if it is understood."""
    return b"POST /session HTTP/1.1\r\n%b%b%b\r\n%b" % (HOST, JSON, b"".join(headers), body)


CHUNKED = b"transfer-encoding: chunked\r\n"
WHOLE = b"2\r\n{}\r\n0\r\n\r\n"
ODD = {
    "old": (b"GET /global/health HTTP/1.0\r\n" + HOST + b"\r\n", {200}),
    "absolute form": (get(b"http://localhost/global/health"), {200}),
    "another's absolute form": (get(b"http://evil.com/global/health"), {200, 400, 403}),
    "line feeds alone": (b"GET /global/health HTTP/1.1\nhost: localhost\n\n", {200, 400}),
    "no HTTP": (b"\0\xff\x16\x03\x01" * 50, {400}),
    "TLS": (bytes.fromhex("16030100c8010000c40303") + b"a" * 200, {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {0, 400}),
    "a made-up method": (b"BREW /session HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n", {405}),
    # Its path is `/`, where there is a page, or none: that depends on the parser of HTTP.
    "a proxy's method": (
        b"CONNECT evil.com:80 HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n",
        {400, 404, 405},
    ),
    "an echo": (b"TRACE / HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n", {404, 405}),
    "everything": (b"OPTIONS * HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n", {400, 404}),
    "another protocol": (
        get(b"/session", b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"),
        {200},
    ),
    "a web socket": (
        get(
            b"/session",
            b"upgrade: websocket\r\nsec-websocket-version: 13\r\n",
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ),
        {200, 400},
    ),
    "a huge header": (get(b"/session", b"x: " + b"a" * MIB + b"\r\n"), {0, 431}),
    "many headers": (get(b"/session", *(b"x%d: a\r\n" % n for n in range(5000))), {0, 431}),
    "a folded header": (get(b"/session", b"x: a\r\n b\r\n"), {400}),
    "a header with a blank": (post(b"transfer-encoding : chunked\r\n", CLOSE), {400}),
    "a huge target": (get(b"/" + b"a" * 200_000), {0, 414}),
    "a long target": (get(b"/" + b"a" * 50_000), {404}),
    "a deep target": (get(b"/" + b"a/" * 20_000), {404}),
    "a broken encoding": (get(b"/session/%zz"), {400}),
    "an encoded NUL": (get(b"/session/%00"), {400}),
    "a target of bytes": (get(b"/session/\xff\xfe"), {400}),
    "a query of bytes": (get(b"/session?x=%ff"), {400}),
    "a directory of bytes": (get(b"/session", b"x-opencode-directory: %ff\r\n"), {400}),
    "a directory with a NUL": (get(b"/session", b"x-opencode-directory: %00\r\n"), {400}),
    "a long directory": (get(b"/session?directory=" + b"a" * 9000), {400}),
    "a negative length": (post(b"content-length: -1\r\n"), {400}),
    "an absurd length": (post(b"content-length: 99999999999999999999999\r\n"), {400, 413}),
    "two lengths": (post(b"content-length: 2\r\ncontent-length: 3\r\n", body=b"{}x"), {400}),
    "two equal lengths": (
        post(b"content-length: 2\r\ncontent-length: 2\r\n", CLOSE, body=b"{}"),
        {200, 400},
    ),
    "a list of lengths": (post(b"content-length: 2, 2\r\n", body=b"{}"), {400}),
    "a length with a sign": (post(b"content-length: +2\r\n", body=b"{}"), {400}),
    "a length in hex": (post(b"content-length: 0x2\r\n", body=b"{}"), {400}),
    "a folded length": (post(b"content-length:\r\n 2\r\n", body=b"{}"), {400}),
    "chunks that are none": (post(b"transfer-encoding: xchunked\r\n", body=WHOLE), {400}),
    "chunks at another place": (post(b"transfer-encoding: chunked, x\r\n", body=WHOLE), {400}),
    "chunks after a tab": (post(b"transfer-encoding: \x0bchunked\r\n", body=WHOLE), {400}),
    "folded chunks": (post(b"transfer-encoding:\r\n chunked\r\n", body=WHOLE), {400}),
    "chunks of zipped bytes": (post(b"transfer-encoding: gzip, chunked\r\n", body=WHOLE), {400}),
    "chunks of chunks": (post(b"transfer-encoding: chunked, chunked\r\n", body=WHOLE), {400}),
    "chunks twice": (post(CHUNKED, CHUNKED, body=WHOLE), {400}),
    "chunks in old HTTP": (
        b"POST /session HTTP/1.0\r\n" + HOST + JSON + CHUNKED + b"\r\n" + WHOLE,
        {400},
    ),
    "chunks of no size": (post(CHUNKED, body=b"zz\r\n{}\r\n0\r\n\r\n"), {400}),
    "chunks of any size": (post(CHUNKED, body=b"ffffffffffffffff0\r\n{}\r\n"), {400}),
    "chunks that tell tales": (
        post(CHUNKED, body=b"2;" + b"a" * 100_000 + b"\r\n{}\r\n0\r\n\r\n"),
        {0, 400},
    ),
    "trailers": (post(CHUNKED, CLOSE, body=b"2\r\n{}\r\n0\r\na: b\r\n\r\n"), {200}),
    "deep JSON": (post(b"content-length: 200000\r\n", CLOSE, body=b"[" * 200_000), {413}),
    "quite deep JSON": (post(b"content-length: 1000\r\n", CLOSE, body=b"[" * 1000), {413}),
    "many parameters": (get(b"/session?" + b"&".join(b"%d" % n for n in range(8000))), {400}),
    "a huge id": (get(b"/session/ses_" + b"a" * 50_000), {400}),
    "half of JSON": (post(b"content-length: 2\r\n", CLOSE, body=b'{"'), {400}),
    "another type": (
        b"PATCH /session/ses_x HTTP/1.1\r\n"
        + HOST
        + CLOSE
        + b"content-type: text/xml\r\ncontent-length: 4\r\n\r\n<a/>",
        {404, 415},
    ),
}
"""What is sent, and the status of the answer; 0 is none."""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server that all tests of this file hurt, one after the other."""
    with served_apart(tmp_path_factory.mktemp("attacked")) as process:
        yield process


@pytest.fixture
async def victim(apart: Process) -> AsyncIterator[Client]:
    """The server under attack, which in the end serves others and has not grown."""
    client = Client(apart.url, {})
    yield client
    assert (await client.get("/global/health")).status == 200
    assert await asyncio.to_thread(apart.memory) < MOST_MEMORY


async def status_of(client: Client, sent: bytes) -> int:
    """The status of the answer to some bytes; 0 if the server hangs up."""
    async with asyncio.timeout(PATIENCE), client.connected() as (reader, writer):
        try:
            writer.write(sent)
            await writer.drain()
            head = await reader.readline()
        except ConnectionError:
            return 0
        return int(head.split()[1]) if head else 0


async def test_odd_requests(victim: Client) -> None:
    """Each gets the answer that it deserves, and never one that says that the server is broken."""
    for name, (sent, wanted) in ODD.items():
        assert await status_of(victim, sent) in wanted, name


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("target", [b"POST /session", b"GET /session"])
async def test_a_length_beside_chunks(victim: Client, target: bytes, order: int) -> None:
    """The chunks count, and nothing that follows on the connection is taken for a request."""
    both = b"".join([b"content-length: 4\r\n", CHUNKED][::order])
    smuggled = get(b"/no/such/route")
    async with asyncio.timeout(PATIENCE), victim.connected() as (reader, writer):
        writer.write(b"%b HTTP/1.1\r\n%b%b%b\r\n%b" % (target, HOST, JSON, both, WHOLE + smuggled))
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.count(b"HTTP/1.1") == 1
    assert b"connection: close\r\n" in said


async def test_one_connection_for_many_requests_at_once(victim: Client) -> None:
    """They are answered in their order."""
    paths = [b"/global/health" if n % 3 else b"/no/such/%d" % n for n in range(60)]
    async with asyncio.timeout(PATIENCE), victim.connected() as (reader, writer):
        writer.writelines(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, HOST) for path in paths)
        for path in paths:
            reply = await read_reply(reader)
            assert reply.status == (200 if path == b"/global/health" else 404)
            assert reply.status == 200 or path in reply.body


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_hundred_megabytes(victim: Client, is_chunked: bool) -> None:
    """Are refused as soon as it is clear that they are too much, with and without a length."""
    told = CHUNKED if is_chunked else b"content-length: %d\r\n" % (100 * MIB)
    piece = b"%x\r\n%b\r\n" % (MIB, b"a" * MIB) if is_chunked else b"a" * MIB
    async with asyncio.timeout(PATIENCE), victim.connected() as (_, writer):
        writer.write(post(told))
        try:
            for _ in range(100):
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        else:
            pytest.fail("all of it was taken")
    # Whoever says beforehand what is coming, and waits, is told.
    refused = post(b"content-length: %d\r\n" % (100 * MIB), b"expect: 100-continue\r\n")
    assert await status_of(victim, refused) == 413


async def test_only_what_holds_texts_and_files_may_be_large(served: Served) -> None:
    """Two MiB are too much for a title, and not for a prompt."""
    session = (await served.post("/session")).json["id"]
    large = "x" * (2 * MIB)
    assert (await served.patch(f"/session/{session}", {"title": large})).status == 413
    body = {"noReply": True, "parts": [{"type": "text", "text": large}]}
    assert (await served.post(f"/session/{session}/message", body)).status == 200


async def test_more_than_a_million_parts(victim: Client) -> None:
    """Are refused, and others are answered meanwhile."""
    session = (await victim.post("/session", {})).json["id"]
    parts = b",".join([b'{"type":"text","text":""}'] * 1_150_000)
    raw = b'{"parts":[%b]}' % parts
    evil = asyncio.create_task(victim.ask("POST", f"/session/{session}/message", raw=raw))
    answered = 0
    while not evil.done():
        assert (await victim.get("/session")).status == 200
        answered += 1
    assert (await evil).status == 413
    assert answered > 0


@pytest.mark.parametrize("kind", ["values", "depth"])
async def test_every_body_has_limits(victim: Client, kind: str) -> None:
    """Too many values, and values that are nested too deep, are refused by all routes."""
    inner = "0," * 60_000 + "0" if kind == "values" else "[" * 200 + "]" * 200
    for route in ALL:
        if route.body is not NoBody:
            target = route.path.replace("{", "").replace("}", "")
            reply = await victim.ask(route.method, target, raw=b'{"a":[%b]}' % inner.encode())
            assert reply.status == 413, route.path


@pytest.mark.parametrize("target", ["message", "prompt_async"])
async def test_the_parts_of_a_prompt_are_counted(served: Served, target: str) -> None:
    """A thousand are taken, and no more."""
    session = (await served.post("/session")).json["id"]
    parts = [{"type": "text", "text": ""}] * turns.MOST_PARTS
    body = {"noReply": True, "parts": parts}
    assert (await served.post(f"/session/{session}/{target}", body)).status in (200, 204)
    body = {"noReply": True, "parts": [*parts, parts[0]]}
    reply = await served.post(f"/session/{session}/{target}", body)
    assert (reply.status, reply.json["name"]) == (413, "TooLarge")


async def test_five_hundred_idle_connections(victim: Client) -> None:
    """Others are served all the same."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as idle:
        for _ in range(500):
            await idle.enter_async_context(victim.connected())
        assert (await victim.get("/session")).status == 200


async def test_requests_that_break_off(victim: Client) -> None:
    """In the head, in the body, in a chunk, in the answer, in a stream: nothing stays behind."""
    beginnings = [
        b"GET /global/hea",
        post(b"content-length: 10\r\n", body=b"{"),
        post(CHUNKED, body=b"5\r\nab"),
        get(b"/session"),
        get(b"/event"),
        get(b"/find?pattern=hello"),
    ]
    async with asyncio.timeout(PATIENCE):
        for beginning in beginnings * 50:
            async with victim.connected() as (_, writer):
                writer.write(beginning)
                await writer.drain()


async def test_many_large_bodies_at_once(world: World) -> None:
    """Only as many as there is room for; the others may come again, and small ones get through."""
    half = post(b"content-length: 1000\r\n", body=b" " * 900)
    async with serve(world, max_body=1000) as served, AsyncExitStack() as open_ones:
        for _ in range(8):
            _, writer = await open_ones.enter_async_context(served.connected())
            writer.write(half)
            await writer.drain()
        async with asyncio.timeout(PATIENCE):
            while (
                await status_of(served, post(CLOSE, b"content-length: 900\r\n", body=b" " * 900))
                != 503
            ):
                continue
        assert await status_of(served, post(CLOSE, b"content-length: 2\r\n", body=b"{}")) == 200
        assert await status_of(served, post(CLOSE, b"content-length: 1001\r\n")) == 413


@pytest.fixture
async def hasty(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server that soon loses its patience."""
    monkeypatch.setattr(granian, "_HEADER_PATIENCE", 200)
    monkeypatch.setattr(request_body, "_PATIENCE", 0.2)
    async with serve(world) as running:
        yield running


async def test_slow_clients_are_not_waited_for(hasty: Served) -> None:
    """A head that does not come is hung up on, a body that does not come is told so."""
    assert await status_of(hasty, b"GET /global/hea") in (0, 408)
    assert await status_of(hasty, b"") == 0
    assert await status_of(hasty, post(b"content-length: 10\r\n", body=b"{")) == 408
    assert await status_of(hasty, post(CHUNKED, body=b"5\r\nab")) == 408
