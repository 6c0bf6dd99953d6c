"""What root may do, taken away."""

RUN_UNPRIVILEGED = """\
import ctypes, os, sys
if os.getuid() == 0:
    # CAP_SYS_PTRACE, CAP_SYS_ADMIN and CAP_PERFMON, from the next program on.
    for right in (19, 21, 38):
        assert ctypes.CDLL(None).prctl(24, right, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a program as an ordinary user could: without the rights that let root look anywhere."""
