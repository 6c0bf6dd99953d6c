"""A worktree that wants to do harm, and everything that snapshots can do in it, closely watched."""

import hashlib
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kedge.snapshot import Outcome, Protection, Snapshots
from kedge.snapshot.objects.formats import parse_tree
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.conformance.scene import Scene

FOLDER = 0o40000
GIT = shutil.which("git") or "git"
SECRET = b"a secret outside of the worktree\n"
GOOD = {Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED, Outcome.UNCHANGED, Outcome.SKIPPED}
HOOKS = [
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout",
    "post-commit", "post-index-change", "post-merge", "post-rewrite", "pre-applypatch",
    "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "prepare-commit-msg", "push-to-checkout", "reference-transaction", "sendemail-validate",
    "update",
]  # fmt: skip
COMMANDS = [
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy",
    "core.askPass", "core.alternateRefsCommand", "credential.helper", "diff.external",
    "diff.bait.command", "diff.bait.textconv", "filter.bait.clean", "filter.bait.smudge",
    "filter.bait.process", "merge.bait.driver", "gpg.program", "interactive.diffFilter",
    "sequence.editor", "pager.config", "pager.diff", "remote.origin.uploadpack",
    "remote.origin.receivepack", "remote.origin.proxy", "uploadpack.packObjectsHook",
    "trailer.bait.command", "web.browser", "man.bait.cmd", "difftool.bait.cmd",
    "mergetool.bait.cmd",
]  # fmt: skip
ALIASES = ["config", "pack-objects", "add", "status", "rev-parse", "fsck"]


@dataclass(frozen=True, slots=True)
class HostileWorktree:
    """A worktree with files of every kind, and what must not be touched around it."""

    scene: Scene
    outside: Path

    @property
    def root(self) -> Path:
        return self.scene.root

    @property
    def git_folder(self) -> Path:
        return self.root / ".git"

    @property
    def store(self) -> Path:
        return self.scene.folder / "data/snapshots/prj"

    @property
    def ran(self) -> Path:
        """Where a bait that is run leaves its name."""
        return self.scene.folder / "ran"

    def bait(self, name: str) -> str:
        """A command that tells on whoever runs it."""
        return f"{self.outside}/bait {name}"

    def configure(self, **settings: str) -> None:
        """Set settings of the repository; `__` stands for a dot."""
        for key, value in settings.items():
            self.scene.git("config", key.replace("__", "."), value)

    def bait_configuration(self, file: Path) -> None:
        """Fill a configuration file with every setting that names a command."""
        lines = []
        for key in COMMANDS:
            section, _, rest = key.partition(".")
            below, _, name = rest.rpartition(".")
            lines.append(f'[{section} "{below}"]' if below else f"[{section}]")
            lines.append(f'\t{name} = "{self.bait(key)}"')
        lines += [f'[alias]\n\t{alias} = "!{self.bait(alias)}"' for alias in ALIASES]
        lines += ['[filter "bait"]\n\trequired = true', f"[core]\n\thooksPath = {self.outside}"]
        with file.open("a") as out:
            out.write("\n".join(lines) + "\n")

    def bait_hooks(self, folder: Path) -> None:
        """Fill a folder with every hook."""
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            shutil.copy(self.outside / "bait", folder / name)


def take_hostage(scene: Scene) -> HostileWorktree:
    """A committed repository beside a secret; its first snapshot can be seeded."""
    outside = scene.folder / "outside"
    worktree = HostileWorktree(scene, outside)
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_bytes(SECRET)
    (outside / "folder/secret").write_bytes(SECRET)
    os.mkfifo(outside / "pipe")
    bait = outside / "bait"
    bait.write_text(f'#!/bin/sh\necho "$0 $@" >> {worktree.ran}\n')
    bait.chmod(0o755)
    scene.repository()
    scene.write(".gitignore", b"*.log\n")
    for name in ("edited", "gone", "kept", "folder/deep"):
        scene.write(name, b"one\n" + name.encode())
    scene.link("link", "../outside/secret")
    scene.link("linked-folder", "../outside/folder")
    scene.commit()
    # The loose objects stay, for attacks to replace them.
    scene.git("repack", "-q", "-a")
    scene.write("untracked", b"untracked\n", 0o600)
    scene.write("ignored.log", b"ignored\n")
    make_index_newer(scene)
    return worktree


def make_index_newer(scene: Scene) -> None:
    """Write the index again in a later tick of the clock, so that its entries can be trusted."""
    clock, last = scene.folder / "clock", os.stat(scene.at(".git/index")).st_mtime_ns
    clock.touch()
    while clock.stat().st_mtime_ns <= last:
        os.utime(clock)
    scene.git("update-index", "--refresh", "--force-write-index")


# What can be seen

Files = dict[bytes, tuple[int, bytes]]
"""Paths with git's mode and the content, or where the link leads."""
Seen = dict[bytes, tuple[object, ...]]


def seen(folder: Path) -> Seen:
    """All there is to see below a folder without following links, but for times of access."""
    found: Seen = {}
    waiting = [bytes(folder)]
    while waiting:
        path = waiting.pop()
        status = os.lstat(path)
        found[path] = (
            (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), _content(path, status)),
            (status.st_ino, status.st_uid, status.st_gid, status.st_nlink),
            (status.st_mtime_ns, status.st_ctime_ns),
        )
        if stat.S_ISDIR(status.st_mode):
            waiting += [os.path.join(path, name) for name in os.listdir(path)]
    return found


def _content(path: bytes, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return b""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


def contents(everything: Seen) -> dict[bytes, object]:
    """Of what was seen, only what a restore promises: type, permission bits and content."""
    return {path: each[0] for path, each in everything.items()}


# Everything that snapshots can do


def use_everything(worktree: HostileWorktree) -> None:
    """Use all of it, and look after each step that nothing else was touched."""
    before, around = seen(worktree.root), seen(worktree.outside)
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track(session="ses_one")
        assert_as_on_disk(snapshots, one.id, worktree.root)
        snapshots.verify()
        snapshots.capture([b"ignored.log", b"edited", b"link"], session="ses_one")
        assert snapshots.status().protection is Protection.FULL
        assert seen(worktree.root) == before
        _edit_and_undo(worktree, snapshots, one.id)
    with ObjectStore(worktree.store) as store:
        store.collect(keep_taken_for=0)
    with worktree.scene.snapshots() as snapshots:
        assert snapshots.restore(one.id) == []
    _assert_harmless(worktree, before, around)


def _edit_and_undo(worktree: HostileWorktree, snapshots: Snapshots, one: str) -> None:
    _edit(worktree)
    two = snapshots.track(session="ses_one")
    patch = snapshots.patch(one)
    assert {os.path.basename(path) for path in patch.files} >= {"edited", "gone", "file"}
    assert "two" in snapshots.diff(one)
    assert len(snapshots.diff_full(one, two.id)) >= 3
    assert {result.outcome for result in snapshots.revert([patch])} <= GOOD
    _edit(worktree)
    assert {result.outcome for result in snapshots.restore(one)} <= GOOD


def _edit(worktree: HostileWorktree) -> None:
    worktree.scene.write("edited", b"two\n")
    worktree.scene.write("new/file", b"new\n")
    worktree.scene.at("gone").unlink()


def _assert_harmless(worktree: HostileWorktree, before: Seen, around: Seen) -> None:
    after = seen(worktree.root)
    assert contents(after) == contents(before)
    rewritten = {
        bytes(worktree.root),
        *(bytes(worktree.root / name) for name in ("edited", "gone")),
    }
    assert [path for path in before if after[path] != before[path] and path not in rewritten] == []
    assert seen(worktree.outside) == around
    assert not worktree.ran.exists(), worktree.ran.read_text()
    assert SECRET not in stored(worktree.store)


def files_of(snapshots: Snapshots, tree: str, above: bytes = b"") -> Files:
    """All that a snapshot holds, read whole."""
    found: Files = {}
    for name, mode, id in parse_tree(snapshots.read(tree)):
        if mode == FOLDER:
            found |= files_of(snapshots, id.hex(), above + name + b"/")
        else:
            found[above + name] = (mode, snapshots.read(id.hex()))
    return found


def files_on_disk(root: Path) -> Files:
    """All that can be in a snapshot, as it is on disk."""
    found: Files = {}
    for folder, folders, names in os.walk(bytes(root)):
        for path in (os.path.join(folder, name) for name in [*folders, *names] if name != b".git"):
            mode = os.lstat(path).st_mode
            below = os.path.relpath(path, bytes(root))
            if stat.S_ISLNK(mode):
                found[below] = (0o120000, os.readlink(path))
            elif stat.S_ISREG(mode):
                content = Path(os.fsdecode(path)).read_bytes()
                found[below] = (0o100755 if mode & stat.S_IXUSR else 0o100644, content)
        folders[:] = [name for name in folders if name != b".git"]
    return found


def assert_as_on_disk(snapshots: Snapshots, tree: str, root: Path) -> None:
    """A snapshot holds the bytes on disk, and all of them but for what is ignored."""
    held, disk = files_of(snapshots, tree), files_on_disk(root)
    assert {path: disk.get(path) for path in held} == held
    assert {path for path in disk.keys() - held.keys() if not path.endswith(b".log")} == set()


def stored(store: Path) -> bytes:
    """Every object that a store holds by itself, one after the other."""
    command = [GIT, "--git-dir", str(store), "cat-file", "--batch-all-objects", "--batch"]
    variables = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    done = subprocess.run(command, cwd="/", env=variables, capture_output=True, check=True)
    return done.stdout
