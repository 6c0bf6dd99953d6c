"""Which objects hang on which: a walk over commits and trees."""

import math
from collections.abc import Iterable

from kedge.snapshot.objects.formats import COMMIT, FOLDER_MODE, TREE, parse_commit, parse_tree
from kedge.snapshot.objects.keeps import ReadObject, released_by

_REPOSITORY_MODE = 0o160000
"""A commit of another repository, which nobody expects here."""


def reach(
    read: ReadObject, roots: Iterable[bytes], seen: set[bytes], *, since: float = math.inf
) -> set[bytes]:
    """Add all that the roots need to `seen`, and give what was not in it; blobs are not read.

    What was released `since` then counts as needed. A commit or tree that cannot be read is an
    error: what hangs on it would be taken for garbage.
    """
    found = {id for id in roots if id not in seen}
    todo = list(found)
    seen |= found
    while todo:
        kind, content = read(todo.pop())
        for id, is_blob in needs(kind, content, since):
            if id not in seen:
                seen.add(id)
                found.add(id)
                if not is_blob:
                    todo.append(id)
    return found


def needs(kind: bytes, content: bytes, since: float = math.inf) -> Iterable[tuple[bytes, bool]]:
    """What hangs on an object directly, each with whether it is a blob."""
    if kind == TREE:
        return [
            (id, mode != FOLDER_MODE)
            for _, mode, id in parse_tree(content)
            if mode != _REPOSITORY_MODE
        ]
    if kind == COMMIT:
        commit = parse_commit(content)
        released = released_by(commit) if commit.seconds > since else []
        return [(id, False) for id in (commit.tree, *commit.parents, *released)]
    return []
