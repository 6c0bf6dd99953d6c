"""A private PostgreSQL cluster on a unix socket, for tests only; never the user's own server."""

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.support.timeouts import PATIENCE

_PROGRAMS = ("initdb", "pg_ctl", "postgres")
# Debian and Fedora keep the server programs off PATH; Homebrew does so for older versions.
_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
# Tests kill processes, not the machine: what the kernel has taken is safe enough, and much faster.
_OPTIONS = "-c fsync=off -c full_page_writes=off -c max_connections=200 -c listen_addresses=''"

Mode: TypeAlias = Literal["fast", "immediate"]
"""How a server is ended: in order, or as by a crash."""


def find_binaries() -> Path | None:
    """The folder of an installed PostgreSQL's server programs, the newest version first."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in _FOLDERS:
        folders += sorted(map(Path, glob.glob(pattern)), key=_version, reverse=True)
    for folder in folders:
        if all((folder / program).exists() for program in _PROGRAMS):
            return folder
    return None


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(
        int(digits) for digits in "".join(c if c.isdigit() else " " for c in str(folder)).split()
    )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """At most one cluster, whose folder is named in `record` while it exists."""

    binaries: Path
    record: Path

    def url(self) -> str | None:
        """Where the started cluster answers."""
        if not self.record.exists():
            return None
        return f"postgresql://postgres@/postgres?host={self.record.read_text()}"

    def start(self) -> str:
        """Make and start the cluster; answers its URL once it takes connections."""
        # Not inside the run's folder: the user that the server runs as could not get in there.
        folder = Path(tempfile.mkdtemp(prefix="kedge-postgres-"))
        owner = _server_user()
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self.record.write_text(str(folder))
        data = str(folder / "data")
        encoding = ("--encoding=UTF8", f"--locale={_LOCALE}")
        self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", *encoding)
        self.resume()
        return f"postgresql://postgres@/postgres?host={folder}"

    def halt(self, mode: Mode) -> None:
        """End every connection and the server, which can be started again."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", str(self._folder() / "data"))

    def resume(self) -> None:
        """Start the server; returns when it takes connections."""
        folder = self._folder()
        options = f"{_OPTIONS} -k {folder}"
        data, log, patience = str(folder / "data"), str(folder / "log"), str(round(PATIENCE))
        self._run("pg_ctl", "start", "-w", "-t", patience, "-D", data, "-l", log, "-o", options)

    def stop(self) -> None:
        """Stop the cluster and remove every trace of it; does nothing if there is none."""
        if not self.record.exists():
            return
        folder = self._folder()
        if (folder / "data" / "postmaster.pid").exists():
            self.halt("immediate")
        shutil.rmtree(folder)
        self.record.unlink()

    def _folder(self) -> Path:
        return Path(self.record.read_text())

    def _run(self, program: str, *arguments: str) -> None:
        owner = _server_user()
        done = subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self._folder(),
            user=owner and owner.pw_uid,
            group=owner and owner.pw_gid,
            extra_groups=owner and [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            log = self._folder() / "log"
            detail = log.read_text() if log.exists() else ""
            raise RuntimeError(f"{program} failed ({done.returncode}):\n{done.stdout}{detail}")


def _server_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]
