"""The machine: limits of the system, space, permissions and versions."""

import os
import platform
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kedge._version import __version__
from kedge.domain.errors import NetworkFilesystem
from kedge.engine.doctor.findings import Report
from kedge.snapshot.objects.git_cli import environment, find_git
from kedge.store.sqlite.file import refuse_network

_PROC = Path("/proc")
_FEW_WATCHES = 4096
_FEW_INSTANCES = 4
_FEW_DESCRIPTORS = 512
_LITTLE_SPACE = 512 * 2**20
_OTHERS = 0o077
_GIB = 2**30
_GIT_PATIENCE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the system allows this user; None where it does not say."""

    watches: int | None
    watches_used: int
    instances: int | None
    instances_used: int
    descriptors: int


def limits() -> Limits:
    """The limits of this process and user."""
    watches, instances = 0, 0
    for info in _inotify_files():
        instances += 1
        watches += info.count("inotify wd:")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        watches=_setting("max_user_watches"),
        watches_used=watches,
        instances=_setting("max_user_instances"),
        instances_used=instances,
        descriptors=soft,
    )


def _setting(name: str) -> int | None:
    try:
        return int((_PROC / "sys/fs/inotify" / name).read_text("ascii"))
    except (OSError, ValueError):
        return None


def _inotify_files() -> Iterator[str]:
    """What the kernel says of each inotify instance of this user's processes."""
    names = [name for name in os.listdir(_PROC) if name.isdecimal()] if _PROC.is_dir() else []
    for name in names:
        folder = _PROC / name
        # A process may end at any moment, and those of others are not shown.
        with suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            for fd in os.listdir(folder / "fd"):
                with suppress(OSError):
                    if os.readlink(folder / "fd" / fd) == "anon_inode:inotify":
                        yield (folder / "fdinfo" / fd).read_text("ascii", "replace")


def examine_machine(data: Path, database: Path | None, found: Limits, report: Report) -> None:
    """Examine the machine, the data folder, and the database if it is a file."""
    _versions(report)
    _limits(found, report)
    if data.is_dir():
        _space(data, report)
        _permissions(data, report)
        for name in ("snapshots", "heartbeats", "tool-output"):
            if (data / name).is_dir():
                _permissions(data / name, report)
    if database is not None:
        _file(database, report)


def _versions(report: Report) -> None:
    report.facts["kedge"] = __version__
    report.facts["python"] = f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    git = find_git()
    if git is None:
        report.add("git-missing", "git is not installed")
        return
    said = subprocess.run(
        [git, "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_GIT_PATIENCE,
    )
    report.facts["git"] = said.stdout.strip().removeprefix("git version ")


def _limits(found: Limits, report: Report) -> None:
    if found.watches is not None:
        report.facts["watches"] = f"{found.watches_used} of {found.watches} used"
        if found.watches - found.watches_used < _FEW_WATCHES:
            report.add("watches-few", f"inotify watches: {report.facts['watches']}")
    if found.instances is not None:
        report.facts["instances"] = f"{found.instances_used} of {found.instances} used"
        if found.instances - found.instances_used < _FEW_INSTANCES:
            report.add("instances-few", f"inotify instances: {report.facts['instances']}")
    if found.descriptors != resource.RLIM_INFINITY:
        report.facts["descriptors"] = f"{found.descriptors} for each process"
        if found.descriptors < _FEW_DESCRIPTORS:
            report.add("descriptors-few", f"a process may open {found.descriptors} files")


def _space(data: Path, report: Report) -> None:
    free = shutil.disk_usage(data).free
    report.facts["disk"] = f"{free / _GIB:.1f} GiB free"
    if free < _LITTLE_SPACE:
        report.add("disk-low", f"{data} has {free // 2**20} MiB left")


def _permissions(path: Path, report: Report) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid():
        report.add("folder-foreign", f"{path} belongs to the user {status.st_uid}", str(path))
    elif not os.access(path, os.W_OK):
        report.add("folder-unwritable", f"{path} cannot be written", str(path))
    if status.st_mode & _OTHERS:
        mode = f"{status.st_mode & 0o777:o}"
        report.add("folder-open", f"{path} has the mode {mode}", str(path))


def _file(database: Path, report: Report) -> None:
    for path in (database, Path(f"{database}-wal"), Path(f"{database}-shm")):
        if path.is_file():
            _permissions(path, report)
    try:
        refuse_network(database.parent)
    except NetworkFilesystem as error:
        report.add("filesystem-network", str(error))
