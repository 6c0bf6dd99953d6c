"""Snapshots as keep-commits: what is written down with one, and how one is found again."""

import re
from collections.abc import Mapping
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kedge.domain.errors import SnapshotNotFound
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.keeps import Keep
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.values import Head, Snapshot

_ID = re.compile("[0-9a-f]{40}")
# What never stands still is listed for people to read; nobody reads more than this.
_MOST_UNSTABLE = 100


def keep(store: ObjectStore, snapshot: Snapshot, session: str | None) -> None:
    """Hold a snapshot for a session, or for a while; durable when this returns."""
    plain, executable = snapshot.base
    store.keep(
        session,
        files=bytes.fromhex(snapshot.id),
        notes=bytes.fromhex(snapshot.notes),
        base=store.put(BLOB, b"%o %o" % (plain, executable)),
        fields=_fields(snapshot),
    )
    store.flush()


def find(store: ObjectStore, id: str) -> Snapshot:
    """The newest snapshot with this tree."""
    found = store.find(bytes.fromhex(id)) if _ID.fullmatch(id) else None
    if found is None:
        raise SnapshotNotFound(id)
    return as_snapshot(store, found)


def as_snapshot(store: ObjectStore, kept: Keep) -> Snapshot:
    """What a keep-commit holds."""
    plain, executable = store.read(kept.held.base)[1].split()
    return Snapshot(
        id=kept.held.files.hex(),
        notes=kept.held.notes.hex(),
        base=(int(plain, 8), int(executable, 8)),
        head=_head(kept.held.fields),
        unstable=tuple(map(unquote_to_bytes, kept.held.fields.get("unstable", "").split())),
    )


def _fields(snapshot: Snapshot) -> dict[str, str]:
    fields = {}
    if snapshot.head is not None:
        fields["head-ref"] = snapshot.head.ref or ""
        fields["head-commit"] = snapshot.head.commit or ""
    if snapshot.unstable:
        fields["unstable"] = " ".join(map(quote_from_bytes, snapshot.unstable[:_MOST_UNSTABLE]))
    return fields


def _head(fields: Mapping[str, str]) -> Head | None:
    if "head-ref" not in fields:
        return None
    return Head(ref=fields["head-ref"] or None, commit=fields.get("head-commit") or None)
