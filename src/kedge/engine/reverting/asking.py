"""What may be asked of a revert, checked before anything is done."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from kedge.domain.errors import InvalidInput
from kedge.engine.diffs.paths import find_path
from kedge.engine.inputs import check_flag, check_list
from kedge.engine.undo.planning import Strategy
from kedge.store.verbs.plans import is_among

E = TypeVar("E", bound=StrEnum)


class Scope(StrEnum):
    """What goes back."""

    ALL = "all"
    MESSAGES = "messages"
    """Files are left as they are."""
    FILES = "files"
    """Messages stay to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a revert is to be done."""

    strategy: Strategy = Strategy.MERGE
    scope: Scope = Scope.ALL
    dry_run: bool = False
    files: tuple[bytes, ...] | None = None
    """Only these, and what is below them; paths from the root of the worktree."""

    def includes(self, path: bytes) -> bool:
        """Whether a path was asked for."""
        return self.files is None or is_among(path, self.files)


def asked(
    *,
    strategy: object,
    scope: object,
    dry_run: object,
    files: object,
    directory: str,
    root: str,
) -> Asked:
    """What a caller asked for; paths are given from the session's directory."""
    chosen: Iterable[object] | None = None if files is None else check_list(files, "files")
    paths = (
        None
        if chosen is None
        else tuple(find_path(each, directory=directory, root=root) for each in chosen)
    )
    return Asked(
        strategy=_choice(strategy, Strategy, "strategy"),
        scope=_choice(scope, Scope, "scope"),
        dry_run=bool(check_flag(dry_run, "dry_run")),
        files=paths,
    )


def _choice(given: object, kind: type[E], name: str) -> E:
    try:
        return kind(given if isinstance(given, str) else "")
    except ValueError:
        words = ", ".join(each.value for each in kind)
        raise InvalidInput(f"{name} must be one of {words}", field=name) from None
