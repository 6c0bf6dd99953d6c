"""What the root of the server says, to browsers and to programs."""

import base64
import hashlib
import json
import re
from html import unescape

import msgspec
import pytest

from kedge.server.overview import Overview, lines, local_url
from tests.agent.world import World
from tests.server.world import Client, Served, serve

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def untrusted(world: World, **said: object) -> None:
    """Configure something in the project, which nobody has trusted."""
    world.put("opencode.json", json.dumps(said))


def trusted(world: World, **said: object) -> None:
    """Configure something for the person."""
    folder = world.config / "opencode"
    folder.mkdir(exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(said))


async def page(client: Client, target: str = "/") -> str:
    """The text of the page, as a browser gets it."""
    reply = await client.get(target, headers=BROWSER)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    return reply.body.decode()


async def test_programs_get_json(served: Served) -> None:
    """Whoever does not want a page."""
    reply = await served.get("/")
    host = served.url.removeprefix("http://")
    assert reply.json == {
        "name": "kedge",
        "version": served.running.backend.engine.version,
        "directory": str(served.world.folder),
        "worktree": str(served.world.folder),
        "database": served.running.backend.engine.store.location,
        "model": "kedge/offline",
        "canAnswer": True,
        "problem": None,
        "isOffline": True,
        "isProtected": False,
        "notices": [],
        "attach": f"opencode attach http://{host}",
    }


async def test_browsers_get_a_page(served: Served) -> None:
    """It says what this is, who answers, what to do and how to attach."""
    found = await page(served)
    for words in ("kedge/offline", "No model is configured", str(served.world.folder), '"/doc"'):
        assert words in found
    assert f"opencode attach {served.url}" in found


async def test_the_page_needs_nothing_else(served: Served) -> None:
    """It runs no script and loads nothing; its style is the one that its policy allows."""
    reply = await served.get("/", headers=BROWSER)
    style = re.search(r"<style>(.*)</style>", reply.body.decode(), re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = reply.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(rb"https?://(?!127\.0\.0\.1)|<script|src=|@import|url\(", reply.body)
    head = await served.ask("HEAD", "/", headers=BROWSER)
    assert (head.status, head.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize("accept", ["text/html", "*/*"])
async def test_caches_keep_both_forms_apart(served: Served, accept: str) -> None:
    """They are told what the answer depends on."""
    async with served.connected() as (reader, writer):
        writer.write(served.request("GET", "/", headers={"accept": accept}))
        head = await reader.readuntil(b"\r\n\r\n")
    assert b"\r\nvary: Accept\r\n" in head


async def test_what_is_ignored_is_told(world: World) -> None:
    """With the names that are in the project's file, however they are spelled."""
    untrusted(world, mcp={"<script>alert(1)</script>": {"command": ["x"]}})
    async with serve(world) as served:
        (notice,) = (await served.get("/")).json["notices"]
        found = await page(served)
    assert "<script>alert(1)</script>" in notice
    assert "<script" not in found
    assert notice.replace("`", "") in re.sub("</?code>", "", unescape(found))


CANNOT_BE_ASKED: dict[str, dict[str, object]] = {
    "no key": {"model": "anthropic/claude-sonnet-4-5"},
    "no key for the agent's model": {"agent": {"build": {"model": "anthropic/claude-sonnet-4-5"}}},
    "no such model": {"model": "anthropic/none-such"},
    "not enabled": {"model": "anthropic/claude-sonnet-4-5", "disabled_providers": ["anthropic"]},
    "a protocol of its own": {
        "model": "mine/x",
        "provider": {"mine": {"npm": "@ai-sdk/amazon-bedrock", "models": {"x": {}}}},
    },
    "no address": {"model": "mine/x", "provider": {"mine": {"models": {"x": {}}}}},
    "no address of HTTP": {
        "model": "mine/x",
        "provider": {"mine": {"models": {"x": {}}, "options": {"baseURL": "mine.example"}}},
    },
}


@pytest.mark.parametrize("said", CANNOT_BE_ASKED.values(), ids=CANNOT_BE_ASKED.keys())
async def test_a_model_that_cannot_be_asked_is_told(world: World, said: dict[str, object]) -> None:
    """Before anybody asks it, in the words that a prompt would get."""
    trusted(world, **said)
    async with serve(world) as served:
        answer = (await served.get("/")).json
        found = unescape(await page(served))
        session = (await served.post("/session")).json["id"]
        prompt = {"parts": [{"type": "text", "text": "echo hello"}]}
        reply = (await served.post(f"/session/{session}/message", prompt)).json
    error = reply if "data" in reply else reply["info"]["error"]
    assert answer["problem"] == error["data"]["message"]
    assert (answer["canAnswer"], answer["isOffline"]) == (False, False)
    assert answer["problem"] in found
    assert "carries out plain commands" not in found
    (first, *_) = lines(msgspec.convert(answer, Overview))
    assert first.startswith("prompts cannot be answered")
    assert first.endswith(answer["problem"])


async def test_a_file_that_cannot_be_read_is_told(world: World) -> None:
    """No prompt is answered before it is mended, so no model is told to answer."""
    world.put("opencode.json", '{"model": "mine/x",,}')
    async with serve(world) as served:
        answer = (await served.get("/")).json
        session = (await served.post("/session")).json["id"]
        prompt = {"parts": [{"type": "text", "text": "echo hello"}]}
        refused = await served.post(f"/session/{session}/message", prompt)
    assert refused.json["name"] == "ConfigInvalidError"
    assert answer["problem"] == refused.json["data"]["message"]
    assert (answer["model"], answer["canAnswer"], answer["isOffline"]) == (None, False, False)
    assert [notice.startswith(answer["problem"]) for notice in answer["notices"]] == [True]


async def test_another_model_that_answers_is_told(world: World) -> None:
    """With why it is not the one that the agent has."""
    mine = {"models": {"x": {}}, "options": {"baseURL": "http://127.0.0.1:9"}}
    agent = {"build": {"model": "anthropic/claude-sonnet-4-5"}}
    trusted(world, model="mine/x", provider={"mine": mine}, agent=agent)
    async with serve(world) as served:
        answer = (await served.get("/")).json
        found = await page(served)
    assert (answer["model"], answer["canAnswer"]) == ("mine/x", True)
    assert "ANTHROPIC_API_KEY" in answer["problem"]
    assert "Another model answers" in found
    said = list(lines(msgspec.convert(answer, Overview)))
    assert said[:2] == ["prompts are answered by mine/x", f"but {answer['problem']}"]


async def test_a_password_guards_it_and_is_not_shown(world: World) -> None:
    """The command to attach leaves its place open, and names a user that is not the usual one."""
    basic = base64.b64encode(b"the captain:hunter2").decode()
    async with serve(world, password="hunter2", username="the captain") as served:
        assert (await served.get("/", headers=BROWSER)).status == 401
        known = Client(served.url, {"authorization": f"Basic {basic}"})
        found = unescape(await page(known))
        attach = (await known.get("/")).json["attach"]
        strange = await known.get("/", headers={"host": "a;reboot"})
    assert attach == (
        f"OPENCODE_SERVER_USERNAME='the captain' opencode attach {served.url} --password ..."
    )
    assert attach in found
    assert "hunter2" not in found
    assert strange.json["attach"].endswith("opencode attach URL --password ...")


async def test_a_directory_of_its_own(served: Served) -> None:
    """The page is about the directory of the request."""
    (served.world.folder / "below").mkdir()
    reply = await served.get("/?directory=below")
    assert reply.json["directory"] == str(served.world.folder / "below")


@pytest.mark.parametrize(
    ("hostname", "url", "local"),
    [
        ("127.0.0.1", "http://127.0.0.1:4096", "http://127.0.0.1:4096"),
        ("0.0.0.0", "http://0.0.0.0:4096", "http://127.0.0.1:4096"),
        ("::", "http://[::]:4096", "http://[::1]:4096"),
        ("::1", "http://[::1]:4096", "http://[::1]:4096"),
        ("box", "http://box:80", "http://box:80"),
    ],
)
def test_an_address_for_this_machine(hostname: str, url: str, local: str) -> None:
    """A server that listens everywhere is told by an address that can be connected to."""
    assert local_url(url, hostname) == local
