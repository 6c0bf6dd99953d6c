"""What the doctor can find: each kind with its code, why it matters and what to do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Data is lost or cannot be used."""
    WARNING = "warning"
    """Something works no longer, or may fail soon, until a person acts."""
    NOTICE = "notice"
    """Worth knowing; kedge works, or puts it in order by itself."""


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One kind of finding; the code never changes its meaning."""

    severity: Severity
    why: str
    """Why it matters."""
    do: str
    """What to do."""
    repair: str = ""
    """What `repair` does about it; empty if it can do nothing."""


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTICE
_RESTORE = "restore a backup into an empty folder with `kedge backup restore`"
_INTERRUPT = "ends it as interrupted, and lets the session go"

KINDS: dict[str, FindingKind] = {
    # The database
    "database-unusable": FindingKind(
        _E, "no session can be read", "do what the message says, or " + _RESTORE
    ),
    "database-damaged": FindingKind(
        _E, "what SQLite reads there may be wrong or missing", "stop kedge, and " + _RESTORE
    ),
    "database-newer": FindingKind(
        _E, "this kedge must not write to it", "install the newer kedge again"
    ),
    "database-older": FindingKind(
        _N,
        "this kedge migrates it when it next opens it, after making a copy",
        "nothing; older versions of kedge cannot open it afterwards",
    ),
    "log-large": FindingKind(
        _W,
        "a reader that never ends keeps SQLite's log from being written back; it fills the disk",
        "find the process that holds it (`fuser kedge.db`) and end it",
    ),
    "row-damaged": FindingKind(_E, "the session cannot be read as a whole", _RESTORE),
    "replay-differs": FindingKind(
        _E,
        "clients that followed the events show something else than clients that read",
        "repair it, and let clients read again",
        "announces the state of the tables by new events",
    ),
    "rows-lost": FindingKind(
        _E, "messages or parts of the session are gone, but their events are there", _RESTORE
    ),
    "project-differs": FindingKind(
        _E,
        "clients that followed the events show another project than clients that read",
        "report it, with the saved rows",
    ),
    "project-missing": FindingKind(
        _E, "the session cannot be listed under its project", "run kedge in its folder once"
    ),
    "lists-differ": FindingKind(
        _W,
        "the session is missing from a list, or at a wrong place in it",
        "repair it",
        "lists the session anew",
    ),
    "rows-orphaned": FindingKind(
        _W,
        "they belong to a session that does not exist, and take space",
        "repair it",
        "saves the rows, then removes them",
    ),
    "search-ahead": FindingKind(
        _W,
        "what is stored next is not found by a search",
        "repair it",
        "has the index filled again from the beginning of the log",
    ),
    "search-behind": FindingKind(
        _N, "the next search waits for it", "nothing; a running kedge fills it within seconds"
    ),
    "purge-overdue": FindingKind(
        _N,
        "deleted sessions still take space after their retention time",
        "nothing; a running kedge purges them within an hour",
    ),
    # What is stuck
    "run-cut-off": FindingKind(
        _N,
        "the process that ran the session is gone",
        "nothing; the next kedge that starts ends the run, or repair it",
        "ends the run, as the next kedge would",
    ),
    "revert-unfinished": FindingKind(
        _N,
        "the process that reverted is gone; the session is busy until the revert is completed",
        "nothing; the next kedge that starts completes it, or repair it",
        "completes it, as the next kedge would: this writes files of the worktree",
    ),
    "prompt-waits": FindingKind(
        _N,
        "no run has begun with the prompt",
        "nothing; the next server that starts answers it, or says why not",
    ),
    "message-open": FindingKind(
        _W, "no process writes it, but clients show it as growing", "repair it", _INTERRUPT
    ),
    "tool-running": FindingKind(
        _W, "no process runs it, but clients show it as running", "repair it", _INTERRUPT
    ),
    "ask-open": FindingKind(
        _W, "its run is gone, so that no answer has an effect", "repair it", "withdraws it"
    ),
    "call-open": FindingKind(
        _W,
        "changes of others are doubted as long as it seems to run",
        "repair it",
        "records that what it changed is not known",
    ),
    "process-left": FindingKind(
        _W,
        "a command of the agent may still run and change files",
        "repair it",
        "ends the processes",
    ),
    "request-open": FindingKind(
        _W, "its run is gone, so that nothing handles it", "repair it", "closes it"
    ),
    "text-left": FindingKind(
        _W,
        "text that grew was never joined with its part",
        "repair it",
        "joins it where the message is open, and removes it otherwise",
    ),
    "rule-left": FindingKind(
        _N,
        "it was to hold for as long as a server ran that is gone; it has no effect",
        "nothing, or repair it",
        "removes it",
    ),
    # Snapshots
    "store-incomplete": FindingKind(
        _E,
        "git cannot read the snapshots of the project",
        "repair it",
        "makes the missing folders and files again; objects are not touched",
    ),
    "pack-damaged": FindingKind(
        _E, "contents in it cannot be read", "keep it, check the disk, and " + _RESTORE
    ),
    "pack-without-index": FindingKind(
        _W,
        "its objects cannot be read; most likely it was being written when a process died",
        "look into it with `git index-pack` before kedge removes it when it is a day old",
    ),
    "index-without-pack": FindingKind(_E, "the contents it lists are gone", _RESTORE),
    "journal-damaged": FindingKind(
        _E,
        "snapshots after the damage cannot be read; kedge leaves the file as it is",
        "keep it, check the disk, and " + _RESTORE,
    ),
    "ref-damaged": FindingKind(
        _E, "nothing holds the snapshots of that session any more", _RESTORE
    ),
    "objects-missing": FindingKind(
        _E, "files of these snapshots cannot be put back, and collections fail", _RESTORE
    ),
    "reference-lost": FindingKind(
        _E, "a revert of the session cannot put these files back", _RESTORE
    ),
    "reference-not-kept": FindingKind(
        _W,
        "the next collection may remove what the session needs for a revert",
        "repair it",
        "holds the contents for the session",
    ),
    "restore-damaged": FindingKind(
        _W,
        "temporary files of an interrupted restore are still in the worktree",
        "look at them: one may be the only copy of something; then remove the note",
    ),
    "files-left": FindingKind(
        _N,
        "unfinished files of dead processes take space",
        "nothing; kedge removes them when they are a day old and the project is used",
    ),
    "store-borrows": FindingKind(
        _N,
        "kedge 0.1 left contents in repositories of users that snapshots need",
        "open the project's worktree with kedge once; the first snapshot copies them",
    ),
    # The machine
    "watches-few": FindingKind(
        _W,
        "new worktrees are scanned for each snapshot instead of watched",
        "raise fs.inotify.max_user_watches with sysctl",
    ),
    "instances-few": FindingKind(
        _W,
        "new worktrees are scanned for each snapshot instead of watched",
        "raise fs.inotify.max_user_instances with sysctl, or close programs that watch files",
    ),
    "descriptors-few": FindingKind(
        _W, "a server with many clients and worktrees fails", "raise it with `ulimit -n`"
    ),
    "disk-low": FindingKind(
        _W, "nothing can be stored when the disk is full", "make room, or run `kedge gc`"
    ),
    "folder-open": FindingKind(
        _W,
        "other users of the machine can read your sessions and files",
        "repair it, or chmod it yourself",
        "removes the permissions of others",
    ),
    "folder-foreign": FindingKind(
        _E, "kedge cannot protect or even write files of another user", "chown it to yourself"
    ),
    "folder-unwritable": FindingKind(
        _E, "nothing can be stored", "make it writable for yourself"
    ),
    "filesystem-network": FindingKind(
        _E, "SQLite loses data on it", "move the data folder to a local disk, or use PostgreSQL"
    ),
    "git-missing": FindingKind(
        _N,
        "first snapshots take longer, and packs are never rewritten",
        "install git",
    ),
    "configuration": FindingKind(
        _N, "a setting has no effect", "see `kedge config`"
    ),
}  # fmt: skip
"""Every kind by its code."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    code: str
    what: str
    about: str = ""
    """The session, project or file it is about; repairs are made for each."""

    @property
    def kind(self) -> FindingKind:
        return KINDS[self.code]

    @property
    def severity(self) -> Severity:
        return self.kind.severity


Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much; it may be called from any thread."""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that tells no one."""


@dataclass(slots=True)
class Report:
    """What the doctor found."""

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """Versions, sizes, and limits."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be examined, and why."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many findings of each code there are; of many, only the first are listed."""

    def add(self, code: str, what: str, about: str = "") -> None:
        """Add a finding."""
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= MOST:
            self.findings.append(Finding(code, what, about))

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found that a person has to do something about."""
        return all(each.severity is Severity.NOTICE for each in self.findings)


MOST = 200
"""Findings of one code that are listed."""
