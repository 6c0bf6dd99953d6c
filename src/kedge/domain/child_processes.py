"""What the programs that kedge starts may have: limits, and none of kedge's secrets; and how the
process of a command is known again.

A repository decides how much they read, and must not decide how much of the machine they take. The
agent's commands have no such limits: Node, Java and Go reserve far more memory than they use.
"""

import resource
from contextlib import suppress
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """How much a program may take."""

    memory: int
    """Bytes of its own; files that it maps do not count, since the system can drop them again."""
    cpu: int
    """Seconds of all its threads together: what ends a program whose kedge was killed."""

    def apply(self, pid: int) -> None:
        """Limit a program that was just started.

        Not before it runs: code between fork and exec can deadlock in a process with threads. In
        the moment that passes, a program can take a few megabytes at most, and keeps those.
        """
        if not hasattr(resource, "prlimit"):
            # Only Linux can limit another process; elsewhere the time that kedge waits has to do.
            return
        for kind, value in (
            (resource.RLIMIT_DATA, self.memory),
            (resource.RLIMIT_CPU, self.cpu),
            # A program that runs out of memory aborts, and would leave all of it in a file.
            (resource.RLIMIT_CORE, 0),
        ):
            # It is gone already, or a sandbox forbids it; to search at all matters more.
            with suppress(ProcessLookupError, PermissionError):
                _, most = resource.prlimit(pid, kind)
                limit = value if most == resource.RLIM_INFINITY else min(most, value)
                resource.prlimit(pid, kind, (limit, limit))


SERVER_PASSWORDS = ("KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD")
"""What clients must say; the first that is set counts."""
DATABASE_URL = "KEDGE_DATABASE_URL"
"""May have a password in it."""
OWN_SECRETS = (*SERVER_PASSWORDS, DATABASE_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The first process of a command."""

    session_id: str
    part_id: str
    """The call that started it."""
    machine: str
    boot: str
    """The boot, and the space of process ids, that the numbers belong to."""
    pid: int
    pgid: int
    started: int
    """When it started, as its system counts."""
