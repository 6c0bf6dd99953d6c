"""Git's own packing, run on the store alone."""

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
# Nobody waits for it.
_PATIENCE = 1800.0
_LIMITS = ChildLimits(memory=4096 * MIB, cpu=3600)


class PackingFailed(SnapshotError):
    """Git could not pack these objects."""


def find_git() -> str | None:
    """The git program, if there is one; never one that stands in the current folder."""
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
            # When git fails it leaves files whose names we do not know; the lock makes them ours.
            for pattern in ("tmp_pack_*", "tmp_idx_*", "tmp_rev_*"):
                for left in layout.packs.glob(pattern):
                    left.unlink(missing_ok=True)


RunGit = Callable[[list[str], bytes], bytes]


def pack_objects(run: RunGit, base: Path, ids: Collection[bytes], option: str) -> str:
    """Have a pack of these objects written, whose name begins with `base`; gives how it ends."""
    plain = ["pack-objects", "--quiet", "--threads=1", "--delta-base-offset", option]
    return run([*plain, str(base)], as_lines(ids)).decode().strip()


def index_pack(run: RunGit, pack: Path, ids: Collection[bytes]) -> Path:
    """Hash every object of a pack, and see that it is these and no others; gives its index."""
    index = pack.with_suffix(".idx")
    # The first index says what git was asked for; this one what it found.
    index.unlink()
    run(["index-pack", "--threads=1", "-o", str(index), str(pack)], b"")
    if read_ids(index) != b"".join(sorted(set(ids))):
        raise PackingFailed("git packed other objects than it was asked to")
    return index


def as_lines(ids: Collection[bytes]) -> bytes:
    """Ids as git reads them."""
    return b"".join([b"%b\n" % id.hex().encode() for id in ids])


def run_git(
    command: list[str],
    given: bytes,
    *,
    patience: float,
    started: Callable[[subprocess.Popen[bytes]], None],
    variables: Mapping[str, str] | None = None,
) -> bytes:
    """What git prints; `started` is told of the process before it is waited for."""
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
        # Some sandboxes forbid it altogether. To be packed politely matters less than to be packed.
        return


def environment() -> dict[str, str]:
    """Nothing that is set for git elsewhere counts here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
