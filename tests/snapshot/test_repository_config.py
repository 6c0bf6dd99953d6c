"""What is taken from git's configuration, compared with git, and that none of it is carried out."""

import os
import time
from pathlib import Path

import pytest

from kedge.snapshot.repository import config as config_module
from kedge.snapshot.repository import git_cli
from kedge.snapshot.repository.config import GitConfig, read_config
from kedge.snapshot.repository.discover import find_repository
from tests.engine.repositories import git, repository


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose own git configuration counts; the machine's is a file beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.delenv("GIT_CONFIG_NOSYSTEM")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "machine" / "gitconfig"))
    return folder


def read(root: Path) -> GitConfig:
    """The configuration as it counts in a folder."""
    return read_config(find_repository(root))


def settled(root: Path) -> GitConfig:
    """The same, read when no file of it is new any more."""
    for path, _ in (found := read(root)).origins:
        while os.path.exists(path) and time.time_ns() - os.stat(path).st_ctime_ns < 25_000_000:
            pass
    found = read(root)
    assert found.is_current()
    return found


def test_without_any_configuration_the_defaults_count(home: Path, tmp_path: Path) -> None:
    """The usual files stand in the user's configuration folder, and git converts nothing."""
    repository(tmp_path / "r")
    for found in (read(tmp_path / "r"), read(home)):
        assert found.excludes_file == os.fsencode(home / ".config" / "git" / "ignore")
        assert found.attributes_file == os.fsencode(home / ".config" / "git" / "attributes")
        assert found.system_attributes_file == b"/etc/gitattributes"
        assert not found.converts
        assert not found.ignore_case
        assert (found.object_format, found.hash_length) == ("sha1", 20)


def test_the_configuration_folder_can_be_elsewhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`XDG_CONFIG_HOME` counts unless it is empty; without a home there is no file at all."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert read(home).excludes_file == os.fsencode(tmp_path / "xdg" / "git" / "ignore")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    assert read(home).excludes_file == os.fsencode(home / ".config" / "git" / "ignore")
    monkeypatch.delenv("HOME")
    assert read(tmp_path).excludes_file is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("~/mine", "{home}/mine"),
        ("~root/theirs", os.path.expanduser("~root/theirs")),
        ("/abs/olute", "/abs/olute"),
        ("rel/ative", "{root}/rel/ative"),
        ("%(prefix)/x", None),
        ("", None),
    ],
)
def test_paths_mean_what_git_takes_them_for(
    home: Path, tmp_path: Path, written: str, meant: str | None
) -> None:
    """A home, somebody's home, git's own folder and the worktree's root are filled in."""
    repository(tmp_path / "r")
    git(tmp_path / "r", "config", "--global", "core.excludesFile", "first")
    git(tmp_path / "r", "config", "core.excludesFile", written)
    git(tmp_path / "r", "config", "core.attributesFile", written)
    if written.startswith("%"):
        meant = git(tmp_path / "r", "config", "--type=path", "core.excludesFile")
    expected = meant and os.fsencode(meant.format(home=home, root=tmp_path / "r"))
    found = read(tmp_path / "r")
    assert (found.excludes_file, found.attributes_file) == (expected or None, expected or None)


def test_a_relative_path_means_nothing_outside_of_a_repository(home: Path, tmp_path: Path) -> None:
    """Without a worktree there is nothing that the path could be relative to."""
    git(tmp_path, "config", "--global", "core.excludesFile", "relative")
    assert read(tmp_path).excludes_file is None
    git(tmp_path, "config", "--global", "core.excludesFile", "/absolute")
    assert read(tmp_path).excludes_file == b"/absolute"


@pytest.mark.parametrize(
    ("key", "value", "converts"),
    [
        ("core.autocrlf", "true", False),
        ("core.autocrlf", "input", False),
        ("core.eol", "crlf", False),
        ("core.safecrlf", "true", False),
        ("attr.tree", "HEAD", True),
    ],
)
def test_any_setting_that_may_change_bytes_counts(
    home: Path, tmp_path: Path, key: str, value: str, converts: bool
) -> None:
    """Attributes that are not to be seen count; line ends do not, which always change the size."""
    repository(tmp_path / "r")
    git(tmp_path / "r", "config", key, value)
    assert read(tmp_path / "r").converts is converts


def test_a_key_without_a_value_is_true(home: Path, tmp_path: Path) -> None:
    """As git takes it."""
    repository(tmp_path / "r")
    with (tmp_path / "r" / ".git" / "config").open("a") as file:
        file.write("[core]\n\tignorecase\n")
    assert read(tmp_path / "r").ignore_case


def test_the_last_and_nearest_setting_wins(home: Path, tmp_path: Path) -> None:
    """Machine, person, repository, worktree: each overrules the one before it."""
    repository(tmp_path / "r")
    (tmp_path / "machine").mkdir()
    git(tmp_path / "r", "config", "--system", "core.ignoreCase", "true")
    found = read(tmp_path / "r")
    assert found.ignore_case
    assert found.system_attributes_file == os.fsencode(tmp_path / "machine" / "gitattributes")
    git(tmp_path / "r", "config", "--global", "core.ignoreCase", "false")
    assert not read(tmp_path / "r").ignore_case
    git(tmp_path / "r", "config", "core.ignoreCase", "true")
    assert read(tmp_path / "r").ignore_case
    git(tmp_path / "r", "config", "extensions.worktreeConfig", "true")
    git(tmp_path / "r", "worktree", "add", "-q", str(tmp_path / "linked"))
    git(tmp_path / "linked", "config", "--worktree", "core.ignoreCase", "false")
    assert not read(tmp_path / "linked").ignore_case
    assert read(tmp_path / "r").ignore_case


def test_the_caller_s_shell_does_not_count(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and folders that an enclosing git command set for itself are not the user's."""
    repository(tmp_path / "r")
    repository(tmp_path / "other")
    git(tmp_path / "other", "config", "core.ignoreCase", "true")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "attr.tree")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "HEAD")
    for root in (tmp_path / "r", home):
        found = read(root)
        assert (found.converts, found.ignore_case) == (False, False)


def test_the_object_format_is_told(home: Path, tmp_path: Path) -> None:
    """A SHA-256 repository says so."""
    git(tmp_path, "init", "-q", "--object-format=sha256", "r")
    found = read(tmp_path / "r")
    assert (found.object_format, found.hash_length) == ("sha256", 32)


@pytest.mark.parametrize(
    "name",
    [
        "home/.gitconfig",
        "home/.config/git/config",
        "machine/gitconfig",
        "r/.git/config",
        "r/.git/config.worktree",
        "home/included",
        "home/conditional",
    ],
)
def test_a_file_that_changes_or_appears_is_noticed(home: Path, tmp_path: Path, name: str) -> None:
    """Whatever file could say something else by now makes the configuration out of date."""
    repository(tmp_path / "r")
    git(tmp_path / "r", "config", "include.path", "~/included")
    git(tmp_path / "r", "config", "includeIf.gitdir:/nowhere/.path", str(home / "conditional"))
    before = settled(tmp_path / "r")
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write("[core]\n\tignorecase = true\n")
    assert not before.is_current()
    after = settled(tmp_path / "r")
    file.write_text(file.read_text().replace("true", "0000"))
    assert not after.is_current()


def test_an_edit_behind_a_link_is_noticed(home: Path, tmp_path: Path) -> None:
    """A configuration that is a link into a folder of dot files counts by what it leads to."""
    (tmp_path / "dotfiles").write_text("[core]\n\tignorecase = true\n")
    (home / ".gitconfig").symlink_to(tmp_path / "dotfiles")
    before = settled(home)
    assert before.ignore_case
    (tmp_path / "dotfiles").write_text("[core]\n\tignorecase = 0000\n")
    assert not before.is_current()


def test_a_condition_on_the_branch_is_noticed(home: Path, tmp_path: Path) -> None:
    """What is included on one branch only is looked at again when HEAD moves."""
    repository(tmp_path / "r")
    (home / "folding").write_text("[core]\n\tignorecase = true\n")
    git(tmp_path / "r", "config", "includeIf.onbranch:windows.path", str(home / "folding"))
    before = settled(tmp_path / "r")
    assert not before.ignore_case
    git(tmp_path / "r", "checkout", "-q", "-b", "windows")
    assert not before.is_current()
    assert read(tmp_path / "r").ignore_case


def test_a_repository_of_somebody_else_is_read(home: Path, tmp_path: Path) -> None:
    """git's refusal of other people's repositories does not make their settings unknown."""
    if os.geteuid() != 0:
        pytest.skip("needs root to give a folder away")
    repository(tmp_path / "r")
    git(tmp_path / "r", "config", "core.ignoreCase", "true")
    for folder, _, files in os.walk(tmp_path / "r"):
        for name in (".", *files):
            os.chown(os.path.join(folder, name), 65534, 65534)
    assert read(tmp_path / "r").ignore_case


@pytest.mark.parametrize("damage", ["no git", "bad line", "unknown form", "no objects"])
def test_what_git_cannot_read_is_taken_for_converting(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Without an answer nothing of the user's index may be trusted; the usual files still count."""
    repository(tmp_path / "r")
    match damage:
        case "no git":
            monkeypatch.setenv("PATH", str(home))
        case "bad line":
            (tmp_path / "r" / ".git" / "config").write_text("[core\n")
        case "unknown form":
            git(tmp_path / "r", "config", "core.repositoryFormatVersion", "1")
            git(tmp_path / "r", "config", "extensions.tomorrow", "yes")
        case "no objects":
            (tmp_path / "r" / ".git" / "objects").rename(tmp_path / "gone")
    found = settled(tmp_path / "r")
    assert found.converts
    assert found.excludes_file == os.fsencode(home / ".config" / "git" / "ignore")


def canary(folder: Path) -> Path:
    """A program that leaves a trace when it is run."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    program.chmod(0o755)
    return program


def test_nothing_that_is_configured_runs(home: Path, tmp_path: Path) -> None:
    """Aliases, pagers, monitors, hooks, helpers and filters stay words."""
    repository(tmp_path / "r")
    program = canary(tmp_path)
    for key in (
        "alias.config",
        "core.pager",
        "pager.config",
        "core.fsmonitor",
        "core.sshCommand",
        "core.editor",
        "core.askPass",
        "core.gitProxy",
        "credential.helper",
        "filter.x.clean",
        "filter.x.process",
        "diff.external",
        "gpg.program",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
    ):
        command = f"!{program}" if key.startswith(("alias", "credential")) else str(program)
        for place in ("--local", "--global"):
            git(tmp_path / "r", "config", place, key, command)
    git(tmp_path / "r", "config", "core.hooksPath", str(tmp_path))
    git(tmp_path / "r", "config", "core.worktree", str(tmp_path / "nowhere"))
    git(tmp_path / "r", "config", "core.excludesFile", "~/x")
    assert read(tmp_path / "r").excludes_file == os.fsencode(home / "x")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", ["/dev/zero", "{pipe}", "{loop}"])
def test_a_path_to_something_odd_is_only_named(home: Path, tmp_path: Path, value: str) -> None:
    """Excludes and attributes that are a device, a pipe or a loop are not opened here."""
    repository(tmp_path / "r")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    named = value.format(pipe=tmp_path / "pipe", loop=tmp_path / "loop")
    git(tmp_path / "r", "config", "core.excludesFile", named)
    assert read(tmp_path / "r").excludes_file == os.fsencode(named)


@pytest.mark.parametrize("included", ["config", "/dev/zero", "/dev/urandom", "missing", "{pipe}"])
def test_hostile_includes_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, included: str
) -> None:
    """A circle, a device or a pipe that nobody writes to costs no more than the patience."""
    if included not in ("config", "missing"):
        monkeypatch.setattr(config_module, "_GIT_PATIENCE", 0.5)
    repository(tmp_path / "r")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "r" / ".git" / "config").open("a") as file:
        file.write(f"[include]\n\tpath = {included.format(pipe=tmp_path / 'pipe')}\n")
    assert read(tmp_path / "r").converts is (included != "missing")


def test_a_configuration_of_many_megabytes_is_not_listened_to(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer beyond all reason is cut off, and the rest is in doubt."""
    monkeypatch.setattr(git_cli, "_LONGEST_ANSWER", 100_000)
    repository(tmp_path / "r")
    with (tmp_path / "r" / ".git" / "config").open("a") as file:
        file.write("[x]\n" + "y = z\n" * 100_000)
    assert read(tmp_path / "r").converts


def test_a_million_includes_do_not_make_the_check_slow(home: Path, tmp_path: Path) -> None:
    """However many files are named, only so many are looked at each time."""
    repository(tmp_path / "r")
    with (tmp_path / "r" / ".git" / "config").open("a") as file:
        file.write("[include]\n" + "".join(f"path = absent{n}\n" for n in range(20_000)))
    found = read(tmp_path / "r")
    assert not found.converts
    assert len(found.origins) < 300
