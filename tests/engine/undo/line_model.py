"""What files should hold after an undo or redo: plain lists of lines, and edits that name the lines
they are about. Knows nothing of kedge."""

import random
from dataclasses import dataclass

PERSON = "person"


@dataclass(frozen=True)
class Edit:
    """One change of one line: `new` comes after `old`, takes its place, or nothing does."""

    by: str
    file: str
    kind: str
    """insert, replace or delete."""
    old: str | None
    """None for the place before the first line."""
    new: str

    def on(self, lines: list[str]) -> list[str] | None:
        """The lines with the edit; None where the line that it is about is missing."""
        if self.old is None:
            return [self.new, *lines]
        if self.old not in lines:
            return None
        at = lines.index(self.old)
        kept = [self.old] if self.kind == "insert" else []
        added = [] if self.kind == "delete" else [self.new]
        return [*lines[:at], *kept, *added, *lines[at + 1 :]]


class Model:
    """The files of a worktree as all edits in effect leave them."""

    def __init__(self, files: dict[str, list[str]]) -> None:
        self.first = files
        self.edits: list[Edit] = []
        self.out: set[int] = set()
        """The edits that are undone, by their numbers."""
        self.now = {name: list(lines) for name, lines in files.items()}

    def make(self, edit: Edit) -> int:
        """Do an edit that is possible now; gives its number."""
        found = edit.on(self.now[edit.file])
        assert found is not None
        self.now[edit.file] = found
        self.edits.append(edit)
        return len(self.edits) - 1

    def without(self, out: set[int], file: str) -> list[str] | None:
        """A file as all edits but some leave it when they are done again in their order; None where
        one of them cannot be done, unless another one took away again what it would have added."""
        lines = self.first[file]
        missing: set[str | None] = set()
        for n, edit in enumerate(self.edits):
            if edit.file != file or n in out:
                continue
            found = edit.on(lines)
            if found is not None:
                lines = found
                continue
            if edit.kind == "delete" and edit.old not in missing:
                return None
            if edit.kind != "insert":
                missing.discard(edit.old)
            if edit.kind != "delete":
                missing.add(edit.new)
        return None if missing else lines

    def any_edit(self, choice: random.Random, by: str) -> Edit:
        """An edit that somebody may make now; every line that it adds is unlike any other."""
        file = choice.choice(sorted(self.now))
        lines = self.now[file]
        kind = choice.choice(["insert", "replace", "replace", "delete"] if lines else ["insert"])
        place = choice.choice([*lines, None] if kind == "insert" else lines)
        return Edit(by, file, kind, place, f"{by} {len(self.edits)}")
