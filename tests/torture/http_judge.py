"""Looks at a server that was killed and started again: what is there, and what does it say?"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kedge.testing.replay import Replay
from tests.server.event_recorder import listening
from tests.server.world import Client
from tests.snapshot.objects_git import git
from tests.torture.http_clients import LOST, Clients
from tests.torture.http_ledger import Known, Ledger, Prompt
from tests.torture.http_outcomes import (
    Json,
    differences,
    left_open,
    places_of,
    run_of,
    trouble_with,
)
from tests.torture.http_server import AtKill, Place, orphans
from tests.torture.http_trees import CutPatch, MovingTree, now

PATIENCE = 60.0
"""Seconds after which what has not come is called missing."""
_LOOK = 0.02
_OF_A_LIVING_SERVER = {
    "heartbeats/*": 1,
    "snapshots/*/journals/*": 2,
    "snapshots/**/tmp_*": 0,
    "tool-output/**/*": 0,
}
"""How many files of a kind the data folder may have when nothing runs."""


class Follower:
    """A client that goes on with its cursor after each kill, and knows only what events told it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._cursor: str | None = None
        self.replay = Replay()
        self._hears = asyncio.Event()

    async def until_it_hears(self) -> None:
        """Wait until it was greeted."""
        await self._hears.wait()

    async def follow(self, client: Client) -> None:
        """Listen until the server is gone."""
        try:
            async with listening(client, self._target, after=self._cursor) as ear:
                while (event := await ear.next()) is not None:
                    self._cursor = event.cursor or self._cursor
                    self.replay.apply(json.dumps(event.event))
                    self._hears.set()
        except LOST:
            return


class Judge:
    """Holds what the server says against what clients were told before the kill."""

    def __init__(self, ledger: Ledger, place: Place, clients: Clients, server: int) -> None:
        self._ledger = ledger
        self._place = place
        self._clients = clients
        self._server = server

    async def settle(self, kills: list[AtKill]) -> None:
        """Wait until nothing runs and every prompt has its answer; what would run for ever is
        aborted."""
        for id in {id for kill in kills for id in kill.reverting}:
            # It waits until the session is recovered.
            await self._clients.preview(self._ledger.know(id))
        waiting = set(self._ledger.touched)
        until = time.monotonic() + PATIENCE
        while waiting:
            if time.monotonic() > until:
                return
            busy = await self._get("/session/status")
            await self._abort_endless(busy)
            waiting |= {self._ledger.know(id).id for id in busy}
            for id in waiting - busy.keys():
                if await self._is_settled(self._ledger.sessions[id]):
                    waiting.discard(id)
            await asyncio.sleep(_LOOK)

    async def _abort_endless(self, busy: Json) -> None:
        lines = set(self._place.lines())
        for session in [self._ledger.know(id) for id in busy]:
            if any(each.is_endless and each.said[0] in lines for each in session.prompts):
                await self._clients.abort(session)

    async def _is_settled(self, session: Known) -> bool:
        told = await self._told(session.id)
        lines = Counter(self._place.lines())
        return told is None or not (
            left_open(told["messages"])
            or any(
                trouble_with(each, told["messages"], lines)
                for each in session.prompts
                if not each.blamed
            )
        )

    async def look(self, kills: list[AtKill], followers: list[Follower]) -> None:
        """Look at everything that may have changed since the last look, so many kills ago."""
        if busy := await self._get("/session/status"):
            self._ledger.blame("never idle", str(busy))
        told = {id: await self._told(id) for id in sorted(self._ledger.touched)}
        lines = Counter(self._place.lines())
        for id, found in told.items():
            session = self._ledger.sessions[id]
            self._effects(session, found)
            if found is not None:
                self._messages(session, found["messages"], kills, lines)
            session.was_aborted = False
        for line in [line for line, times in lines.items() if times > 1]:
            self._ledger.blame("ran twice", f"{line}: {lines[line]} times")
        await self._asks()
        await self._follow(followers, told)
        await self._nothing_left()

    async def _told(self, id: str) -> Json | None:
        reply = await self._clients.ask("GET", f"/session/{id}", refusals=(404,))
        if reply.status == 404:
            return None
        messages = await self._get(f"/session/{id}/message")
        todos = await self._get(f"/session/{id}/todo")
        return {"info": reply.json, "messages": messages, "todos": todos}

    async def _get(self, target: str) -> Any:  # noqa: ANN401 - any JSON
        return (await self._clients.ask("GET", target)).json

    def _effects(self, session: Known, found: Json | None) -> None:
        """What was acknowledged is there, and else what was there or what was asked for."""
        if (found is None) not in session.deleted:
            what = "is gone" if found is None else "is there again"
            self._ledger.blame("lost effect", f"{session.id} {what}")
        session.deleted = [found is None]
        if found is None:
            return
        title = found["info"]["title"]
        if None not in session.titles and title not in session.titles:
            self._ledger.blame("lost effect", f"{session.id}: {title!r}, not {session.titles}")
        boundary = (found["info"].get("revert") or {}).get("messageID")
        if boundary not in session.boundaries:
            wanted = f"reverted to {boundary}, not {session.boundaries}"
            self._ledger.blame("lost effect", f"{session.id}: {wanted}")
        session.boundaries = [boundary]

    def _messages(
        self, session: Known, messages: list[Json], kills: list[AtKill], lines: Counter[str]
    ) -> None:
        """What was cut off says so, and every prompt is accounted for."""
        if ends := left_open(messages):
            self._ledger.blame("left open", f"{session.id}: {ends}")
        for prompt in session.prompts:
            if trouble := trouble_with(prompt, messages, lines):
                self._blame(session, prompt, *trouble)
            prompt.outcome = "absent"
            if places := places_of(prompt, messages):
                prompt.id = messages[places[0]]["info"]["id"]
                run = run_of(prompt, messages)
                prompt.outcome = "answered" if run else "unanswered"
                if kills:
                    self._not_again(session, prompt, kills[0], lines)
                if run and len(kills) == 1:
                    self._taken_up(session, prompt, kills[0], run)

    def _not_again(self, session: Known, prompt: Prompt, kill: AtKill, lines: Counter[str]) -> None:
        """What had begun at a kill is not begun again; only a command that ran may have ended."""
        before = Counter(kill.lines)
        news = [line for line in prompt.said if lines[line] > before[line]]
        if prompt.id in kill.begun - kill.calling and news:
            self._blame(session, prompt, "run again", f"{news}")

    def _taken_up(self, session: Known, prompt: Prompt, kill: AtKill, run: list[Json]) -> None:
        """What had not begun is run once, if it was new and the newest."""
        is_new = prompt.life == self._ledger.kills - 1
        if is_new and prompt.id in kill.waiting and not session.was_aborted:
            self._ledger.counts["prompts that waited"] += 1
            if error := run[-1]["info"].get("error"):
                self._blame(session, prompt, "not taken up", f"{error}")

    def _blame(self, session: Known, prompt: Prompt, kind: str, evidence: str) -> None:
        """Write down what is wrong with a prompt, once."""
        if kind not in prompt.blamed:
            prompt.blamed.add(kind)
            self._ledger.blame(kind, f"{prompt.mark} ({prompt.id}) of {session.id}: {evidence}")

    async def _asks(self) -> None:
        """Nobody is asked by a run that is gone."""
        for target in ("/permission", "/question"):
            for ask in await self._get(target):
                self._ledger.blame("open ask", f"{target} {ask['id']} of {ask['sessionID']}")

    async def _follow(self, followers: list[Follower], told: dict[str, Json | None]) -> None:
        """Those who only heard the events know the same as those who ask."""
        for number, follower in enumerate(followers):
            if not await _comes(lambda follower=follower: not differences(follower.replay, told)):  # type: ignore[misc]
                found = differences(follower.replay, told)[:2]
                self._ledger.blame("replay differs", f"follower {number}: {found}")

    async def _nothing_left(self) -> None:
        """No process, no temporary file, nothing in the data folder that grows."""
        if not await _comes(lambda: not orphans(self._place, self._server)):
            self._ledger.blame("orphan", str(orphans(self._place, self._server)))
        names = [
            os.path.join(folder, name)
            for folder, folders, files in os.walk(self._place.work)
            for name in (*folders, *files)
            if ".kedge-" in name
        ]
        if names:
            self._ledger.blame("temporary file", str(names[:5]))
        for pattern, most in _OF_A_LIVING_SERVER.items():
            if not await _comes(partial(_are_few, self._place.data, pattern, most)):
                self._ledger.blame("leftover", pattern)

    def trees(self, trees: list[MovingTree]) -> None:
        """Files are as the boundary of their session says."""
        for tree in trees:
            (boundary,) = tree.session.boundaries
            if boundary not in tree.at:
                self._ledger.blame("wrong files", f"{tree.folder.name}: boundary {boundary}")
            elif wrong := tree.differences(boundary):
                self._ledger.blame(
                    "wrong files",
                    f"{tree.folder.name} at {boundary}: {len(wrong)} differ, {wrong[:3]}",
                )

    async def undo(self, cut: CutPatch) -> None:
        """What a patch had written is taken back by a revert, all of it and no more."""
        before = len(now(cut.folder))
        await self._clients.revert(cut.session, cut.prompt.id)
        if left := now(cut.folder):
            self._ledger.blame(
                "wrong files", f"{cut.folder.name}: {len(left)} of {before} were not taken back"
            )

    async def repeat(self, prompt: Prompt, session: Known) -> None:
        """A prompt that is sent again is answered with what became of the first."""
        if prompt.outcome == "absent":
            # Its server was killed before it was stored: now it is run, once.
            await self._clients.prompt_async(session, prompt)
            self._ledger.counts["prompts sent again after they were lost"] += 1
            return
        target = f"/session/{session.id}/message"
        before = await self._get(target)
        again = {"messageID": prompt.id, "parts": [{"type": "text", "text": prompt.text}]}
        self._ledger.counts["answered prompts sent again"] += 1
        try:
            async with asyncio.timeout(PATIENCE):
                reply = await self._clients.ask("POST", target, again)
        except TimeoutError:
            self._blame(session, prompt, "wrong outcome", "no answer")
            return
        after = await self._get(target)
        self._ledger.touched.add(session.id)
        own = [each["info"]["id"] for each in run_of(prompt, after)]
        if reply.status == 200 and reply.json["info"]["id"] not in own:
            self._blame(session, prompt, "wrong outcome", f"{reply.json['info']}")
        if len(after) != len(before):
            self._blame(session, prompt, "asked again", f"{len(before)}, now {len(after)} messages")

    def stores(self) -> None:
        """Git finds nothing wrong with the snapshots."""
        for store in (self._place.data / "snapshots").glob("*"):
            if (store / "HEAD").exists():
                try:
                    git(store, "fsck", "--full", "--strict", "--no-dangling")
                except AssertionError as error:
                    self._ledger.blame("git fsck", str(error)[:500])


def _are_few(folder: Path, pattern: str, most: int) -> bool:
    return len(list(folder.glob(pattern))) <= most


async def _comes(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold."""
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_LOOK)
    return True
