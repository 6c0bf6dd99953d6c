"""What may be asked of a revert, checked before anything is done."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, get_args

from kedge.domain.errors import InvalidInput
from kedge.domain.receipts import RevertScope, RevertStrategy
from kedge.engine.diffs.paths import find_path
from kedge.engine.inputs import check_flag, check_list
from kedge.store.verbs.plans import is_among

W = TypeVar("W", bound=str)

_STRATEGIES: tuple[RevertStrategy, ...] = get_args(RevertStrategy)
_SCOPES: tuple[RevertScope, ...] = get_args(RevertScope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a revert is to be done."""

    strategy: RevertStrategy = "merge"
    scope: RevertScope = "all"
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
        strategy=_choice(strategy, _STRATEGIES, "strategy"),
        scope=_choice(scope, _SCOPES, "scope"),
        dry_run=bool(check_flag(dry_run, "dry_run")),
        files=paths,
    )


def _choice(given: object, words: tuple[W, ...], name: str) -> W:
    for word in words:
        if given == word:
            return word
    raise InvalidInput(f"{name} must be one of {', '.join(words)}", field=name)
