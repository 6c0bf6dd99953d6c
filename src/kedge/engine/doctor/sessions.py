"""The sessions, one after the other: their rows, their log, and the contents they refer to; and
what runs have left open."""

from dataclasses import dataclass
from functools import partial

from kedge.engine.doctor.findings import Progress, Report
from kedge.engine.doctor.snapshots import Stores
from kedge.engine.os_process import Owner, machine, owner_lives
from kedge.store.port import Store
from kedge.store.queries.checkup import (
    Examined,
    examine_session,
    is_id,
    left_open,
    passing_rules,
    session_ids,
    size,
)

_PAGE = 500
_NAMED = 3

_LEFT = {
    "message": ("message-open", "the message {id} is open"),
    "ask": ("ask-open", "the request {id} waits for an answer"),
    "call": ("call-open", "the call {id} seems to run"),
    "process": ("process-left", "a process of the call {id} is recorded as running"),
    "request": ("request-open", "the request {id} to stop is open"),
    "piece": ("text-left", "the part {id} has text that was not joined with it"),
    "prompt": ("prompt-waits", "the prompt {id} waits for a run"),
    "plan": ("revert-unfinished", "the revert {id} is not completed"),
    "lease": ("run-cut-off", "its run was cut off"),
}


@dataclass(frozen=True, slots=True)
class SessionExamination:
    """The examination of all sessions."""

    store: Store
    stores: Stores
    here: Owner
    objects_are_here: bool
    """Whether all snapshots must be on this machine."""
    report: Report
    progress: Progress

    async def examine(self) -> None:
        """Examine what is open, then each session."""
        await self._left_open()
        for project, permission, pattern, owner, expired in await self.store.scan(passing_rules):
            if not owner_lives(owner, expired, self.here):
                what = f"{permission} {pattern} was allowed in {project} by a server that is gone"
                self.report.add("rule-left", what, owner)
        count, total = await self.store.scan(size)
        self.report.facts["sessions"] = f"{count}, {total} messages"
        done, after, elsewhere = 0, "", 0
        while page := await self.store.scan(partial(session_ids, after, _PAGE)):
            for id, messages in page:
                elsewhere += not await self._session(id)
                done += messages
                self.progress("sessions", done, total)
            after = page[-1][0]
        if elsewhere:
            self.report.unchecked.append(
                f"the snapshots of {elsewhere} sessions: they are on other machines"
            )

    async def _left_open(self) -> None:
        for each in await self.store.scan(left_open):
            if each.owner is not None and owner_lives(each.owner, each.expired, self.here):
                continue
            if each.owner is not None and each.kind != "lease":
                continue  # its run was cut off: recovery ends all of it
            code, words = _LEFT[each.kind]
            self.report.add(code, f"{each.session_id}: {words.format(id=each.id)}", each.session_id)

    async def _session(self, id: str) -> bool:
        """Examine a session; return whether its snapshots could be, too."""
        found = await self._read(id)
        if found is None:
            return True
        add = self.report.add
        if found.damaged:
            add("row-damaged", f"{id}: {found.damaged}", id)
            return True
        for difference in found.differences[:_NAMED]:
            add("replay-differs", f"{id}: {difference} is not as the events say", id)
        for lost in found.lost[:_NAMED]:
            add("rows-lost", f"{id}: {lost}", id)
        if not found.is_listed:
            add("lists-differ", f"{id} does not stand in its lists as it should", id)
        for part in found.running if found.owner is None else ():
            add("tool-running", f"{id}: the call {part} seems to run", id)
        return await self._references(id, found)

    async def _read(self, id: str) -> Examined | None:
        return await self.store.scan(partial(examine_session, id, machine()))

    async def _references(self, id: str, found: Examined) -> bool:
        stores = self.stores
        if not (found.files or found.shown) or stores.has_released(id):
            return True
        if not stores.keeps_for(id):
            # It may have been kept since the stores were looked at.
            stores.look_again()
        if not stores.keeps_for(id) and not found.files:
            return True  # what its parts name is not a snapshot of kedge's
        if not stores.keeps_for(id) and not self.objects_are_here:
            return False
        if self._troubles(found):
            stores.look_again()
            again = await self._read(id)
            if again is not None and not stores.has_released(id):
                self._tell(id, self._troubles(again))
        return True

    def _troubles(self, found: Examined) -> dict[str, list[str]]:
        troubles: dict[str, list[str]] = {}
        for each in sorted(found.files | found.shown):
            how = self.stores.holding(each) if is_id(each) else "kept"
            # What broken trees lead to was not reached, and so is not known to be held.
            if how == "lost" or (how == "unkept" and not self.stores.lacks_objects):
                troubles.setdefault(how, []).append(each)
        return troubles

    def _tell(self, id: str, troubles: dict[str, list[str]]) -> None:
        for how, code, words in (
            ("lost", "reference-lost", "that are not there"),
            ("unkept", "reference-not-kept", "that nothing holds"),
        ):
            if ids := troubles.get(how):
                some = ", ".join(ids[:_NAMED])
                self.report.add(code, f"{id} needs {len(ids)} contents {words}: {some}", id)
