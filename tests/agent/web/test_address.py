"""URLs in one form, and the addresses that are not those of the internet."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.web.address import BadUrl, WebAddress, is_public, names_host


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("https://example.com", "https://example.com/"),
        (" HTTPS://EXAMPLE.com:443/a/../b?x=1#part ", "https://example.com/b?x=1"),
        ("http://example.com.:80/", "http://example.com/"),
        ("http://bücher.example/ä", "http://xn--bcher-kva.example/%C3%A4"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0x7f000001:8080/", "http://127.0.0.1:8080/"),
        ("http://2130706433", "http://127.0.0.1/"),
        ("http://017700000001/", "http://127.0.0.1/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
    ],
)
def test_one_form_for_each_url(written: str, url: str) -> None:
    """A rule means the same page, however a model writes its URL."""
    found = WebAddress.parse(written)
    assert found.url in (url, url.replace("::ffff:7f00:1", "::ffff:127.0.0.1"))
    assert WebAddress.parse(found.url) == found


@pytest.mark.parametrize(
    "written",
    [
        *("", "example.com", "/etc/passwd", "file:///etc/passwd", "ftp://example.com/"),
        *("javascript:alert(1)", "data:text/html,x", "http://", "http:///x", "https://:80/"),
        *("http://me:pw@example.com/", "http://example.com@127.0.0.1/", "http://@a.example/"),
        *("http://a.example\\@127.0.0.1/", "http://a b/", "http://a.example/\r\nHost: b"),
        *("http://a.example/\0", "http://a..example/", "http://-a.example/", "http://a%2eb/"),
        *(
            "http://\uff11\uff12\uff17.0.0.1/",
            "http://999.1.1.1/",
            "http://1.2.3.4.5/",
            "http://0177.0.0.1/",
        ),
        *("http://a.example:0/", "http://a.example:99999/", "http://a.example:x/"),
        *("http://[::1", "http://[fe80::1%25eth0]/", "http://[::1]x/", "http://" + "a" * 9000),
    ],
)
def test_what_is_no_url_of_a_page(written: str) -> None:
    """Other schemes, user names, and what different programs read differently."""
    with pytest.raises(BadUrl):
        WebAddress.parse(written)


@given(st.text(max_size=40) | st.text("ht:/p@\\[]%.0x1#?&a", max_size=20).map("http://".__add__))
def test_any_text_is_a_url_or_none(text: str) -> None:
    """Nothing but `BadUrl` is raised, and what is taken stays as it is."""
    try:
        found = WebAddress.parse(text)
    except BadUrl:
        return
    assert WebAddress.parse(found.url) == found


def test_where_a_page_leads() -> None:
    """A link is read as one of its page."""
    base = WebAddress.parse("https://a.example/b/c")
    assert WebAddress.parse("../d", base).url == "https://a.example/d"
    assert WebAddress.parse("//b.example", base).url == "https://b.example/"
    for bad in ("file:///x", "//me@b.example/", "javascript:x"):
        with pytest.raises(BadUrl):
            WebAddress.parse(bad, base)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1"),
        *("127.255.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1"),
        *("239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.88.99.1"),
        *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fec0::1"),
        *("fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::808:808", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "100::1"),
    ],
)
def test_what_is_not_the_internet(address: str) -> None:
    """This machine, private networks, metadata services, and every way to write them in IPv6."""
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "192.167.1.1"),
        *("2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    ],
)
def test_what_is_the_internet(address: str) -> None:
    """Addresses of servers, also behind the translation of networks that have IPv6 alone."""
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_python_knows_no_more_of_them(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """What Python's own table holds to be private, local or for groups is never public here."""
    if address.is_multicast or address.is_loopback or address.is_link_local:
        assert not is_public(address)
    if is_public(address) and getattr(address, "ipv4_mapped", None) is None:
        assert not address.is_private


@pytest.mark.parametrize(
    ("pattern", "url", "names"),
    [
        ("http://127.0.0.1:*", "http://127.0.0.1:8080/x", True),
        ("http://127.0.0.1/*", "http://127.0.0.1/x", True),
        ("http://[::1]:*", "http://[::1]:80/", True),
        ("http://localhost:3000/*", "http://localhost:3000/a", True),
        ("(exactly) http://localhost:3000/*", "http://localhost:3000/*", True),
        ("*", "http://127.0.0.1/", False),
        ("http://*", "http://127.0.0.1/", False),
        ("http*://127.0.0.1/*", "http://127.0.0.1/", False),
        ("http://127.*", "http://127.0.0.1/", False),
        ("http://127.0.0.1*", "http://127.0.0.1/", False),
        ("http://127.0.0.1?*", "http://127.0.0.1:1/", False),
        ("https://127.0.0.1/*", "http://127.0.0.1/", False),
        ("http://127.0.0.1:*", "http://127.0.0.1.example.com/", False),
    ],
)
def test_which_patterns_name_a_server(pattern: str, url: str, *, names: bool) -> None:
    """Scheme and host have to stand there in full: others were not written for this server."""
    assert names_host(pattern, WebAddress.parse(url)) is names
