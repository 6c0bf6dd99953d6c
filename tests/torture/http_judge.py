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
from tests.server.ears import listening
from tests.server.world import Client
from tests.snapshot.objects_git import git
from tests.torture.http_clients import LOST, Clients
from tests.torture.http_ledger import Known, Ledger, Prompt
from tests.torture.http_server import AtKill, Place, orphans
from tests.torture.http_trees import CutPatch, MovingTree, now
from tests.torture.ledger import open_ends

Json = dict[str, Any]
PATIENCE = 10.0
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

    async def settle(self) -> None:
        """Wait until nothing runs any more; what would run for ever is aborted."""
        until = time.monotonic() + PATIENCE
        while busy := (await self._get("/session/status")):
            if time.monotonic() > until:
                self._ledger.blame("never idle", str(busy))
                return
            lines = set(self._place.lines())
            for session in [self._ledger.know(id) for id in busy]:
                if any(each.is_endless and each.said[0] in lines for each in session.prompts):
                    await self._clients.abort(session)
            await asyncio.sleep(_LOOK)

    async def look(self, kills: list[AtKill], followers: list[Follower]) -> None:
        """Look at everything that may have changed since the last look; so many kills ago."""
        told: dict[str, Json | None] = {}
        lines = Counter(self._place.lines())
        for id in sorted(self._ledger.touched):
            session = self._ledger.sessions[id]
            told[id] = found = await self._told(id)
            self._effects(session, found)
            if found is not None:
                self._ends(session, found)
                for prompt in session.prompts:
                    self._account(session, prompt, found["messages"], lines)
                    if kills and prompt.outcome == "answered":
                        self._not_again(session, prompt, kills[0], lines)
                    if len(kills) == 1 and prompt.outcome == "answered":
                        self._taken_up(session, prompt, kills[0], found["messages"])
            session.was_aborted = False
        self._lines(lines)
        await self._asks()
        await self._follow(followers, told)
        await self._nothing_left()

    async def _told(self, id: str) -> Json | None:
        reply = await self._clients.ask("GET", f"/session/{id}", refusals=(404,))
        if reply.status == 404:
            return None
        messages = await self._get(f"/session/{id}/message")
        for message in messages:
            for diff in message["info"].get("summary", {}).get("diffs", []):
                # Added when somebody asks, not stored.
                diff.pop("patch", None)
        return {
            "info": reply.json,
            "messages": messages,
            "todos": await self._get(f"/session/{id}/todo"),
        }

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
            self._ledger.blame(
                "lost effect", f"{session.id}: reverted to {boundary}, not {session.boundaries}"
            )
        session.boundaries = [boundary]

    def _ends(self, session: Known, found: Json) -> None:
        """Nothing is open that nobody will ever finish."""
        state = Replay()
        for each in found["messages"]:
            state.apply(_event("message.updated", session.id, info=each["info"]))
            for part in each["parts"]:
                state.apply(_event("message.part.updated", session.id, part=part))
        if ends := open_ends(state.state().sessions[session.id]) if found["messages"] else []:
            self._ledger.blame("left open", f"{session.id}: {ends}")

    def _account(
        self, session: Known, prompt: Prompt, messages: list[Json], lines: Counter[str]
    ) -> None:
        """A prompt was answered to its end, or it is said that it was not."""
        asked = [n for n, each in enumerate(messages) if _is_asked(each, prompt)]
        prompt.outcome = "answered" if asked else "absent"
        if len(asked) != 1:
            if asked or (prompt.is_acknowledged and not prompt.may_be_gone):
                self._blame("vanished prompt", session, prompt, f"{len(asked)} times")
            return
        prompt.id = messages[asked[0]]["info"]["id"]
        run = _run(messages, asked[0])
        said = [line for line in prompt.said if lines[line]]
        if not run:
            prompt.outcome = "unanswered"
            self._blame("unanswered prompt", session, prompt, f"{said} in the log")
        elif error := run[-1]["info"].get("error"):
            if "not run" in json.dumps(error) and said:
                self._blame("not run, but ran", session, prompt, f"{said}")
        elif prompt.done not in [part.get("text") for each in run for part in each["parts"]]:
            finish = run[-1]["info"].get("finish")
            self._blame("silent end", session, prompt, f"{len(run)}, {finish}, {said}")
        elif said != prompt.said:
            self._blame("done without effect", session, prompt, f"{said}")

    def _not_again(self, session: Known, prompt: Prompt, kill: AtKill, lines: Counter[str]) -> None:
        """What had begun at a kill is not begun again; only a command that ran may have ended."""
        before = Counter(kill.lines)
        news = [line for line in prompt.said if lines[line] > before[line]]
        if prompt.id in kill.begun - kill.calling and news:
            self._blame("run again", session, prompt, f"{news}")

    def _taken_up(self, session: Known, prompt: Prompt, kill: AtKill, messages: list[Json]) -> None:
        """What had not begun is run once, if it was new and the newest."""
        is_new = prompt.life == self._ledger.kills - 1
        if not is_new or prompt.id not in kill.waiting or session.was_aborted:
            return
        self._ledger.counts["prompts that waited"] += 1
        error = _run(messages, _place(messages, prompt))[-1]["info"].get("error")
        if error:
            self._blame("not taken up", session, prompt, f"{error}")

    def _blame(self, kind: str, session: Known, prompt: Prompt, evidence: str) -> None:
        """Write down what is wrong with a prompt, once."""
        if kind not in prompt.blamed:
            prompt.blamed.add(kind)
            self._ledger.blame(kind, f"{prompt.mark} ({prompt.id}) of {session.id}: {evidence}")

    def _lines(self, lines: Counter[str]) -> None:
        for line, times in lines.items():
            if times > 1:
                self._ledger.blame("ran twice", f"{line}: {times} times")

    async def _asks(self) -> None:
        """Nobody is asked by a run that is gone."""
        for target in ("/permission", "/question"):
            for ask in await self._get(target):
                self._ledger.blame("open ask", f"{target} {ask['id']} of {ask['sessionID']}")

    async def _follow(self, followers: list[Follower], told: dict[str, Json | None]) -> None:
        """Those who only heard the events know the same as those who ask."""
        for number, follower in enumerate(followers):
            differences: list[str] = []

            def agrees(follower: Follower = follower) -> bool:
                nonlocal differences
                differences = _differences(follower.replay, told)
                return not differences

            if not await _comes(agrees):
                self._ledger.blame("replay differs", f"follower {number}: {differences[:2]}")

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
            self._blame("wrong outcome", session, prompt, "no answer")
            return
        after = await self._get(target)
        self._ledger.touched.add(session.id)
        own = [each["info"]["id"] for each in _run(after, _place(after, prompt))]
        if reply.status == 200 and reply.json["info"]["id"] not in own:
            got = reply.json["info"]
            self._blame("wrong outcome", session, prompt, f"that of {got['parentID']}")
        if len(after) != len(before):
            self._blame("asked again", session, prompt, "")

    def stores(self) -> None:
        """Git finds nothing wrong with the snapshots."""
        for store in (self._place.data / "snapshots").glob("*"):
            if (store / "HEAD").exists():
                try:
                    git(store, "fsck", "--full", "--strict", "--no-dangling")
                except AssertionError as error:
                    self._ledger.blame("git fsck", str(error)[:500])


def _is_asked(message: Json, prompt: Prompt) -> bool:
    """Whether a message is this prompt."""
    texts = [part.get("text") for part in message["parts"]]
    return message["info"]["role"] == "user" and prompt.text in texts


def _place(messages: list[Json], prompt: Prompt) -> int:
    return next(n for n, each in enumerate(messages) if _is_asked(each, prompt))


def _run(messages: list[Json], place: int) -> list[Json]:
    """The answers of the run that took up the prompt at this place, until one of them ends it."""
    later = {each["info"]["id"] for each in messages[place:] if each["info"]["role"] == "user"}
    run: list[Json] = []
    for each in messages[place:]:
        info = each["info"]
        if info["role"] == "assistant" and info["parentID"] in later:
            run.append(each)
            if info.get("error") or info.get("finish") != "tool-calls":
                break
    return run


def _event(type: str, session: str, **properties: Any) -> str:  # noqa: ANN401 - any JSON
    return json.dumps({"type": type, "properties": {"sessionID": session, **properties}})


def _differences(replay: Replay, told: dict[str, Json | None]) -> list[str]:
    known = replay.state().sessions
    return [
        f"{id}: {difference}"
        for id, found in told.items()
        if (difference := _difference(known.get(id), found))
    ]


def _difference(known: Any, found: Json | None) -> str | None:  # noqa: ANN401 - a session's state
    if found is None:
        return None if known is None or known.hidden else "is gone"
    if known is None:
        return "was never told of"
    pairs = {
        "info": (_stored(known.info), _stored(found["info"])),
        "todos": (known.todos, found["todos"]),
        "status": (known.status, {"type": "idle"}),
        "asks": (known.asks, {}),
        "messages": (
            [{"info": info, "parts": parts} for info, parts in known.messages],
            found["messages"],
        ),
    }
    return next((f"{name}: {a} / {b}"[:600] for name, (a, b) in pairs.items() if a != b), None)


def _stored(info: Json) -> Json:
    """A session without what is made for those who ask or just heard of a revert."""
    if "revert" not in info:
        return info
    return {**info, "revert": {key: info["revert"][key] for key in info["revert"] if key != "diff"}}


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
