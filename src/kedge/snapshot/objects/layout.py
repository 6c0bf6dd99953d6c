"""The folders and settings of the store, which make it a bare repository for plain git, and its
disk usage."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kedge.snapshot.objects.durable import PRIVATE_FOLDER, make_folder, replace_file

# Snapshots hold arbitrary user files, so fsck must not check names and contents.
_NOT_JUDGED = (
    "badFilemode", "emptyName", "fullPathname", "gitattributesBlob", "gitattributesLarge",
    "gitattributesLineLength", "gitattributesMissing", "gitattributesSymlink", "gitignoreSymlink",
    "gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing", "gitmodulesName", "gitmodulesParse",
    "gitmodulesPath", "gitmodulesSymlink", "gitmodulesUpdate", "gitmodulesUrl", "hasDot",
    "hasDotdot", "hasDotgit", "mailmapSymlink", "nullSha1", "zeroPaddedFilemode",
)  # fmt: skip

_CONFIG = "\n".join(
    [
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tlogAllRefUpdates = false",
        "[gc]\n\tauto = 0",
        "[maintenance]\n\tauto = false",
        "[fsck]",
        *(f"\t{message} = ignore" for message in _NOT_JUDGED),
        "",
    ]
)
_FILES = {"config": _CONFIG.encode(), "HEAD": b"ref: refs/heads/none\n"}

_OLD = 24 * 3600.0
"""Seconds after which an unfinished file counts as abandoned."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths inside a store."""

    root: Path

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def packs(self) -> Path:
        return self.objects / "pack"

    @property
    def alternates(self) -> Path:
        return self.objects / "info" / "alternates"

    @property
    def ref_folders(self) -> tuple[Path, ...]:
        return self.root / "refs/kedge/session", self.root / "refs/kedge/taken"

    @property
    def journals(self) -> Path:
        return self.root / "journals"

    @property
    def workshops(self) -> Path:
        """Where git makes packs: among the others they would be visible before they are
        complete."""
        return self.root / "workshops"

    @property
    def borrowing(self) -> Path:
        return self.root / "borrowing"

    @property
    def collect_lock(self) -> Path:
        return self.root / "lock"

    @property
    def alternates_lock(self) -> Path:
        return self.root / "alternates-lock"

    @property
    def packing_lock(self) -> Path:
        return self.root / "packing-lock"

    @property
    def refs_lock(self) -> Path:
        return self.root / "refs-lock"


def prepare(root: Path) -> Layout:
    """Create the store, or missing parts of it; several processes may do so at once."""
    # Git runs in another folder.
    root = root.absolute()
    layout = Layout(root)
    make_folder(root)
    if root.stat().st_mode & 0o777 != PRIVATE_FOLDER:
        root.chmod(PRIVATE_FOLDER)
    for folder in (layout.packs, layout.alternates.parent, layout.journals, *layout.ref_folders):
        make_folder(folder)
    for name, content in _FILES.items():
        if not (root / name).exists():
            replace_file(root / name, content, beside=f"tmp_kedge_{name}_{secrets.token_hex(8)}")
    return layout


def remove_leftovers(layout: Layout) -> None:
    """Remove unfinished files that are so old that no process can still be writing them."""
    before = time.time() - _OLD
    for path in unfinished(layout):
        try:
            if path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue  # another process was faster
    for folder in layout.workshops.glob("*"):
        try:
            is_old = folder.stat().st_mtime < before
        except FileNotFoundError:
            continue  # the process that worked there is done
        if is_old:
            shutil.rmtree(folder, ignore_errors=True)


def unfinished(layout: Layout) -> Iterator[Path]:
    """Files that are being written, or were when their process died."""
    for folder in (layout.root, layout.packs, layout.journals):
        for path in folder.iterdir():
            if path.name.startswith(("tmp_", ".tmp-")) or path.suffix in {".keep", ".lock"}:
                yield path
    for path in layout.packs.glob("*.pack"):
        if not path.with_suffix(".idx").exists():
            yield path
    for folder in layout.ref_folders:
        yield from folder.glob("*.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The size of a store in bytes, and what holds the space."""

    journals: int
    packs: int
    budget: int
    keeps: Mapping[str, int] = field(default_factory=dict)
    """The number of snapshots that each ref holds; computed only if over the budget."""

    @property
    def over_budget(self) -> int:
        return max(0, self.journals + self.packs - self.budget)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What holds the space, largest first."""
        most = sorted(self.keeps.items(), key=lambda item: (-item[1], item[0]))
        return tuple(f"{name} holds {count} snapshots" for name, count in most)


def size_of(folder: Path) -> int:
    """The disk space that the files of a folder take."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # a journal was sealed, or a pack replaced
    return total
