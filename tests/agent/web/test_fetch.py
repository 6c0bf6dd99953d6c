"""Fetching a page: from where, how much, how long, and what hostile servers get."""

import asyncio
import datetime
import gzip
import ssl
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kedge.agent.web import fetch as fetching
from kedge.agent.web.address import WebAddress
from kedge.agent.web.fetch import (
    MOST_BYTES,
    MOST_REDIRECTS,
    TIMED_OUT,
    TOO_LARGE,
    Fetcher,
    FetchFailed,
    WebPage,
    lookup,
)
from tests.agent.web.sites import (
    Site,
    answer,
    bomb,
    drip,
    endless,
    packed,
    redirect,
    silent,
    site,
)
from tests.support.timeouts import PATIENCE

NAME = "pages.example"
AT_ONCE = 0.1
"""A limit that a test waits for."""


class Names:
    """A name server whose answers change."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def look(self, host: str, port: int) -> Sequence[str]:
        """The next answer, and the last one from then on."""
        self.asked.append(host)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


class Fetched:
    """Fetches with a script of names, and notes which servers were permitted and led to."""

    def __init__(
        self, *allowed: str, names: Names | None = None, seconds: float = PATIENCE
    ) -> None:
        self.allowed = allowed
        self.led: list[tuple[str, str]] = []
        self.names = names or Names(["127.0.0.1"])
        self.fetcher = Fetcher(
            visit=self._visit, permit=self._permit, seconds=seconds, lookup=self.names.look
        )

    async def _visit(self, before: WebAddress, after: WebAddress) -> None:
        self.led.append((before.host, after.host))

    async def _permit(self, target: WebAddress) -> bool:
        return target.host in self.allowed

    async def page(self, url: str) -> WebPage:
        """The page at a URL."""
        async with asyncio.timeout(PATIENCE):
            return await self.fetcher.fetch(WebAddress.parse(url), "text/html")

    async def failure(self, url: str) -> str:
        """Why there is no page."""
        with pytest.raises(FetchFailed) as raised:
            await self.page(url)
        return str(raised.value)


async def fetched(served: Site, path: str = "/") -> bytes:
    """A page of a server that is permitted."""
    return (await Fetched("127.0.0.1").page(served.url(path))).data


async def failure(served: Site, path: str = "/", seconds: float = PATIENCE) -> str:
    """Why there is no page at a server that is permitted."""
    return await Fetched("127.0.0.1", seconds=seconds).failure(served.url(path))


# Where.


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "2130706433", "0x7f000001", "127.1", "0.0.0.0", "[::ffff:7f00:1]"],
)
async def test_this_machine_is_not_asked(host: str) -> None:
    """In none of the ways to write it, and the words say which rule would allow it."""
    async with site({"/": answer("secret")}) as served:
        told = await Fetched().failure(served.url(host=host))
    assert "permission rule" in told
    assert '"allow"' in told
    assert served.asked == []


@pytest.mark.parametrize("inner", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "fd00:ec2::254"])
async def test_a_name_of_this_machine_or_network(inner: str) -> None:
    """What a name means counts, also if some of its addresses are public."""
    names = Names(["93.184.216.34", inner])
    assert inner in await Fetched(names=names).failure(f"http://{NAME}/")


async def test_a_server_that_a_rule_names_is_asked() -> None:
    """By its name as by its address."""
    async with site({"/": answer("here")}) as served:
        assert await fetched(served) == b"here"
        by_name = await Fetched(NAME).page(served.url(host=NAME))
        assert by_name.data == b"here"
        assert served.asked[-1][1]["host"] == f"{NAME}:{served.port}"


async def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to the address that was checked, whatever the name means a moment
    later."""
    monkeypatch.setattr(fetching, "is_public", lambda address: str(address) == "127.0.0.1")
    async with site({"/": answer("public")}) as served:
        rebinding = Fetched(names=Names(["127.0.0.1"], ["169.254.169.254"]))
        assert (await rebinding.page(served.url(host=NAME))).data == b"public"
        assert rebinding.names.asked == [NAME]
        assert "169.254.169.254" in await rebinding.failure(served.url(host=NAME))


async def test_the_next_address_is_tried() -> None:
    """One that nothing listens at is passed over."""
    async with site({"/": answer("here")}) as served:
        names = Names(["127.0.0.2", "127.0.0.1"])
        assert (await Fetched(NAME, names=names).page(served.url(host=NAME))).data == b"here"
    assert "cannot be reached" in await Fetched(NAME).failure(served.url(host=NAME))


async def test_names_are_looked_up_in_the_system() -> None:
    """`localhost` is known everywhere."""
    assert "127.0.0.1" in await lookup("localhost", 80)


async def test_a_name_that_there_is_not() -> None:
    """An error in words."""

    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    asked = Fetched()
    asked.fetcher.lookup = nowhere
    assert await asked.failure(f"http://{NAME}/") == (
        f"There is no server {NAME}: Name or service not known"
    )


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would look names up by themselves; where the direct way fails, that is said."""
    async with site({"/": answer("direct")}) as served, site({}) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        assert await fetched(served) == b"direct"
        assert proxy.asked == []
    assert "without HTTP_PROXY" in await failure(served)


# Redirects.


async def test_redirects_are_followed_and_told() -> None:
    """With every status that means one; the page knows where it was found."""
    pages = {
        f"/{n}": redirect(f"/{n + 1}", f"{status} Moved")
        for n, status in enumerate((301, 302, 303, 307, 308))
    }
    async with site({**pages, "/5": answer("there")}) as served:
        asked = Fetched("127.0.0.1")
        page = await asked.page(served.url("/0"))
        assert (page.data, page.target.url) == (b"there", served.url("/5"))
        assert len(asked.led) == 5


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "//10.0.0.1/",
        "http://localhost/",
    ],
)
async def test_a_redirect_is_checked_again(location: str) -> None:
    """To a metadata service, a private network, or a name that means this machine."""
    async with site({"/": redirect(location)}) as served:
        asked = Fetched("127.0.0.1")
        assert "permission rule" in await asked.failure(served.url())
        assert len(asked.led) == 1


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://a.example/", "http://me:pw@a.example/", "http://[", ""],
)
async def test_a_redirect_to_what_is_no_page(location: str) -> None:
    """Other schemes, and URLs with passwords in them."""
    async with site({"/": redirect(location or "\x01")}) as served:
        assert "redirects to" in await failure(served)


async def test_redirects_without_an_end() -> None:
    """They are counted."""
    async with site({"/": redirect("/")}) as served:
        assert "more than 10 times" in await failure(served)
        assert len(served.asked) == MOST_REDIRECTS + 1


async def test_nothing_is_carried_along() -> None:
    """No cookies, no credentials, no referrer."""
    to_page = answer(b"", status="302 Found", location="/b", set_cookie="a=b")
    async with site({"/": to_page, "/b": answer("x")}) as served:
        await fetched(served)
        told = {name for _, headers in served.asked for name in headers}
    assert not told & {"cookie", "authorization", "referer", "proxy-authorization"}


# How much.


async def test_a_page_of_the_largest_size() -> None:
    """The limit itself is no more than the limit."""
    async with site({"/": answer(b"x" * MOST_BYTES), "/p": packed(bytes(MOST_BYTES))}) as served:
        assert len(await fetched(served)) == MOST_BYTES
        assert len(await fetched(served, "/p")) == MOST_BYTES


@pytest.mark.parametrize(
    "page",
    [
        answer(b"", length=MOST_BYTES + 1),
        packed(bytes(MOST_BYTES + 1)),
        endless,
        bomb,
    ],
    ids=["declared", "packed", "endless", "bomb"],
)
async def test_a_page_that_is_too_large(page: object) -> None:
    """Declared or real, packed or not: no more than the limit is held."""
    async with site({"/": page}) as served:  # type: ignore[dict-item]
        assert await failure(served) == TOO_LARGE


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "raw", "identity", ""])
async def test_packed_pages(encoding: str) -> None:
    """In every form that was asked for, and in those that servers send for it."""
    body = b"hello " * 1000
    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "deflate": zlib.compress(body),
        "raw": raw.compress(body) + raw.flush(),
        "identity": body,
        "": body,
    }
    named = {"raw": "deflate"}.get(encoding, encoding)
    page = answer(bodies.get(encoding, gzip.compress(body)), content_encoding=named)
    async with site({"/": page}) as served:
        assert await fetched(served) == body


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (answer(b"\x1f\x8b\x08junk and more junk", content_encoding="gzip"), "no HTTP"),
        (answer(gzip.compress(b"x" * 9999)[:-20], content_encoding="gzip"), "broke off"),
        (answer(b"x", content_encoding="br"), "packs the page as br"),
        (answer(b"x", content_encoding="gzip, gzip"), "packs the page as gzip, gzip"),
        (answer(b"x", length=10), "no HTTP"),
        (answer(b"x", length=10**30), "no HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 60_000, "no HTTP"),
        (answer("x", status="404 Not Found"), "status code: 404"),
        (answer("x", status="500 No"), "status code: 500"),
        (answer("x", status="302 Found"), "status code: 302"),
        (b"", "no HTTP"),
    ],
    ids=[
        "junk",
        "half",
        "br",
        "twice",
        "short",
        "absurd",
        "ssh",
        "long",
        "many",
        "404",
        "500",
        "302",
        "none",
    ],
)
async def test_what_is_no_page(page: bytes, told: str) -> None:
    """Each ends with words that say what it was."""
    async with site({"/": page}) as served:
        assert told in await failure(served)


# How long.


@pytest.mark.parametrize("page", [silent, drip], ids=["silent", "drip"])
async def test_a_slow_server(page: object) -> None:
    """The time is over for one that says nothing, and for one that says a word now and then; the
    connection is closed."""
    async with site({"/": page}) as served:  # type: ignore[dict-item]
        assert await failure(served, seconds=AT_ONCE) == TIMED_OUT
        async with asyncio.timeout(PATIENCE):
            await served.left.wait()


async def test_a_slow_name_server() -> None:
    """Its time counts too."""

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    asked = Fetched(seconds=AT_ONCE)
    asked.fetcher.lookup = never
    assert await asked.failure(f"http://{NAME}/") == TIMED_OUT


async def test_a_cancelled_fetch_leaves() -> None:
    """An abort closes the connection at once."""
    async with site({"/": silent}) as served:
        task = asyncio.create_task(Fetched("127.0.0.1").page(served.url()))
        async with asyncio.timeout(PATIENCE):
            await served.connected.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await served.left.wait()
    assert task.cancelled()


# With whom.


async def test_a_challenge_is_answered_with_our_name() -> None:
    """Once: some sites want to know which program asks."""
    page = answer("who?", status="403 No", cf_mitigated="challenge")
    async with site({"/": page}) as served:
        assert "403" in await failure(served)
        agents = [headers["user-agent"] for _, headers in served.asked]
    assert len(agents) == 2
    assert agents[0].startswith("Mozilla/5.0")
    assert agents[1].startswith("kedge/")


def certificate(folder: Path, name: str) -> Path:
    """A key and a certificate that signs itself, for one name."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(("name", "is_right"), [(NAME, True), ("other.example", False)])
async def test_certificates_are_checked_for_the_name(
    tmp_path: Path, name: str, *, is_right: bool
) -> None:
    """Although the connection goes to an address: a server without the certificate of the name is
    not talked to."""
    path = certificate(tmp_path, name)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(path)
    async with site({"/": answer("safe")}, tls) as served:
        asked = Fetched(NAME)
        asked.fetcher.tls = lambda: ssl.create_default_context(cafile=path)
        url = served.url(host=NAME, scheme="https")
        if is_right:
            assert (await asked.page(url)).data == b"safe"
        else:
            assert "cannot be reached" in await asked.failure(url)
            assert served.asked == []
