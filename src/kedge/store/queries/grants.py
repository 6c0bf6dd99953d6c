"""What users granted: permissions allowed with `always`, and trusted configuration files.

A rule holds while the engine that took the reply is open or, if it is lasting, until it is revoked.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.permissions import AllowedPermission, PermissionRequest, PermissionRule
from kedge.store.queries.sessions import get_session
from kedge.store.transaction import Script, row, rows, run

_LATE = 86_400_000
"""Milliseconds after which an engine that has not renewed its rules counts as gone: until then it
may only have been paused."""

IsOpen: TypeAlias = Callable[[str, bool], bool]
"""Whether an engine is still open, by its description and whether it has failed to renew its rules
in time."""


@dataclass(frozen=True, slots=True)
class RuleHolder:
    """What ends a rule."""

    owner: str
    """The engine; empty if the rule is lasting."""
    ttl: int
    """Milliseconds after which the engine counts as gone unless it renews."""


LASTING = RuleHolder("", 0)


def allowed_in(project_id: str, is_open: IsOpen) -> Script[list[AllowedPermission]]:
    """What is allowed in a project now, by permission and pattern; each once, whichever engines
    hold it."""
    found = yield from rows("permission_rule_list", project_id=project_id)
    now = yield from _clock()
    allowed: dict[tuple[str, str], AllowedPermission] = {}
    for permission, pattern, owner, created, expires in found:
        if owner and not is_open(owner, expires <= now):
            continue
        known = allowed.get((permission, pattern))
        allowed[permission, pattern] = AllowedPermission(
            id=_id(project_id, permission, pattern),
            permission=permission,
            pattern=pattern,
            lasting=not owner or (known is not None and known.lasting),
            time=created if known is None else min(created, known.time),
        )
    return list(allowed.values())


def allow(
    project_id: str, request: PermissionRequest, holder: RuleHolder, *, is_open: IsOpen, now: int
) -> Script[None]:
    """Store the rules that a request offers; rules that are over are dropped."""
    time = yield from _clock()
    found = yield from rows("permission_rule_list", project_id=project_id)
    for permission, pattern, owner, _, expires in found:
        if owner and not is_open(owner, expires + _LATE <= time):
            yield from _drop(project_id, permission, pattern, owner)
    for pattern in request.always:
        yield from run(
            "permission_rule_add",
            project_id=project_id,
            permission=request.permission,
            pattern=pattern,
            owner=holder.owner,
            now=now,
            time_expires=time + holder.ttl,
        )


def forget_allowed(project_id: str, id: str | None = None) -> Script[int]:
    """Revoke what was allowed in a project, or one rule of it; return how many rules were
    revoked."""
    yield from row("project_lock")
    gone = set()
    for permission, pattern, owner, *_ in (
        yield from rows("permission_rule_list", project_id=project_id)
    ):
        if id in (None, _id(project_id, permission, pattern)):
            yield from _drop(project_id, permission, pattern, owner)
            gone.add((permission, pattern))
    return len(gone)


def end_rules(owner: str) -> Script[None]:
    """Drop the rules that hold while an engine is open: it closes."""
    yield from run("permission_rule_end", owner=owner)


def renew_rules(owner: str, time_expires: int) -> Script[None]:
    """Extend the rules that hold while an engine is open."""
    yield from run("permission_rule_renew", owner=owner, time_expires=time_expires)


def rules_for(
    session_id: str, is_open: IsOpen
) -> Script[tuple[list[PermissionRule], list[PermissionRule]]]:
    """The rules of a session itself, and what is allowed in its project."""
    info = yield from get_session(session_id)
    allowed = yield from allowed_in(info.projectID, is_open)
    return info.permission or [], [each.rule for each in allowed]


def _drop(project_id: str, permission: str, pattern: str, owner: str) -> Script[None]:
    yield from run(
        "permission_rule_drop",
        project_id=project_id,
        permission=permission,
        pattern=pattern,
        owner=owner,
    )


def _clock() -> Script[int]:
    found = yield from row("clock")
    assert found is not None
    return int(found[0])


def _id(project_id: str, permission: str, pattern: str) -> str:
    # Derived, so that no id has to be stored and allowing a rule again gives the same id.
    text = "\0".join((project_id, permission, pattern))
    return f"rule_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class TrustedFile:
    """A file that is trusted while its content has this digest."""

    path: str
    digest: str
    time: int


def trust_file(path: str, digest: str, *, now: int) -> Script[None]:
    """Trust a file with this content; its other trusted contents stay trusted."""
    yield from run("trust_add", path=path, digest=digest, now=now)


def is_trusted(path: str, digest: str) -> Script[bool]:
    """Whether a file is trusted with this content."""
    return (yield from row("trust_get", path=path, digest=digest)) is not None


def distrust_file(path: str) -> Script[bool]:
    """Untrust a file with any content; return whether it was trusted."""
    return (yield from run("trust_drop", path=path)) > 0


def trusted_files() -> Script[list[TrustedFile]]:
    """Every trusted file with each of its trusted contents, by path, the newest last."""
    found = [TrustedFile(*each) for each in (yield from rows("trust_list"))]
    return sorted(found, key=lambda file: (file.path, file.time, file.digest))
