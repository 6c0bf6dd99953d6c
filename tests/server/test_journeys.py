"""How many files of kedge take part in three journeys, which `docs/architecture.md` tells.

Counted are the files of which a function runs, in any thread, between a request and its answer. A
journey is made several times, and counted is what all of them have in common: the server does other
things in the background.
"""

import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import kedge
from tests.agent.world import World
from tests.server.world import Served, serve

TIMES = 5
MOST = {"prompt": 180, "revert": 120, "page": 24}
"""Files for each journey. They may become fewer; before you raise one, ask whether the new file is
needed on the way."""

ASIDE = {
    "prompt": {"agent/references.py"},
    "revert": {"engine/revert/calls.py", "engine/revert/undo.py"},
    "page": set[str](),
}
"""What the page names in a journey although this one does not pass there."""

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(kedge.__file__).parent)


class Footprints:
    """The files of kedge whose functions run while it records."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_recording = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """The profile function: `sys.setprofile` calls it at every call of a function."""
        if self._is_recording and event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self._files.add(name[len(PACKAGE) + 1 :])

    @contextmanager
    def recorded(self) -> Iterator[set[str]]:
        """The files whose functions run inside the block."""
        files: set[str] = set()
        self._files = files
        self._is_recording = True
        try:
            yield files
        finally:
            self._is_recording = False


@pytest.fixture
def footprints() -> Iterator[Footprints]:
    """Installed in this thread and in every thread that starts later."""
    footprints, before = Footprints(), sys.getprofile()
    sys.setprofile(footprints)
    threading.setprofile(footprints)
    yield footprints
    threading.setprofile(None)
    sys.setprofile(before)


@pytest.fixture
async def traced(footprints: Footprints, world: World) -> AsyncIterator[Served]:
    """A server all of whose threads leave footprints; what runs only once has run."""
    async with serve(world) as served:
        yield served


async def prompted(served: Served, session: str, text: str) -> str:
    """The id of a prompt that was answered."""
    body = {"parts": [{"type": "text", "text": text}]}
    reply = await served.post(f"/session/{session}/message", body)
    assert reply.status == 200, reply
    return str(reply.json["info"]["parentID"])


def told_journeys() -> dict[str, set[str]]:
    """The files that the architecture page names in each journey."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    texts = re.findall(r"^## Journey \d.*?(?=^## )", page, flags=re.MULTILINE | re.DOTALL)
    return {
        name: {file for file in re.findall(r"`([\w/]+\.py)`", text) if "test" not in file}
        for name, text in zip(MOST, texts, strict=True)
    }


async def test_three_journeys(traced: Served, footprints: Footprints) -> None:
    """A prompt that writes a file, its revert, and a page of messages each touch few files, among
    them all that the page names."""
    session = (await traced.post("/session", {"title": "Given"})).json["id"]
    # The first snapshot, and what is imported on first use.
    await prompted(traced, session, "write first.txt one")
    seen: dict[str, list[set[str]]] = {name: [] for name in MOST}
    for turn in range(1, TIMES + 1):
        with footprints.recorded() as files:
            prompt = await prompted(traced, session, f"write {turn}.txt two")
        seen["prompt"].append(files)
        with footprints.recorded() as files:
            reply = await traced.post(f"/session/{session}/revert", {"messageID": prompt})
        assert [each["outcome"] for each in reply.json["receipt"]["files"]] == ["deleted"]
        seen["revert"].append(files)
        assert (await traced.post(f"/session/{session}/unrevert")).status == 200
    for limit in range(2, 40):
        # Not the same page again: that would be kept.
        with footprints.recorded() as files:
            assert (await traced.get(f"/session/{session}/message?limit={limit}")).json
        seen["page"].append(files)
    for name, told in told_journeys().items():
        assert told.difference(*seen[name]) == ASIDE[name]
    counted = {name: len(set.intersection(*found)) for name, found in seen.items()}
    assert {name: count for name, count in counted.items() if count > MOST[name]} == {}
