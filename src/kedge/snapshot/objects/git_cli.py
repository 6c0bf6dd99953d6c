"""Git's own pack commands, run on the store only."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from kedge.domain.child_processes import MIB, ChildLimits
from kedge.domain.errors import SnapshotError
from kedge.snapshot.objects.durable import make_folder, only_one
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import publish, read_ids

_LOW_PRIORITY = 10
# Generous: it runs in the background.
_PATIENCE = 1800.0
_LIMITS = ChildLimits(memory=4096 * MIB, cpu=3600)


class PackingFailed(SnapshotError):
    """Git could not pack these objects."""


def find_git() -> str | None:
    """The path of git, if installed; never one in the current folder."""
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    return shutil.which("git", path=os.pathsep.join(folders))


def repack(git: str, layout: Layout, ids: Collection[bytes]) -> Path:
    """A new pack of objects of the store, as small as git can make it."""
    workshop = layout.workshops / secrets.token_hex(8)
    base = workshop / "new"

    def run(arguments: list[str], given: bytes) -> bytes:
        command = [git, "--git-dir", str(layout.root), *arguments]
        return run_git(command, given, patience=_PATIENCE, started=_lower_priority)

    with only_one(layout.packing_lock):
        try:
            make_folder(workshop)
            name = pack_objects(run, base, ids, "--window-memory=64m")
            pack = base.with_name(f"{base.name}-{name}.pack")
            index = index_pack(run, pack, ids)
            return publish(pack, index, layout.packs, name)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
            # When git fails, it leaves files with unknown names; under the lock they can only be
            # ours.
            for pattern in ("tmp_pack_*", "tmp_idx_*", "tmp_rev_*"):
                for left in layout.packs.glob(pattern):
                    left.unlink(missing_ok=True)


RunGit = Callable[[list[str], bytes], bytes]


def pack_objects(run: RunGit, base: Path, ids: Collection[bytes], option: str) -> str:
    """Write a pack of these objects to a name that begins with `base`; returns the rest of it."""
    plain = ["pack-objects", "--quiet", "--threads=1", "--delta-base-offset", option]
    return run([*plain, str(base)], as_lines(ids)).decode().strip()


def index_pack(run: RunGit, pack: Path, ids: Collection[bytes]) -> Path:
    """Hash every object of a pack, and check that it has exactly these; returns its index."""
    index = pack.with_suffix(".idx")
    # The first index says what git was asked for, this one what the pack contains.
    index.unlink()
    run(["index-pack", "--threads=1", "-o", str(index), str(pack)], b"")
    if read_ids(index) != b"".join(sorted(set(ids))):
        raise PackingFailed("git packed other objects than it was asked to")
    return index


def as_lines(ids: Collection[bytes]) -> bytes:
    """Ids in git's input format."""
    return b"".join([b"%b\n" % id.hex().encode() for id in ids])


def run_git(
    command: list[str],
    given: bytes,
    *,
    patience: float,
    started: Callable[[subprocess.Popen[bytes]], None],
    variables: Mapping[str, str] | None = None,
) -> bytes:
    """Git's output; `started` is called with the process before it is waited for."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment() | dict(variables or {}),
        cwd="/",
    ) as process:
        _LIMITS.apply(process.pid)
        started(process)
        try:
            out, complaint = process.communicate(given, timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise PackingFailed(f"git {command[3]} took too long") from None
    if process.returncode:
        raise PackingFailed(f"git {command[3]}: {complaint.decode(errors='replace').strip()}")
    return out


def _lower_priority(process: subprocess.Popen[bytes]) -> None:
    present = os.getpriority(os.PRIO_PROCESS, process.pid)
    try:
        os.setpriority(os.PRIO_PROCESS, process.pid, max(present, _LOW_PRIORITY))
    except PermissionError:
        # Some sandboxes forbid it; packing matters more than its priority.
        return


def environment() -> dict[str, str]:
    """An environment without any settings for git."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
