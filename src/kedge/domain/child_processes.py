"""What the programs that kedge starts may have: limits, and none of kedge's secrets; and how the
process of a command is known again.

A repository decides how much data they read, and must not decide how much of the machine they use.
The agent's commands have no such limits: Node, Java and Go reserve far more memory than they use.
"""

import resource
from contextlib import suppress
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """How much memory and time a program may use."""

    memory: int
    """Bytes of its own memory; files that it maps do not count, since the system can drop them
    again."""
    cpu: int
    """CPU seconds of all its threads together: this ends a program whose kedge was killed."""

    def apply(self, pid: int) -> None:
        """Limit a program that was just started.

        Not before it runs: code between fork and exec can deadlock in a process with threads. Until
        then, a program can allocate a few megabytes at most, and keeps those.
        """
        if not hasattr(resource, "prlimit"):
            # Only Linux can limit another process; elsewhere kedge's own timeout must do.
            return
        for kind, value in (
            (resource.RLIMIT_DATA, self.memory),
            (resource.RLIMIT_CPU, self.cpu),
            # A program that runs out of memory aborts, and would write all of it to a core file.
            (resource.RLIMIT_CORE, 0),
        ):
            # The program is gone already, or a sandbox forbids limits; running it matters more.
            with suppress(ProcessLookupError, PermissionError):
                _, most = resource.prlimit(pid, kind)
                limit = value if most == resource.RLIM_INFINITY else min(most, value)
                resource.prlimit(pid, kind, (limit, limit))


SERVER_PASSWORDS = ("KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD")
"""Variables with the password for clients; the first that is set counts."""
DATABASE_URL = "KEDGE_DATABASE_URL"
"""The URL may contain a password."""
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
