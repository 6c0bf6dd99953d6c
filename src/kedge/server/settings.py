"""A server's settings: its address, who may use it, and its limits."""

import functools
import ipaddress
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from kedge.domain.child_processes import OWN_SECRETS, SERVER_PASSWORDS
from kedge.domain.errors import CannotListen, InvalidInput, PathRefused
from kedge.engine.worktrees import real_path

DEFAULT_PORT = 4096
DEFAULT_USERNAME = "opencode"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([^\s/\[\]:@]+|\[[0-9a-f:.]+\])(:[0-9]+)?/?", re.I)
_LARGEST_BODY = 32 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server."""

    hostname: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 picks a free port."""
    cors: tuple[str, ...] = ()
    """Origins that may use the server from a browser, in addition to those of OpenCode's
    clients."""
    password: str | None = None
    """Without a password, only this machine can use the server."""
    username: str = DEFAULT_USERNAME
    root: str | None = None
    """If set, clients may only work in this folder and below it."""
    max_body: int = _LARGEST_BODY
    """Largest body of a prompt or part in bytes; other requests may have 1 MiB."""

    log_requests: bool = False
    """Whether to log each request to `kedge.server.requests`."""
    commands_may_grant: bool = True
    """Whether processes that this process started, including commands of the agent, may answer
    permission requests, allow and start things like other clients. `kedge serve` turns this off; a
    program that embeds a server may have clients among its children."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidInput(f"{self.port} is not a port; give one from 0 to 65535", field="port")
        for origin in self.cors:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InvalidInput(
                    f"{origin!r} is not an origin; use one such as https://example.com",
                    field="cors",
                )
        if self.root is not None:
            object.__setattr__(self, "root", os.path.realpath(self.root))
        if not self.is_local and not self.password:
            raise CannotListen(
                f"listening on {self.hostname} lets other machines run commands here: set"
                " KEDGE_SERVER_PASSWORD first, or listen on 127.0.0.1"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.hostname)

    def allows(self, directory: str) -> bool:
        """Whether clients may use a directory."""
        if self.root is None or directory == self.root:
            return True
        return directory.startswith(self.root.rstrip("/") + "/")

    def check_root(self, directory: str) -> None:
        """Refuse a directory that clients may not use."""
        if not self.allows(directory):
            raise PathRefused(f"this server works in {self.root} only")

    def check_past(self, path: str | bytes, directory: str) -> None:
        """Refuse past contents of a path that clients may not use: the worktree of a session can
        extend beyond the root."""
        self.check_root(os.path.normpath(os.path.join(directory, os.fsdecode(path))))

    def check_file(self, path: str | bytes, directory: str) -> None:
        """Refuse a file as it is now that clients may not use, by its path or where that leads."""
        self.check_past(path, directory)
        if self.root is not None and "\0" not in os.fsdecode(path):
            self.check_root(os.path.realpath(os.path.join(directory, os.fsdecode(path))))

    def check_attachment(self, url: str, directory: str) -> None:
        """Refuse to attach a file to a prompt that clients may not use."""
        try:
            # Parsed the same way as by the code that reads the file.
            address = urlsplit(url)
        except ValueError:
            return
        if self.root is not None and address.scheme == "file":
            self.check_root(real_path(os.path.join(directory, unquote(address.path))))


def password_in(environ: Mapping[str, str]) -> str | None:
    """The password from the environment, under kedge's name or OpenCode's."""
    return next((environ[name] for name in SERVER_PASSWORDS if environ.get(name)), None)


def forget_secrets(environ: MutableMapping[str, str]) -> None:
    """Remove passwords from the environment of programs that the server starts: an agent's commands
    are not clients."""
    for name in OWN_SECRETS:
        environ.pop(name, None)


def username_in(environ: Mapping[str, str]) -> str:
    """The user name from the environment, under kedge's name or OpenCode's."""
    said = environ.get("KEDGE_SERVER_USERNAME") or environ.get("OPENCODE_SERVER_USERNAME")
    return said or DEFAULT_USERNAME


@functools.lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback address of this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
