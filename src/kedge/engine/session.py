"""One session: read and change it, its messages, parts and todos; fork it, run turns in it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidInput
from kedge.domain.events import PartDelta
from kedge.domain.ids import IdMaker, check_id
from kedge.domain.messages import Message, MessageModel, MessageWithParts
from kedge.domain.parts import FilePart, Part, ReasoningPart, TextPart, ToolPart
from kedge.domain.permissions import PermissionRule
from kedge.domain.receipts import Receipt, RevertScope, RevertStrategy
from kedge.domain.sessions import (
    NO_TOKENS,
    FileDiff,
    ForkOrigin,
    SessionInfo,
    SessionStatus,
    SessionTime,
    Tail,
    Todo,
    TodoVersion,
)
from kedge.domain.titles import fork_title, slug
from kedge.domain.worktrees import TreeEntry
from kedge.engine.kept_files import inherit, release
from kedge.engine.validation import (
    check_flag,
    check_limit,
    check_offset,
    check_text,
    check_time,
    check_value,
    check_values,
)
from kedge.store.queries.boundaries import turn_after, turn_before
from kedge.store.queries.change_queries import changes_of, snapshot_at
from kedge.store.queries.forks import fork_session
from kedge.store.queries.leases import when_idle
from kedge.store.queries.messages import get_message, message_page, remove_message
from kedge.store.queries.parts import get_part, put_part, remove_part
from kedge.store.queries.retention import stop_and_delete
from kedge.store.queries.sessions import (
    archive_subtasks,
    archived,
    change_session,
    child_sessions,
    forks_of_session,
    get_session,
    lock_live_session,
    touched,
)
from kedge.store.queries.tails import list_tails, restore_tail
from kedge.store.queries.todos import get_todos, put_todos, todo_history
from kedge.store.queries.turns import store_message
from kedge.store.transaction import Script

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.turns import Turn
    from kedge.snapshot.aio import AsyncSnapshots

_FUTURE = 86_400_000
"""How far ahead of this clock another clock may be, in milliseconds."""

_Change: TypeAlias = Callable[[SessionInfo], SessionInfo]

LARGE_VALUE = 64 * 1024
"""Characters above which a value is stored in a thread rather than on the event loop."""


@dataclass(frozen=True, slots=True)
class MessageList:
    """Neighbouring messages, oldest first."""

    messages: list[MessageWithParts]
    older: str | None
    """Pass it as `before` to get the messages before these; None if there are none."""
    newer: str | None
    """Pass it as `after` to get the messages after these; None if there were none."""


class Session:
    """A session as it was when this handle was made or last refreshed."""

    def __init__(self, engine: "Engine", info: SessionInfo) -> None:
        self._engine = engine
        self.info = info

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.title!r}>"

    @property
    def id(self) -> str:
        """The session's id."""
        return self.info.id

    @property
    def title(self) -> str:
        """The session's title."""
        return self.info.title

    @property
    def origin(self) -> ForkOrigin | None:
        """Where this session was forked from, if it was."""
        return self.info.fork

    @property
    def worktree(self) -> str:
        """The root of the worktree that the session's directory lies in."""
        return self.info.worktree

    async def snapshots(self) -> "AsyncSnapshots":
        """The snapshots of the session's worktree; their status says how much of it is
        protected."""
        return await self._engine.snapshots_of(self.worktree, self.info.projectID)

    async def refresh(self) -> "Session":
        """Read the session again; return this handle."""
        self.info = await self._engine.store.read(partial(get_session, self.id))
        return self

    async def status(self) -> SessionStatus:
        """What the session is doing, in any process."""
        return await self._engine.runs.status(self.id)

    async def update(
        self,
        *,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        permission: Sequence[PermissionRule] | None = None,
        archived: bool | int | float | None = None,
    ) -> "Session":
        """Change the given fields and leave the others; return this handle.

        `metadata` replaces, `permission` is appended to the existing rules. `archived` is True
        (now), a time in milliseconds, or False to unarchive the session; its subtasks go along.
        Changing the title or the archive state does not count as activity: `time.updated` stays.
        """
        now = self._engine.clock.now()
        changes = self._changes(now, title, metadata, permission, archived)
        if changes:
            self.info = await self._engine.store.write(partial(self._change, changes))
        return self

    def _change(self, changes: Sequence[_Change]) -> Script[SessionInfo]:
        before = (yield from lock_live_session(self.id)).info.time.archived
        info = yield from change_session(self.id, *changes)
        if info.time.archived != before:
            yield from archive_subtasks(self.id, before, info.time.archived)
        return info

    def _changes(
        self,
        now: int,
        title: str | None,
        metadata: dict[str, Any] | None,
        permission: Sequence[PermissionRule] | None,
        archive: bool | int | float | None,
    ) -> list[_Change]:
        changes: list[_Change] = []
        if title is not None:
            changes.append(_setting(title=check_text(title, "title")))
        if metadata is not None:
            replaced = _setting(metadata=wire.convert(metadata, dict[str, Any]))
            changes.append(lambda info: touched(replaced(info), now))
        if permission is not None:
            rules = check_values(permission, PermissionRule, "permission")
            changes.append(lambda info: touched(_with_rules(info, rules), now))
        if archive is not None:
            at = _archive_time(archive, now)
            changes.append(lambda info: archived(info, at))
        return changes

    async def delete(self) -> None:
        """Hide the session and its subtasks and stop their runs; see `Sessions.restore`."""
        engine = self._engine
        await engine.store.read(partial(get_session, self.id))
        # A run that does not stop in time is cut off when the session is deleted.
        await engine.runs.stop(self.id)
        now = engine.clock.now()
        delete = partial(stop_and_delete, self.id, engine.runs.owner, engine.ids, now)
        await engine.store.write_bulk(delete)

    async def abort(self) -> bool:
        """Stop the runs of the session and its subtasks, in any process; return whether all are
        idle now. Subscribers get the session's idle event even if it was idle already."""
        return await self._engine.runs.abort(self.id)

    async def children(self) -> list["Session"]:
        """The subtasks of this session."""
        return self._handles(await self._engine.store.scan(partial(child_sessions, self.id)))

    async def forks(self) -> list["Session"]:
        """The sessions that were forked from this one."""
        return self._handles(await self._engine.store.scan(partial(forks_of_session, self.id)))

    async def fork(self, before: str | None = None) -> "Session":
        """Fork the session: a new session with all messages, or with those before a message."""
        boundary = None if before is None else check_id("msg", before)
        return await self._copied(boundary, fork_session)

    async def _copied(
        self,
        boundary: str | None,
        copy: Callable[[SessionInfo, IdMaker, int], Script[SessionInfo]],
    ) -> "Session":
        """A fork whose rows are copied by a script."""
        engine = self._engine
        now = engine.clock.now()
        origin = await engine.store.read(partial(get_session, self.id))
        info = SessionInfo(
            id=engine.ids.session(),
            slug=slug(engine.random),
            projectID=origin.projectID,
            directory=origin.directory,
            path=origin.path,
            title=fork_title(origin.title),
            version=engine.version,
            metadata=origin.metadata,
            permission=origin.permission,
            fork=ForkOrigin(sessionID=origin.id, messageID=boundary),
            time=SessionTime(created=now, updated=now),
            cost=0,
            tokens=NO_TOKENS,
        )
        # Inherit before storing: otherwise the fork would lose its snapshots along with its origin.
        await inherit(engine.data, info.projectID, origin.id, info.id)
        try:
            filled = await engine.store.write_bulk(partial(copy, info, engine.ids, now))
        except Exception:
            # Not on cancellation: that is raised after the fork was stored.
            await release(engine.data, info.projectID, info.id)
            raise
        return Session(engine, filled)

    async def revert(
        self,
        message_id: str,
        part_id: str | None = None,
        *,
        strategy: RevertStrategy = "merge",
        dry_run: bool = False,
        files: Sequence[str | bytes | os.PathLike[str]] | None = None,
        scope: RevertScope = "all",
    ) -> Receipt:
        """Undo the session's changes to files since a message or part, and hide the messages since
        then; the next prompt makes the revert final, `unrevert` takes it back.

        Changes by others are kept. `strategy` decides what happens to a file where they cannot be
        separated from the session's: "merge" leaves the file alone, "overwrite" restores it anyway,
        "abort" cancels the whole revert. `files` limits the revert to these paths and what is below
        them, relative to the session's directory. `scope` is "all", "messages" (files stay as they
        are) or "files" (no message is hidden). With `dry_run` the receipt says what would be done.
        An unknown message changes nothing.
        """
        from kedge.engine.revert.prepare import asked

        check_id("msg", message_id)
        if part_id is not None:
            check_id("prt", part_id)
        wish = asked(
            strategy=strategy,
            scope=scope,
            dry_run=dry_run,
            files=files,
            directory=self.info.directory,
            root=self.worktree,
        )
        return await self._engine.reverts.revert(self, message_id, part_id, wish)

    async def unrevert(self, *, dry_run: bool = False) -> Receipt:
        """Restore what `revert` took out, unless a prompt has made it final. With `dry_run` the
        receipt says what would be done."""
        dry = bool(check_flag(dry_run, "dry_run"))
        return await self._engine.reverts.unrevert(self, dry_run=dry)

    async def undo(
        self,
        *,
        calls: Sequence[str] | None = None,
        parts: Sequence[str] | None = None,
        messages: Sequence[str] | None = None,
        files: Sequence[str | bytes | os.PathLike[str]] | None = None,
        strategy: RevertStrategy = "merge",
        dry_run: bool = False,
    ) -> Receipt:
        """Take chosen calls out of the files, wherever they stand, and leave all that came later in
        place; no message is hidden, and `redo` puts them back, also after later prompts.

        `calls` are the ids that the model gave them, `parts` those of their parts, `messages` stand
        for all calls of an answer, or of the turn of a prompt; what their subtasks did goes along.
        `files` limits it to these paths and what is below them, or alone means all calls there. In
        a file where a call cannot be separated from what came later nothing is done ("merge"), or
        the file is restored to before the first of the calls and later ones go with it
        ("overwrite"), or nothing is done at all ("abort").
        """
        return await self._undo(
            calls, parts, messages, files, strategy=strategy, dry_run=dry_run, is_redo=False
        )

    async def redo(
        self,
        *,
        calls: Sequence[str] | None = None,
        parts: Sequence[str] | None = None,
        messages: Sequence[str] | None = None,
        files: Sequence[str | bytes | os.PathLike[str]] | None = None,
        strategy: RevertStrategy = "merge",
        dry_run: bool = False,
    ) -> Receipt:
        """Put calls back that `undo` took out of the files; the arguments are those of `undo`, the
        strategies "merge" and "abort"."""
        return await self._undo(
            calls, parts, messages, files, strategy=strategy, dry_run=dry_run, is_redo=True
        )

    async def _undo(
        self,
        calls: object,
        parts: object,
        messages: object,
        files: object,
        *,
        strategy: object,
        dry_run: object,
        is_redo: bool,
    ) -> Receipt:
        from kedge.engine.revert.prepare import asked
        from kedge.engine.revert.undo import wanted

        wish = asked(
            strategy=strategy,
            scope="files",
            dry_run=dry_run,
            files=files,
            directory=self.info.directory,
            root=self.worktree,
        )
        named = wanted(calls=calls, parts=parts, messages=messages, files=wish.files)
        undoing = self._engine.undoing
        return await (undoing.redo if is_redo else undoing.undo)(self, named, wish)

    async def turn_to_undo(self) -> str | None:
        """The prompt of the last turn that is not reverted: `revert` takes it to undo one more
        turn. None if there is none."""
        return await self._engine.store.read(partial(turn_before, self.id))

    async def turn_to_redo(self) -> str | None:
        """The prompt that `revert` takes to bring back one of several reverted turns. None if at
        most one is reverted: then `unrevert` brings it back."""
        return await self._engine.store.read(partial(turn_after, self.id))

    async def reverted_diff(self) -> str:
        """What a pending revert did to the files, as `git diff` text of at most 1 MiB."""
        return await self._engine.reverts.reverted_diff(self)

    async def tails(self) -> list[Tail]:
        """What final reverts removed from the session, oldest first."""
        return await self._engine.store.scan(partial(list_tails, self.id))

    async def restore_tail(self, id: str) -> "Session":
        """A new session with a tail and everything before it; files are not touched."""
        check_id("tail", id)
        return await self._copied(None, partial(restore_tail, id))

    async def messages(
        self, *, limit: int = 100, before: str | None = None, after: str | None = None
    ) -> MessageList:
        """The newest messages, or those next to a cursor; always oldest first."""
        if before is not None and after is not None:
            raise InvalidInput("give only one of before and after")
        page = await self._engine.store.scan(
            partial(
                message_page,
                self.id,
                before=None if before is None else PageCursor.parse(before, self.id),
                after=None if after is None else PageCursor.parse(after, self.id),
                limit=check_limit(limit),
            )
        )
        return MessageList(
            [text.decoded() for text in page.messages],
            page.older.text(self.id) if page.older else None,
            page.newer.text(self.id) if page.newer else None,
        )

    async def message(self, id: str) -> MessageWithParts:
        """One message with its parts."""
        script = partial(get_message, self.id, check_id("msg", id))
        return (await self._engine.store.scan(script)).decoded()

    async def diff(
        self, message_id: str | None = None, *, until: str | None = None
    ) -> list[FileDiff]:
        """What the session and its subtasks changed, file by file: only their own lines, and
        without what a pending revert took out of the files.

        For a message: what it changed; for a prompt that is its whole turn. With `until`: the
        changes from the message (or the beginning) up to, and without, that message. At most 1 MiB
        of patches; the patch of a file beyond that is None.
        """
        ids = [None if id is None else check_id("msg", id) for id in (message_id, until)]
        changes = await self._engine.store.scan(partial(changes_of, self.id, *ids))
        # A session without changes may have no object store to read.
        return await self._engine.diffs.texts(self, changes) if changes else []

    async def tree(self, message_id: str, path: str | bytes = "") -> list[TreeEntry]:
        """What a folder contained as of a message; the path is relative to the session's directory.

        As of an assistant message: at the end of its step. As of a prompt: when the prompt was
        answered.
        """
        return await self._engine.diffs.tree(self, await self._snapshot_at(message_id), path)

    async def file(self, message_id: str, path: str | bytes) -> bytes:
        """The content of a file as of a message, or the target of a symlink; see `tree`."""
        return await self._engine.diffs.file(self, await self._snapshot_at(message_id), path)

    async def _snapshot_at(self, message_id: str) -> str:
        script = partial(snapshot_at, self.id, check_id("msg", message_id))
        return await self._engine.store.read(script)

    async def put_message(self, message: Message) -> Message:
        """Store a new or changed message; return it with the time it was created.

        A new message makes a pending revert final, as a prompt does.
        """
        message = check_value(message, Message)
        self._check_mine(message.sessionID)
        check_id("msg", message.id)
        now = self._engine.clock.now()
        if message.time.created > now + _FUTURE:
            raise InvalidInput("time.created lies in the future", field="time")
        return await self._engine.store.write_bulk(partial(store_message, message, now=now))

    async def remove_message(self, id: str) -> bool:
        """Remove a message and its parts; return whether it existed. `SessionBusy` while the
        session runs."""
        remove = partial(remove_message, self.id, check_id("msg", id))
        is_alive = self._engine.runs.alive_in(self.id)
        return await self._engine.store.write_bulk(partial(when_idle, self.id, is_alive, remove))

    async def part(self, message_id: str, id: str) -> Part:
        """One part of a message."""
        check_id("msg", message_id)
        return await self._engine.store.read(
            partial(get_part, self.id, message_id, check_id("prt", id))
        )

    async def put_part(self, part: Part) -> None:
        """Store a new or changed part."""
        part = check_value(part, Part)
        self._check_mine(part.sessionID)
        check_id("msg", part.messageID)
        check_id("prt", part.id)
        store = self._engine.store
        write = store.write_bulk if is_large(part) else store.write
        await write(partial(put_part, part, now=self._engine.clock.now()))

    async def remove_part(self, message_id: str, id: str) -> bool:
        """Remove a part; return whether it existed."""
        check_id("msg", message_id)
        script = partial(remove_part, self.id, message_id, check_id("prt", id))
        return await self._engine.store.write(script)

    def delta(self, message_id: str, part_id: str, text: str, *, offset: int) -> None:
        """Announce more of a part's text to subscribers; nothing is stored."""
        self._engine.events.announce(
            PartDelta(
                sessionID=self.id,
                messageID=check_id("msg", message_id),
                partID=check_id("prt", part_id),
                field="text",
                delta=check_text(text, "text"),
            ),
            session_id=self.id,
            project_id=self.info.projectID,
            directory=self.info.directory,
            offset=check_offset(offset),
        )

    async def todos(self) -> list[Todo]:
        """The current todo list."""
        return await self._engine.store.read(partial(get_todos, self.id))

    async def set_todos(self, todos: Sequence[Todo], *, message_id: str | None = None) -> None:
        """Replace the whole todo list; `message_id` names the message that wrote it."""
        checked = check_values(todos, Todo, "todos")
        now = self._engine.clock.now()
        if message_id is not None:
            check_id("msg", message_id)
        await self._engine.store.write(
            partial(put_todos, self.id, checked, now=now, message_id=message_id)
        )

    async def todo_history(self) -> list[TodoVersion]:
        """Every version of the todo list, oldest first."""
        return await self._engine.store.scan(partial(todo_history, self.id))

    def turn(
        self,
        prompt: str | Sequence[Part | dict[str, Any]],
        *,
        agent: str = "build",
        model: MessageModel | None = None,
        message_id: str | None = None,
        takes_up: bool = False,
    ) -> "Turn":
        """A turn, to be entered with `async with`: a prompt and the agent's answer.

        The prompt is text, or a list of parts or of plain objects of the same shape; missing ids
        are filled in. With `takes_up` the turn also answers the prompts that earlier turns left.
        """
        from kedge.engine.prompts import Prompt
        from kedge.engine.turns import Turn

        asked = Prompt(
            self._engine, self.id, prompt, agent=agent, model=model, message_id=message_id
        )
        return Turn(self._engine, self, asked, takes_up=takes_up)

    async def queue(
        self,
        prompt: str | Sequence[Part | dict[str, Any]],
        *,
        agent: str = "build",
        model: MessageModel | None = None,
        message_id: str | None = None,
    ) -> bool:
        """Leave a prompt for the turn that runs in this session, in any process; that turn gets it
        with `turn.next_prompt`. Return False, and store nothing, if none runs."""
        from kedge.engine.prompts import Prompt

        asked = Prompt(
            self._engine, self.id, prompt, agent=agent, model=model, message_id=message_id
        )
        return await asked.queue()

    def _handles(self, infos: Sequence[SessionInfo]) -> list["Session"]:
        return [Session(self._engine, info) for info in infos]

    def _check_mine(self, session_id: str) -> None:
        if session_id != self.id:
            raise InvalidInput(f"this belongs to session {session_id}, not {self.id}")


def is_large(part: Part) -> bool:
    """Whether storing the part would block the event loop for too long."""
    match part:
        case TextPart(text=text) | ReasoningPart(text=text) | FilePart(url=text):
            return len(text) > LARGE_VALUE
        case ToolPart(state=state):
            texts = [*state.input.values(), *(getattr(state, "metadata", None) or {}).values()]
            texts.append(getattr(state, "output", getattr(state, "error", "")))
            return sum(len(text) for text in texts if isinstance(text, str)) > LARGE_VALUE
        case _:
            return False


def _setting(**fields: Any) -> Callable[[SessionInfo], SessionInfo]:  # noqa: ANN401 - any field
    return lambda info: msgspec.structs.replace(info, **fields)


def _with_rules(info: SessionInfo, rules: list[PermissionRule]) -> SessionInfo:
    return msgspec.structs.replace(info, permission=[*(info.permission or []), *rules])


def _archive_time(archive: bool | int | float, now: int) -> int | float | None:
    if archive is True:
        return now
    return None if archive is False else check_time(archive, "archived")
