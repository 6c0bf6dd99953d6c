"""Random verbs on SQLite: whatever happens, replaying the log gives the state tables.

The machine keeps to what the engine promises the store: a part is announced before its progress
is, and a message is not completed while one of its parts still runs.
"""

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kedge.domain.ids import IdMaker
from kedge.domain.messages import AssistantMessage, Message, MessageTime
from kedge.domain.parts import Part, PartTime, TextPart, part_ended
from kedge.domain.permissions import PermissionReply, PermissionRequest
from kedge.domain.sessions import ForkOrigin, SessionInfo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.asks import (
    AskAnswer,
    add_ask,
    answer_permission,
    answer_question,
    open_asks,
    reject_question,
)
from kedge.store.queries.event_log import log_head
from kedge.store.queries.leases import lease_of, release_lease, take_over
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.parts import put_part, remove_part
from kedge.store.queries.plans import PlanKind
from kedge.store.queries.projects import place_worktree
from kedge.store.queries.retention import compact_session, purge_session
from kedge.store.queries.sessions import (
    change_session,
    create_session,
    delete_session,
    get_session,
    restore_session,
)
from kedge.store.queries.tails import list_tails, restore_tail
from kedge.store.queries.todos import put_todos
from kedge.store.sqlite.store import SqliteStore
from kedge.testing.replay import both
from kedge.testing.store import asks, undoing
from kedge.testing.store.scene import Scene, changed
from kedge.testing.store.todos import todo

T = TypeVar("T")
LONG = bool(os.environ.get("KEDGE_TORTURE"))
choice = st.integers(0, 1000)


class ReplayMachine(RuleBasedStateMachine):
    """Does things to one database and compares its log with its tables after each."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        path = Path(self.folder.name) / "kedge.db"
        self.scene = Scene(self.run(SqliteStore.open(path, IdMaker())))
        self.live: list[str] = []
        self.hidden: list[str] = []

    def teardown(self) -> None:
        self.run(self.scene.store.close())
        self.runner.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def session(self, n: int) -> SessionInfo:
        return self.run(self.scene.read(get_session, self.live[n % len(self.live)]))

    def pick(self, n: int) -> tuple[SessionInfo, Message, list[Part]] | None:
        """Some message of some session, if that has one."""
        info = self.session(n)
        messages = self.run(self.scene.messages(info))
        return (info, *messages[n % len(messages)]) if messages else None

    @rule(n=choice, worktree=st.sampled_from(["/one", "/two"]), child=st.booleans())
    def create(self, n: int, worktree: str, child: bool) -> None:
        parent = self.live[n % len(self.live)] if child and self.live else None
        project = self.run(self.scene.write(place_worktree, worktree, worktree[1:], "git", n))
        info = self.scene.session(
            projectID=project.id, directory=worktree, parentID=parent, title=str(n)
        )
        self.run(self.scene.write(create_session, info, worktree))
        self.live.append(info.id)

    @rule(n=choice, worktree=st.sampled_from(["/one", "/two"]), to=st.sampled_from(["one", "two"]))
    def drift(self, n: int, worktree: str, to: str) -> None:
        self.run(self.scene.write(place_worktree, worktree, to, "git", n))

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def rename(self, n: int) -> None:
        self.run(
            self.scene.write(
                change_session, self.session(n).id, lambda old: changed(old, title=f"title {n}")
            )
        )

    @precondition(lambda self: self.live)
    @rule(n=choice, again=st.booleans())
    def ask(self, n: int, again: bool) -> None:
        # Few ids, so that removed messages are written again.
        info = self.session(n)
        taken = {message.id for message, _ in self.run(self.scene.messages(info))}
        id = f"msg_{n % 3}"
        free = again and id not in taken
        self.run(self.scene.add_user(info, id=id if free else self.scene.ids.message()))

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def answer(self, n: int) -> None:
        if found := self.pick(n):
            self.run(self.scene.add_assistant(found[0], found[1].id))

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def complete(self, n: int) -> None:
        match self.pick(n):
            case (_, AssistantMessage() as message, parts):
                for part in parts:
                    if isinstance(part, TextPart) and not part_ended(part):
                        self.end(part)
                time = MessageTime(created=0, completed=n)
                self.run(self.scene.write(put_message, changed(message, time=time)))

    def end(self, part: TextPart) -> None:
        ended = changed(part, time=PartTime(start=0, end=1))
        self.run(self.scene.write(put_part, ended, now=0, after_progress=True))

    @precondition(lambda self: self.live)
    @rule(n=choice, kind=st.sampled_from(["text", "finish", "running"]))
    def add_part(self, n: int, kind: str) -> None:
        match kind, self.pick(n):
            case "text", (_, message, _):
                self.run(self.scene.add_text(message, str(n)))
            case "finish", (_, message, _):
                self.run(self.scene.put(self.scene.finish(message, n / 10, input=n)))
            case "running", (_, AssistantMessage() as message, _) if not message.time.completed:
                self.run(self.scene.put(self.scene.running_text(message, str(n))))

    @precondition(lambda self: self.live)
    @rule(n=choice, how=st.sampled_from(["progress", "progress", "end", "remove"]))
    def go_on(self, n: int, how: str) -> None:
        found = self.pick(n)
        if found is None or not found[2]:
            return
        info, message, parts = found
        part = parts[n % len(parts)]
        if how == "remove":
            self.run(self.scene.write(remove_part, info.id, message.id, part.id))
        elif isinstance(part, TextPart) and not part_ended(part):
            if how == "end":
                self.end(part)
            else:
                more = changed(part, text=part.text + "+")
                self.run(
                    self.scene.write(put_part, more, now=0, progress=True, after_progress=True)
                )

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def remove(self, n: int) -> None:
        if found := self.pick(n):
            self.run(self.scene.write(remove_message, found[0].id, found[1].id))

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def plan(self, n: int) -> None:
        todos = [todo(str(each)) for each in range(n % 3)]
        self.run(self.scene.write(put_todos, self.session(n).id, todos, now=n))

    @precondition(lambda self: self.live)
    @rule(n=choice, whole=st.booleans())
    def fork(self, n: int, whole: bool) -> None:
        found = self.pick(n)
        boundary = found[1].id if found and not whole else None
        self.live.append(self.run(self.scene.fork(self.session(n), boundary)).id)

    @precondition(lambda self: self.live)
    @rule(n=choice, part=st.booleans(), kind=st.sampled_from(["revert", "revert", "files"]))
    def revert(self, n: int, part: bool, kind: PlanKind) -> None:
        found = self.pick(n)
        if found is None or self.is_held(found[0]):
            return
        info, message, parts = found
        part_id = parts[n % len(parts)].id if part and parts else None
        left = [b"file"] if n % 3 else []
        work = undoing.revert(
            self.scene, info, message.id, part_id, kind=kind, left=left, leaves_files=n % 5 == 0
        )
        self.run(work)

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def unrevert(self, n: int) -> None:
        info = self.session(n)
        if not self.is_held(info):
            self.run(undoing.revert(self.scene, info, None, kind="unrevert"))

    @precondition(lambda self: self.live)
    @rule(n=choice, changes=st.booleans())
    def prompt(self, n: int, changes: bool) -> None:
        message = self.run(undoing.prompt(self.scene, self.session(n)))
        if changes:
            self.run(undoing.add_change(self.scene, message, "prt_change", b"file"))

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def bring_back(self, n: int) -> None:
        info = self.session(n)
        tails = self.run(self.scene.read(list_tails, info.id))
        if tails:
            fork = self.scene.session(fork=ForkOrigin(sessionID=info.id))
            tail = tails[n % len(tails)]
            copy = self.scene.bulk(restore_tail, tail.id, fork, self.scene.ids, now=n)
            self.live.append(self.run(copy).id)

    def is_held(self, info: SessionInfo) -> bool:
        """Whether somebody runs the session."""
        return self.run(self.scene.read(lease_of, info.id))[0] is not None

    @precondition(lambda self: self.live)
    @rule(n=choice, release=st.booleans())
    def lease(self, n: int, release: bool) -> None:
        info = self.session(n)
        fence = self.run(self.scene.acquire(info, alive=False))
        if release:
            self.run(self.scene.write(release_lease, fence))

    @precondition(lambda self: self.live)
    @rule(n=choice, question=st.booleans())
    def wonder(self, n: int, question: bool) -> None:
        info = self.session(n)
        fence = self.run(self.scene.acquire(info, alive=False))
        request = (
            asks.question(self.scene, info, "Which?")
            if question
            else asks.permission(self.scene, info, f"tool{n % 3} x")
        )
        self.run(self.scene.write(add_ask, request, fence=fence, is_open=asks.THERE.is_open, now=n))

    @rule(n=choice, reply=st.sampled_from(["once", "always", "reject"]))
    def reply(self, n: int, reply: PermissionReply) -> None:
        found = self.run(self.scene.store.scan(open_asks))
        if not found:
            return
        request = found[n % len(found)].request
        if isinstance(request, PermissionRequest):
            answer = AskAnswer(reply=reply)
            self.run(
                self.scene.write(answer_permission, request.id, answer, owners=asks.THERE, now=n)
            )
        elif reply == "reject":
            self.run(self.scene.write(reject_question, request.id, owners=asks.THERE, now=n))
        else:
            self.run(
                self.scene.write(answer_question, request.id, [["Red"]], owners=asks.THERE, now=n)
            )

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def recover(self, n: int) -> None:
        self.run(
            self.scene.write(
                take_over,
                self.session(n).id,
                "new",
                is_alive=lambda owner, late: False,
                now=n,
                error=aborted("killed"),
            )
        )

    @precondition(lambda self: self.live)
    @rule(n=choice)
    def delete(self, n: int) -> None:
        gone = [
            each.id for each in self.run(self.scene.write(delete_session, self.session(n).id, n))
        ]
        self.live = [id for id in self.live if id not in gone]
        self.hidden += gone

    @precondition(lambda self: self.hidden)
    @rule(n=choice)
    def restore(self, n: int) -> None:
        self.run(self.scene.write(restore_session, self.hidden[n % len(self.hidden)]))
        sessions = self.run(both(self.scene.store))[1].sessions
        self.live = [id for id, each in sessions.items() if not each.hidden]
        self.hidden = [id for id, each in sessions.items() if each.hidden]

    @precondition(lambda self: self.hidden)
    @rule(n=choice)
    def purge(self, n: int) -> None:
        id = self.hidden.pop(n % len(self.hidden))
        self.run(self.scene.store.write_bulk(lambda: purge_session(id, 1000)))

    @precondition(lambda self: self.live or self.hidden)
    @rule(n=choice, share=st.integers(1, 4))
    def compact(self, n: int, share: int) -> None:
        sessions = self.live + self.hidden
        until = self.run(self.scene.read(log_head)) * share // 4
        id = sessions[n % len(sessions)]
        self.run(self.scene.store.write_bulk(lambda: compact_session(id, until)))

    @invariant()
    def replay_is_exact(self) -> None:
        replayed, stored = self.run(both(self.scene.store))
        assert replayed == stored


ReplayMachine.TestCase.settings = settings(
    max_examples=500 if LONG else 40,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)] if LONG else []
TestReplay = ReplayMachine.TestCase
