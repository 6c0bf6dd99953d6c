"""Git's own packing, run on the store; it never sees a worktree or anybody's settings."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from kedge.domain.errors import SnapshotError
from kedge.snapshot.objects.durable import only_one
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packfile import publish, read_index

_LOW_PRIORITY = 10
# Nobody waits for it; but what a hostile repository lends may keep git waiting for ever.
_PATIENCE = 1800.0


class PackingFailed(SnapshotError):
    """Git could not pack these objects."""


def find_git() -> str | None:
    """The git program, if there is one; never one that stands in the current folder."""
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    return shutil.which("git", path=os.pathsep.join(folders))


def repack(git: str, layout: Layout, ids: Collection[bytes]) -> Path:
    """A new pack of objects of the store, as small as git can make it."""
    return _pack(git, layout, ids, "--window-memory=64m")


def copy(git: str, layout: Layout, ids: Collection[bytes]) -> Path:
    """A new pack of objects that the store has or borrows, in as little time as possible."""
    return _pack(git, layout, ids, "--window=0")


def _pack(git: str, layout: Layout, ids: Collection[bytes], option: str) -> Path:
    base = layout.packs / f"tmp_kedge_{secrets.token_hex(8)}"
    plain = [git, "--git-dir", str(layout.root)]
    command = [*plain, "pack-objects", "--quiet", "--threads=1", "--delta-base-offset", option]
    command.append(str(base))
    with only_one(layout.packing_lock):
        try:
            name = _run(command, b"".join([b"%b\n" % id.hex().encode() for id in ids]))
            pack = base.with_name(f"{base.name}-{name}.pack")
            index = pack.with_suffix(".idx")
            # The first index says what git was asked for; this one what it found.
            index.unlink()
            _run([*plain, "index-pack", "--threads=1", "-o", str(index), str(pack)], b"")
            if {id for id, _ in read_index(index)} != set(ids):
                raise PackingFailed("git packed other objects than it was asked to")
            return publish(pack, index, name)
        finally:
            # When git fails it leaves files whose names we do not know; the lock makes them ours.
            for pattern in (f"{base.name}*", "tmp_pack_*", "tmp_idx_*", "tmp_rev_*"):
                for left in layout.packs.glob(pattern):
                    left.unlink(missing_ok=True)


def _run(command: list[str], stdin: bytes) -> str:
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd="/",
    ) as process:
        _lower_priority(process.pid)
        try:
            out, complaint = process.communicate(stdin, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise PackingFailed(f"git {command[3]} took too long") from None
    if process.returncode:
        raise PackingFailed(f"git {command[3]}: {complaint.decode(errors='replace').strip()}")
    return out.decode().strip()


def _lower_priority(pid: int) -> None:
    present = os.getpriority(os.PRIO_PROCESS, pid)
    try:
        os.setpriority(os.PRIO_PROCESS, pid, max(present, _LOW_PRIORITY))
    except PermissionError:
        # Some sandboxes forbid it altogether. To be packed politely matters less than to be packed.
        return


def environment() -> dict[str, str]:
    """Nothing that is set for git elsewhere counts here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
