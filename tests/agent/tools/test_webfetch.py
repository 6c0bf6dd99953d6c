"""The tool that reads pages of the web."""

import asyncio
import base64

import pytest

from kedge.agent.tools.tool import ToolFailure
from kedge.agent.tools.webfetch import webfetch
from kedge.domain.permissions import PermissionRule
from tests.agent.tools.scene import Rejected, Scene
from tests.agent.web.sites import Site, answer, redirect, silent, site
from tests.support.timeouts import PATIENCE

PAGE = "<title>T</title><h1>Title</h1><p>A <b>page</b> with <a href=/x>a link</a>."
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def allow(scene: Scene, pattern: str) -> None:
    """A rule of the person."""
    rule = PermissionRule(permission="webfetch", pattern=pattern, action="allow")
    scene.person.rules.append(rule)


def allow_all(scene: Scene, served: Site) -> None:
    """A rule that names the server."""
    allow(scene, served.url("/*"))


async def test_a_page_as_markdown(scene: Scene) -> None:
    """What was asked, what came, and its title."""
    async with site({"/p": answer(PAGE)}) as served:
        allow_all(scene, served)
        output = await scene.run(webfetch, url=served.url("/p#part"))
        assert output.text == f"T\n\n# Title\n\nA **page** with [a link]({served.url('/x')})."
        assert output.title == f"{served.url('/p')} (text/html; charset=utf-8)"
        assert output.metadata == {}
        (ask,) = scene.person.asked
        assert (ask.permission, ask.patterns, ask.always) == ("webfetch", [served.url("/p")], ["*"])
        assert ask.metadata == {"url": served.url("/p"), "format": "markdown"}
        assert "text/markdown" in served.asked[0][1]["accept"].split(";")[0]


async def test_the_other_formats(scene: Scene) -> None:
    """Text has the words, HTML is as it was; each asks for what it wants most."""
    async with site({"/": answer(PAGE)}) as served:
        allow_all(scene, served)
        text = await scene.run(webfetch, url=served.url(), format="text", timeout=5)
        assert text.text == "T\nTitle\nA page with a link."
        assert (await scene.run(webfetch, url=served.url(), format="html")).text == PAGE
        assert scene.person.asked[0].metadata["timeout"] == 5
        accepted = [headers["accept"].partition(",")[0] for _, headers in served.asked]
        assert accepted == ["text/plain", "text/html"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (answer('{"a": 1}', "application/json"), '{"a": 1}'),
        (answer("<svg>x</svg>", "image/svg+xml"), "<svg>x</svg>"),
        (answer("a < b", "text/plain"), "a < b"),
        (answer("<!DOCTYPE html><p>a", ""), "a"),
        (answer("<p>ä".encode("latin-1"), "text/html; charset=ISO-8859-1"), "ä"),
        (answer("<meta charset=windows-1251><p>ж".encode("cp1251"), "text/html"), "ж"),
        (answer("<p>日本".encode("shift_jis"), 'text/html; charset="Shift_JIS"'), "日本"),
        (answer("<p>x".encode("utf-16"), "text/html"), "x"),
        (answer(b"<p>\xff\xfea", "text/html; charset=nonsense"), "\ufffd\ufffda"),
        (answer(b"<p>a\xe9", "text/html; charset=punycode"), "a\ufffd"),
        (answer(b"<p>&#x41;\xef\xbb\xbf", "text/html; charset=utf-8"), "A\ufeff"),
    ],
)
async def test_other_types_and_charsets(scene: Scene, page: bytes, text: str) -> None:
    """What is no HTML comes as it is; a charset that is none is read as UTF-8."""
    async with site({"/": page}) as served:
        allow_all(scene, served)
        assert (await scene.run(webfetch, url=served.url())).text == text


@pytest.mark.parametrize(
    ("data", "kind", "what"),
    [(PIXEL, "image/png", "Image"), (b"%PDF-1.7 x", "application/pdf", "PDF")],
)
async def test_what_a_model_can_be_shown(scene: Scene, data: bytes, kind: str, what: str) -> None:
    """Pictures and PDF files are attached, known by their bytes."""
    async with site({"/": answer(data, "application/octet-stream")}) as served:
        allow_all(scene, served)
        output = await scene.run(webfetch, url=served.url())
    assert output.text == f"{what} fetched successfully"
    (attached,) = output.attachments
    assert attached.mime == kind
    assert attached.url == f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (answer(b"PK\x03\x04\x00\x00", "application/zip"), "is no text (application/zip"),
        (answer(b"nothing", "image/png"), "is image/png"),
        (answer(PIXEL + bytes(4_000_000), "image/png"), "can be shown to you at most"),
        (answer("no", status="404 Not Found"), "status code: 404."),
    ],
)
async def test_what_cannot_be_read(scene: Scene, page: bytes, told: str) -> None:
    """The model is told what it was."""
    async with site({"/": page}) as served:
        allow_all(scene, served)
        with pytest.raises(ToolFailure) as raised:
            await scene.run(webfetch, url=served.url())
        assert told in str(raised.value)


@pytest.mark.parametrize(
    "input",
    [
        {"url": "example.com"},
        {"url": "file:///etc/passwd"},
        {"url": "http://me:pw@example.com/"},
        {"url": "https://example.com/", "timeout": 0},
        {"url": "https://example.com/", "timeout": -1},
    ],
)
async def test_what_cannot_be_asked(scene: Scene, input: dict[str, object]) -> None:
    """It fails before a person is asked."""
    with pytest.raises(ToolFailure):
        await scene.run(webfetch, **input)
    assert scene.person.asked == []


async def test_nothing_is_sent_before_it_is_permitted(scene: Scene) -> None:
    """Not even a look at the name."""
    scene.person.rejects.add("webfetch")
    async with site({"/": answer(PAGE)}) as served:
        with pytest.raises(Rejected):
            await scene.run(webfetch, url=served.url())
        assert not served.connected.is_set()


async def test_only_a_rule_that_names_it_allows_this_machine(scene: Scene) -> None:
    """Rules for everything were not written for it, and the person's word for one page neither."""
    async with site({"/": answer("here")}) as served:
        for pattern in ("*", "http://*", "http://127.*"):
            allow(scene, pattern)
            with pytest.raises(ToolFailure, match="permission rule"):
                await scene.run(webfetch, url=served.url())
        assert served.asked == []
        allow(scene, "http://127.0.0.1:*")
        assert (await scene.run(webfetch, url=served.url())).text == "here"
        scene.person.rules.append(PermissionRule(permission="webfetch", pattern="*", action="ask"))
        with pytest.raises(ToolFailure, match="permission rule"):
            await scene.run(webfetch, url=served.url())


async def test_a_redirect_to_another_server_is_asked_for(scene: Scene) -> None:
    """One to the same server is not, unless a rule denies it."""
    async with site({"/": answer("there"), "/b": redirect("/")}) as other:
        pages = {"/": redirect("/own"), "/own": redirect(other.url("/b"))}
        async with site(pages) as served:
            allow(scene, "http://127.0.0.1:*")
            assert (await scene.run(webfetch, url=served.url())).text == "there"
            asked = [ask.patterns for ask in scene.person.asked]
            assert asked == [[served.url()], [other.url("/b")]]


async def test_an_abort_closes_the_connection(scene: Scene) -> None:
    """At any moment, also while nothing comes."""
    async with site({"/": silent}) as served:
        allow_all(scene, served)
        task = asyncio.create_task(scene.run(webfetch, url=served.url()))
        async with asyncio.timeout(PATIENCE):
            await served.connected.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await served.left.wait()
