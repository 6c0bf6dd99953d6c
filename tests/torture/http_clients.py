"""Clients that ask a server for everything until it is killed, and note what they are told."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from kedge.domain.ids import IdMaker
from tests.server.world import Client, Reply
from tests.torture.http_ledger import Known, Ledger, Prompt
from tests.torture.http_server import Place

LOST = (OSError, asyncio.IncompleteReadError, IndexError, ValueError)
"""How a request ends whose server was killed."""
_ASKS_AGAIN = 0.03
_MOST_SESSIONS = 3
_REPLIES: dict[str, list[Any]] = {
    "permission": [{"reply": "once"}, {"reply": "reject", "message": "not that"}],
    "question": [{"answers": [["red"]]}],
}
_ids = IdMaker()


class Clients:
    """Everybody who uses one life of the server."""

    def __init__(self, ledger: Ledger, place: Place, client: Client, chance: random.Random) -> None:
        self.ledger = ledger
        self.place = place
        self._client = client
        self._chance = chance

    def new_id(self) -> str:
        """An id for a message, as clients make them."""
        return _ids.message()

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,  # noqa: ANN401 - any JSON
        *,
        refusals: tuple[int, ...] = (),
    ) -> Reply:
        """Ask the server; anything but a yes or one of the refusals is wrong."""
        reply = await self._client.ask(method, target, body)
        if reply.status not in (200, 204, *refusals):
            told = reply.body[:300].decode(errors="replace")
            self.ledger.blame("unexpected answer", f"{method} {target}: {reply.status} {told}")
        return reply

    async def work(self) -> None:
        """Do one thing after the other with a few sessions, until the server is gone."""
        chance = random.Random(self._chance.random())
        waiting: set[asyncio.Task[None]] = set()
        own: list[Known] = []
        try:
            while True:
                if not own or (len(own) < _MOST_SESSIONS and chance.random() < 0.2):
                    own.append(await self.create())
                session = chance.choice(own)
                await self._do_something(session, chance, waiting)
                own = [each for each in own if each.deleted == [False]]
                await asyncio.sleep(chance.random() * 0.05)
        except LOST:
            await asyncio.gather(*waiting)

    async def _do_something(
        self, session: Known, chance: random.Random, waiting: set[asyncio.Task[None]]
    ) -> None:
        what = chance.choices(
            ("wait", "async", "rename", "fork", "abort", "revert", "unrevert", "delete"),
            (30, 30, 10, 6, 6, 8, 4, 4),
        )[0]
        if what == "wait":
            task = asyncio.create_task(self._forgiving(self.prompt(session, self.script(chance))))
            waiting.add(task)
        elif what == "async":
            await self.prompt_async(session, self.script(chance))
        elif what == "revert":
            if known := [each for each in session.prompts if each.id and each.is_acknowledged]:
                await self.revert(session, chance.choice(known).id)
        else:
            verbs: dict[str, Callable[[Known], Awaitable[None]]] = {
                "rename": self.rename,
                "fork": self.fork,
                "abort": self.abort,
                "unrevert": self.unrevert,
                "delete": self.delete,
            }
            await verbs[what](session)

    async def _forgiving(self, request: Awaitable[None]) -> None:
        try:
            await request
        except LOST:
            return

    async def create(self) -> Known:
        """Make a session."""
        reply = await self.ask("POST", "/session", {})
        self.ledger.acknowledged("create")
        return self.ledger.know(reply.json["id"])

    async def prompt(self, session: Known, prompt: Prompt) -> None:
        """Ask, and wait for the answer."""
        reply = await self._sent(session, prompt, "message")
        if reply.status == 200:
            answer = reply.json["info"]
            if answer["role"] == "assistant" and prompt.id is None:
                # Of prompts that are answered together the newest is named.
                texts = [part.get("text") for part in reply.json["parts"]]
                prompt.id = answer["parentID"] if prompt.done in texts else None

    async def prompt_async(self, session: Known, prompt: Prompt) -> None:
        """Ask, and do not wait."""
        await self._sent(session, prompt, "prompt_async")

    async def _sent(self, session: Known, prompt: Prompt, route: str) -> Reply:
        self.ledger.touched.add(session.id)
        if prompt not in session.prompts:
            prompt.life = self.ledger.kills
            session.prompts.append(prompt)
        body: dict[str, Any] = {"parts": [{"type": "text", "text": prompt.text}]}
        if prompt.id is not None:
            body["messageID"] = prompt.id
        # A prompt makes a pending revert final.
        session.boundaries.append(None)
        session.asking += 1
        reverts = session.reverts
        reply = await self.ask("POST", f"/session/{session.id}/{route}", body, refusals=(404, 409))
        session.asking -= 1
        if reply.status in (200, 204):
            prompt.is_acknowledged = True
            self.ledger.acknowledged("prompt")
            if session.reverts == reverts:
                session.boundaries = [None]
        return reply

    async def revert(self, session: Known, message: str | None) -> None:
        """Go back to before a prompt."""
        self.ledger.touched.add(session.id)
        first = next((n for n, each in enumerate(session.prompts) if each.id == message), 0)
        for each in session.prompts[first:]:
            each.may_be_gone = True
        session.boundaries.append(message)
        session.reverts += 1
        target = f"/session/{session.id}/revert"
        reply = await self.ask("POST", target, {"messageID": message}, refusals=(404, 409))
        if reply.status == 200:
            boundary = (reply.json.get("revert") or {}).get("messageID")
            session.boundaries = [boundary, None] if session.asking else [boundary]
            self.ledger.acknowledged("revert")

    async def preview(self, session: Known) -> None:
        """Ask what a revert would do."""
        message = next((each.id for each in session.prompts if each.id), None)
        if message is not None:
            body = {"messageID": message, "dryRun": True}
            await self.ask("POST", f"/session/{session.id}/revert", body, refusals=(404, 409))

    async def unrevert(self, session: Known) -> None:
        """Put back what was taken out."""
        self.ledger.touched.add(session.id)
        session.boundaries.append(None)
        session.reverts += 1
        target = f"/session/{session.id}/unrevert"
        if (await self.ask("POST", target, refusals=(404, 409))).status == 200:
            session.boundaries = [None]
            self.ledger.acknowledged("unrevert")

    async def rename(self, session: Known) -> None:
        """Change the title."""
        self.ledger.touched.add(session.id)
        title = f"title {self.ledger.next_mark()}"
        session.titles.append(title)
        target = f"/session/{session.id}"
        if (await self.ask("PATCH", target, {"title": title}, refusals=(404,))).status == 200:
            session.titles = [title]
            self.ledger.acknowledged("patch")

    async def fork(self, session: Known) -> None:
        """Make a copy of all of it."""
        reply = await self.ask("POST", f"/session/{session.id}/fork", {}, refusals=(404,))
        if reply.status == 200:
            self.ledger.know(reply.json["id"], is_copy=True)
            self.ledger.acknowledged("fork")

    async def abort(self, session: Known) -> None:
        """Stop what runs."""
        self.ledger.touched.add(session.id)
        session.was_aborted = True
        await self.ask("POST", f"/session/{session.id}/abort", refusals=(404,))

    async def delete(self, session: Known) -> None:
        """Remove it."""
        self.ledger.touched.add(session.id)
        session.deleted.append(True)
        reply = await self.ask("DELETE", f"/session/{session.id}", refusals=(404, 409))
        if reply.status == 200:
            session.deleted = [True]
            self.ledger.acknowledged("delete")

    async def answer_asks(self) -> None:
        """Answer whatever runs ask people, until the server is gone; not what a dead one asked."""
        chance = random.Random(self._chance.random())
        try:
            while True:
                busy = (await self.ask("GET", "/session/status")).json
                for kind in ("permission", "question") if busy else ():
                    for each in (await self.ask("GET", f"/{kind}")).json:
                        if each["sessionID"] in busy:
                            target = f"/{kind}/{each['id']}/reply"
                            reply = chance.choice(_REPLIES[kind])
                            await self.ask("POST", target, reply, refusals=(404,))
                await asyncio.sleep(_ASKS_AGAIN)
        except LOST:
            return

    def script(self, chance: random.Random) -> Prompt:
        """A prompt of any kind, with an id of its own or without."""
        mark = self.ledger.next_mark()
        first, second = (f"bash echo {mark}.{n} >> {self.place.log}" for n in (1, 2))
        kinds = {
            "quick": (6, [first]),
            "text": (6, ["slow 12 15ms say Some words, and more of them, and more.", first]),
            "thought": (4, ["wait 150ms", "think Well.", first]),
            "write": (5, [first, *_writes(mark), second]),
            "patch": (4, [first, patch(f"load/{mark}", 12), second]),
            "sleep": (5, [first, "bash sleep 0.2", second]),
            "tree": (3, [first, f"bash echo noise > {mark}.noise", second]),
            "endless": (5, [first, "bash sleep 500"]),
            "stubborn": (1, [first, "bash trap '' TERM; sleep 500 & wait; sleep 500"]),
            "permission": (3, ["try read /etc/hostname", first]),
            "question": (3, ["ask Which colour? | red | blue", first]),
            "todo": (2, [f"todo [x] begin | [~] go on {mark}", first]),
        }
        name = chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        lines = kinds[name][1]
        return Prompt(
            mark,
            "\n".join([*lines, f"say done-{mark}."]),
            lines=1 + (second in lines),
            id=self.new_id() if chance.random() < 0.6 else None,
            is_endless=name in ("endless", "stubborn"),
        )


def patch(folder: str, files: int) -> str:
    """A command of the offline model that makes files with one call of `apply_patch`."""
    added = [f"*** Add File: {folder}/{n}.txt\n+{folder} {n}" for n in range(files)]
    return "\n".join(["patch <<END", "*** Begin Patch", *added, "*** End Patch", "END"])


def _writes(mark: str) -> list[str]:
    return [f"write load/{mark}.txt one two", f"edit load/{mark}.txt one three"]
