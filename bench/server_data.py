"""The same data for every server that is measured, put there as any client would."""

from dataclasses import dataclass
from http import HTTPMethod
from urllib.parse import quote

from bench.agents_sides import MODEL, PROVIDER
from bench.server_http import Connection, connected

PAGE = 100
"""Messages of a page."""
_PARTS = 3
_TEXT = "The quick brown fox jumps over the lazy dog while it rains. " * 8
_ALIKE = 1.5
"""How many times as long an answer of the same content may be."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much there is."""

    sessions: int
    messages: int
    """Of one of them; the others are empty."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What is to be found in a server."""

    sessions: list[str]
    long: str
    """The session with the messages."""
    pages: list[str]
    """Where all pages of its messages are, newest first."""


async def fill(port: int, wanted: Amount) -> Filled:
    """Make sessions, and messages that nobody is to answer in the last of them."""
    async with connected(port) as connection:
        sessions = [
            (await connection.ask(HTTPMethod.POST, "/session", {"title": f"Session {n}"}))["id"]
            for n in range(wanted.sessions)
        ]
        message = {
            "noReply": True,
            "model": {"providerID": PROVIDER, "modelID": MODEL},
            "parts": [{"type": "text", "text": _TEXT}] * _PARTS,
        }
        for _ in range(wanted.messages):
            await connection.ask(HTTPMethod.POST, f"/session/{sessions[-1]}/message", message)
        pages = await _pages(connection, _newest_page(sessions[-1]))
    return Filled(sessions, sessions[-1], pages)


async def _pages(connection: Connection, first: str) -> list[str]:
    pages = [first]
    while cursor := await connection.header(pages[-1], "x-next-cursor"):
        pages.append(f"{first}&before={quote(cursor, safe='')}")
    return pages


async def check(name: str, port: int, filled: Filled, wanted: Amount) -> None:
    """See that a server answers with all of it, or there is nothing to compare."""
    async with connected(port) as connection:
        sessions = await connection.ask(HTTPMethod.GET, sessions_path(wanted))
        page = await connection.ask(HTTPMethod.GET, page_path(filled))
        every = await connection.ask(HTTPMethod.GET, f"/session/{filled.long}/message")
    found = (len(sessions), len(page), len(every), {len(each["parts"]) for each in every})
    if found != (wanted.sessions, PAGE, wanted.messages, {_PARTS}):
        raise RuntimeError(f"{name} does not have what was put into it: {found}")


def check_alike(what: str, sizes: list[float]) -> None:
    """See that the servers answer about as much."""
    if max(sizes) > min(sizes) * _ALIKE:
        raise RuntimeError(f"{what}: the answers are not of one size: {sizes}")


def sessions_path(wanted: Amount) -> str:
    """Where all sessions are listed."""
    return f"/session?limit={wanted.sessions}"


def page_path(filled: Filled) -> str:
    """Where the newest page of messages is."""
    return filled.pages[0]


def _newest_page(session: str) -> str:
    return f"/session/{session}/message?limit={PAGE}"
