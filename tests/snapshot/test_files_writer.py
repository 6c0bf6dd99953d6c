"""Steps carried out: what each finds on disk decides, and each path is done or untouched."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge._failpoints import armed
from kedge.domain.errors import InvariantBroken, ObjectMissing, SnapshotError
from kedge.domain.file_states import Outcome, Present, Reason, State, Uncovered
from kedge.snapshot.files import atomic
from kedge.snapshot.files import steps as steps_module
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.steps import aside_name, is_own_name, kept_name, temporary_name
from kedge.snapshot.files.writer import Writer
from tests.engine.unprivileged_process import give_up_privileges
from tests.snapshot.files_world import ABSENT, TAG, World, file_system, step

KINDS = ["swapping", "linking", "plain"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty worktree."""
    return World(tmp_path)


def _kinds(world: World) -> dict[str, State]:
    return {
        "absent": ABSENT,
        "file": world.present(b"one\r\n\0"),
        "other": world.present(b"other"),
        "empty": world.present(b""),
        "script": world.present(b"one\r\n\0", 0o100755),
        "private": world.present(b"one\r\n\0", 0o100600),
        "setuid": world.present(b"one\r\n\0", 0o104755),
        "link": world.link(b"one\r\n"),
        "text": world.present(b"one\r\n"),
    }


STATES = sorted({"absent", "file", "other", "empty", "script", "private", "setuid", "link", "text"})


@pytest.mark.parametrize("kind", KINDS)
def test_disk_want_and_expect_decide_about_every_path(kind: str, tmp_path: Path) -> None:
    """As wanted: unchanged. As expected: written exactly. Otherwise: a conflict, untouched."""
    for disk in STATES:
        for expect in STATES:
            world = World(tmp_path / f"{disk}-{expect}")
            states = _kinds(world)
            plan = [
                step(number, b"d/\xff%d" % number, states[expect], states[want])
                for number, want in enumerate(STATES)
            ]
            for one in plan:
                world.lay(one.path, states[disk])
            with file_system(kind):
                results = world.put(*plan)
            for one, want, result in zip(plan, STATES, results, strict=True):
                assert result.outcome is _expected(disk, expect, want)
                left = disk if result.outcome is Outcome.CONFLICT else want
                assert world.state(one.path) == states[left]
                assert (result.reason != "") == (result.outcome is Outcome.CONFLICT)
            assert world.own_names() == []


def _expected(disk: str, expect: str, want: str) -> Outcome:
    if disk == want:
        return Outcome.UNCHANGED
    if disk != expect:
        return Outcome.CONFLICT
    if want == "absent":
        return Outcome.DELETED
    return Outcome.RECREATED if disk == "absent" else Outcome.RESTORED


TREES = st.dictionaries(
    st.sampled_from([b"a", b"a/b", b"a/b/c", b"b", b"b/\xff", b"c/d", b"c/d/e"]),
    st.sampled_from([s for s in STATES if s != "absent"]),
).filter(lambda tree: not any(a != b and b.startswith(a + b"/") for a in tree for b in tree))


@given(TREES, TREES)
def test_any_tree_becomes_any_other(
    tmp_path_factory: pytest.TempPathFactory, before: dict[bytes, str], after: dict[bytes, str]
) -> None:
    """Files become folders and folders files, if deletions and emptied folders go first."""
    world = World(tmp_path_factory.mktemp("tree"))
    states = _kinds(world)
    for path, state in before.items():
        world.lay(path, states[state])
    both = enumerate(sorted(before.keys() | after.keys()))
    plan = [step(n, p, states[before.get(p, "absent")], states[after.get(p, "absent")])
            for n, p in both]  # fmt: skip
    with file_system("swapping"), world.writer() as writer:
        results = writer.put([one for one in plan if one.want == ABSENT])
        for folder in (b"c/d", b"c", b"b", b"a/b", b"a"):
            writer.remove_if_empty(folder)
        results += writer.put([one for one in plan if one.want != ABSENT])
    bad = {Outcome.CONFLICT, Outcome.SKIPPED}
    assert [result for result in results if result.outcome in bad] == []
    assert {path: world.state(path) for path in after} == {p: states[s] for p, s in after.items()}
    assert len(world.contents()) == len(after)


def test_missing_folders_are_made_and_named(world: World) -> None:
    """From the top, and only those that did not exist."""
    (world.path / "a").mkdir()
    with world.writer() as writer:
        new = world.present(b"new")
        results = writer.put([step(0, b"a/b/c/f", ABSENT, new), step(1, b"a/b/g", ABSENT, new)])
        assert [result.outcome for result in results] == [Outcome.RECREATED] * 2
        assert writer.created == [b"a/b", b"a/b/c"]


def test_folders_made_for_a_file_that_could_not_be_written_go_again(world: World) -> None:
    """Nothing is half done, also if the store lacks the content."""

    def missing(blob: str) -> bytes:
        raise ObjectMissing(blob)

    with Root(os.fsencode(world.path)) as root, Writer(root, missing, tag=TAG) as writer:
        (result,) = writer.put([step(0, b"a/b/f", ABSENT, world.present(b"new"))])
        assert result.outcome is Outcome.SKIPPED
        assert "lacks the object" in result.reason
        assert writer.created == []
    assert os.listdir(world.path) == []


def test_a_folder_is_removed_only_if_empty(world: World) -> None:
    """Not with anything in it, not through a symlink, not a symlink, and never `.git`."""
    (world.path / "full" / "empty").mkdir(parents=True)
    (world.path / "link").symlink_to("full")
    (world.path / ".git").mkdir()
    with world.writer() as writer:
        for folder in (b"full", b"link", b"link/empty", b"none", b"none/below", b".git", b".."):
            assert not writer.remove_if_empty(folder)
        assert writer.remove_if_empty(b"full/empty")
        assert writer.remove_if_empty(b"full")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("expect", ["absent", "file"])
def test_what_no_snapshot_holds_is_left_alone(
    make: Callable[[Path], None], expect: str, world: World
) -> None:
    """A folder or a pipe where the file should be is a conflict with a reason.

    Where a folder stands, a file that is to be deleted is gone already.
    """
    make(world.at(b"f"))
    before = world.at(b"f").lstat()
    for want in ("other", "absent"):
        result = world.put_one(b"f", _kinds(world)[expect], _kinds(world)[want])
        if want == "absent" and make is Path.mkdir:
            assert result.outcome is Outcome.UNCHANGED
        else:
            assert result.outcome is Outcome.CONFLICT
            assert result.reason.startswith("there is a")
    assert world.at(b"f").lstat().st_ino == before.st_ino


def test_a_symlink_in_the_way_is_never_written_through(world: World) -> None:
    """Where a folder became a symlink, the file is gone: no deletion, and writing is a conflict."""
    world.at(b"d").symlink_to(world.outside)
    canary, new = world.present(b"canary"), world.present(b"new")
    assert world.put_one(b"d/canary", canary, new).outcome is Outcome.CONFLICT
    assert world.put_one(b"d/x", ABSENT, new).outcome is Outcome.CONFLICT
    assert world.put_one(b"d/sub/x", ABSENT, new).outcome is Outcome.CONFLICT
    assert world.put_one(b"d/canary", canary, ABSENT).outcome is Outcome.UNCHANGED
    world.assert_outside_untouched()


def test_a_file_in_the_way_of_a_folder_is_a_conflict(world: World) -> None:
    """It is not replaced by the folder."""
    world.lay(b"a", world.present(b"file"))
    assert world.put_one(b"a/b", ABSENT, world.present(b"new")).outcome is Outcome.CONFLICT
    assert world.at(b"a").read_bytes() == b"file"


@pytest.mark.parametrize("path", [b".git/config", b"sub/.git/HEAD", b"../outside/x", b"/etc/x"])
def test_paths_that_are_not_ours_are_skipped(path: bytes, world: World) -> None:
    """With the reason, whether they should be written or deleted."""
    for expect, want in ((ABSENT, world.present(b"x")), (world.present(b"x"), ABSENT)):
        result = world.put_one(path, expect, want)
        assert result.outcome is Outcome.SKIPPED
        assert result.reason
    assert os.listdir(world.path) == []


def test_an_uncovered_state_is_a_bug_of_the_caller(world: World) -> None:
    """Nothing of the plan is carried out then."""
    uncovered = Uncovered(Reason.IGNORED)
    fine = step(0, b"f", ABSENT, world.present(b"x"))
    with pytest.raises(InvariantBroken):
        world.put(fine, step(1, b"g", ABSENT, uncovered))
    with pytest.raises(InvariantBroken):
        world.put(fine, step(1, b"g", uncovered, ABSENT))
    assert os.listdir(world.path) == []


def test_other_names_of_a_replaced_file_keep_its_content(world: World) -> None:
    """A hard link is another file from then on."""
    old = world.present(b"old")
    world.lay(b"f", old)
    os.link(world.at(b"f"), world.at(b"g"))
    assert world.put_one(b"f", old, world.present(b"new")).outcome is Outcome.RESTORED
    assert world.at(b"g").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_owner_and_group_stay(world: World) -> None:
    """Also with the set-user-id bit, which a change of owner clears."""
    old = world.present(b"old")
    world.lay(b"f", old)
    os.chown(world.at(b"f"), 1234, 4321)
    assert world.put_one(b"f", old, world.present(b"new", 0o104755)).outcome is Outcome.RESTORED
    found = world.at(b"f").lstat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 4321, 0o4755)


@pytest.mark.parametrize("name", [temporary_name(TAG, 0), aside_name(TAG, 0)])
@pytest.mark.parametrize("want", ["other", "absent"])
def test_left_overs_in_the_way_are_not_overwritten(name: bytes, want: str, world: World) -> None:
    """They may be the only copy of something; the clean-up decides about them."""
    states = _kinds(world)
    world.lay(b"f", states["file"])
    world.at(name).write_bytes(b"only copy")
    result = world.put_one(b"f", states["file"], states[want])
    if want == "absent" and name == temporary_name(TAG, 0):
        assert result.outcome is Outcome.DELETED
    else:
        assert (result.outcome, result.reason) == (
            Outcome.SKIPPED,
            "a temporary file of an interrupted run is in the way",
        )
        assert world.state(b"f") == states["file"]
    assert world.at(name).read_bytes() == b"only copy"


FAILING = ["write", "fchmod", "fsync", "open", "symlink", "rename", "mkdir"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("call", FAILING)
def test_what_the_system_refuses_is_skipped_and_leaves_nothing(
    call: str, code: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in plain words, the path as it was, and nothing lies about."""
    states = _kinds(world)
    plan = [
        step(0, b"f", states["file"], states["other"]),
        step(1, b"l", states["file"], states["link"]),
        step(2, b"new/f", ABSENT, states["file"]),
        step(3, b"gone", states["file"], ABSENT),
    ]
    for one in plan:
        if one.expect != ABSENT:
            world.lay(one.path, one.expect)
    with file_system("linking"), monkeypatch.context() as patch:
        _fail(patch, call, code)
        results = world.put(*plan)
    refused = [r for r in results if r.outcome is Outcome.SKIPPED]
    assert refused
    assert {result.reason for result in refused} == {steps_module._WORDS[code]}
    for one, result in zip(plan, results, strict=True):
        if result.outcome is Outcome.SKIPPED and one.expect != ABSENT:
            assert world.state(one.path) == one.expect
    assert world.own_names() == []
    assert world.at(b"new").exists() == (results[2].outcome is Outcome.RECREATED)


LOST = "it could not be put back, and is kept as"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param({"link": 1}, "there is no space left", id="the new one has no room"),
        pytest.param({"link": 9}, "there is no space left", id="nor has the old one as a link"),
        pytest.param({"link": 9, "rename": 9}, LOST, id="nor in any other way"),
    ],
)
def test_a_file_that_is_away_for_a_moment_comes_back(
    calls: dict[str, int], expected: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where names cannot be swapped, what was taken aside goes back if the new file cannot take its
    place; if not even that works, the reason says where it is, and cleaning up tries again."""
    old, new = world.present(b"old"), world.present(b"new")
    world.lay(b"f", old)
    plan = step(0, b"f", old, new)
    with file_system("linking"), monkeypatch.context() as patch:
        # The first two renames take the temporary file aside and back, the third one the old file.
        for call, times in calls.items():
            _fail_some(patch, call, times, after=3 if call == "rename" else 0)
        (result,) = world.put(plan)
        assert result.outcome is Outcome.SKIPPED
        assert expected in result.reason
        if expected == LOST:
            assert result.reason.endswith(os.fsdecode(aside_name(TAG, 0)))
            assert world.own_names() == [aside_name(TAG, 0)]
            (trouble,) = world.clean_up(plan)
            assert trouble.reason == result.reason
    if expected == LOST:
        assert world.clean_up(plan) == []
    assert world.state(b"f") == old
    assert world.own_names() == []


def _fail_some(patch: pytest.MonkeyPatch, call: str, times: int, after: int) -> None:
    """Make a system call fail so many times, after some that succeed."""
    real = getattr(os, call)
    tries = iter([*[True] * after, *[False] * times])

    def failing(*arguments: object, **options: object) -> object:
        if next(tries, True):
            return real(*arguments, **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(os, call, failing)


def _fail(patch: pytest.MonkeyPatch, call: str, code: int) -> None:
    """Make a system call fail where it would write."""
    real = getattr(os, call)

    def failing(*arguments: object, **options: object) -> object:
        reading = call == "open" and not int(str(arguments[1])) & os.O_CREAT
        folder = call == "fsync" and stat.S_ISDIR(os.fstat(int(str(arguments[0]))).st_mode)
        if reading or folder:
            return real(*arguments, **options)
        raise OSError(code, os.strerror(code))

    patch.setattr(os, call, failing)


def test_an_error_that_says_nothing_about_the_path_is_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lack of memory ends the run; the files prepared by then are removed."""
    _fail(monkeypatch, "fchmod", errno.ENOMEM)
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        world.put_one(b"d/f", ABSENT, world.present(b"x"))
    assert os.listdir(world.path) == []


def test_a_file_system_without_permission_bits_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be restored exactly is not restored."""
    monkeypatch.setattr(os, "fchmod", lambda fd, mode: None)
    result = world.put_one(b"f", ABSENT, world.present(b"x", 0o100755))
    assert (result.outcome, result.reason) == (
        Outcome.SKIPPED,
        "the permission bits 755 cannot be set here",
    )
    assert os.listdir(world.path) == []


_UNPRIVILEGED = """
import os, sys
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.steps import FileStep
from kedge.snapshot.files.writer import Writer
from kedge.domain.file_states import Absent, Present
root = Root(os.fsencode(sys.argv[1])); old, new = sys.argv[2:]
os.setresuid(9, 9, 9)
def step(n, path, expect, want): return FileStep(number=n, path=path, expect=expect, want=want)
with Writer(root, lambda blob: b"new", tag="t") as writer:
    for result in writer.put([
        step(0, b"locked/f", Present(old, 0o100644), Present(new, 0o100644)),
        step(1, b"locked/f", Present(old, 0o100644), Absent()),
        step(2, b"locked/new", Absent(), Present(new, 0o100644)),
        step(3, b"locked/sub/new", Absent(), Present(new, 0o100644)),
        step(4, b"locked/secret", Present(old, 0o100644), Absent()),
        step(5, b"theirs/f", Present(old, 0o100644), Present(new, 0o104755)),
        step(6, b"theirs/f", Present(old, 0o100644), Present(new, 0o100644)),
    ]): print(result.outcome, result.reason)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_without_permission_everything_is_skipped_with_its_reason(world: World) -> None:
    """In a folder that only others may change; and no set-user-id file changes its owner."""
    old, new = world.present(b"old"), world.present(b"new")
    for path in (b"locked/f", b"locked/secret", b"theirs/f"):
        world.lay(path, old)
    world.at(b"locked/secret").chmod(0o600)
    world.at(b"theirs").chmod(0o777)
    run: list[str | Path] = [sys.executable, "-c", _UNPRIVILEGED, world.path, old.blob, new.blob]
    lines = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert lines == [
        *["skipped permission denied"] * 4,
        "skipped it cannot be read",
        "skipped its owner and group cannot be kept",
        "restored ",
    ]
    assert sorted(os.listdir(world.at(b"locked"))) == ["f", "secret"]
    assert world.at(b"locked/f").read_bytes() == b"old"
    assert os.listdir(world.at(b"theirs")) == ["f"]


def test_every_file_and_every_folder_touched_is_synced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files first; then folders, once each, with those above new ones."""
    inodes: list[int] = []
    real = os.fsync

    def record(fd: int) -> None:
        inodes.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", record)
    new, old = world.present(b"new"), world.present(b"old")
    world.lay(b"gone/f", old)
    world.put(
        step(0, b"gone/f", old, ABSENT), *(step(n, b"d/e/%d" % n, ABSENT, new) for n in range(1, 4))
    )
    files = {world.at(b"d/e/%d" % number).stat().st_ino for number in range(1, 4)}
    folders = [world.at(path).stat().st_ino for path in (b"", b"d", b"d/e", b"gone")]
    assert set(inodes[:3]) == files
    assert sorted(inodes[3:]) == sorted(folders)


def test_a_folder_that_cannot_be_synced_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not known to be on the disk for good is not reported as done."""

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Root(os.fsencode(world.path)) as root:
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(SnapshotError, match="cannot be synced"):
            atomic.sync_folders(root, {b""})


@pytest.mark.parametrize(
    ("point", "bits", "outcomes"),
    [
        ("after-temporary", 0o500, [Outcome.SKIPPED, Outcome.SKIPPED]),
        ("after-sync", 0, [Outcome.DELETED, Outcome.SKIPPED]),
        ("after-set-aside", 0o500, [Outcome.DELETED, Outcome.SKIPPED]),
        ("after-compare", 0o500, [Outcome.DELETED, Outcome.RESTORED]),
        ("before-folder-sync", 0, [Outcome.DELETED, Outcome.RESTORED]),
    ],
)
def test_a_folder_that_is_closed_to_kedge_meanwhile(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    bits: int,
    outcomes: list[Outcome],
) -> None:
    """What was done is told as done, and files elsewhere are not kept waiting for it."""
    synced: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append("everything"))
    old, new = world.present(b"old"), world.present(b"new")
    for path in (b"shut/gone", b"shut/changed", b"open/changed"):
        world.lay(path, old)
    plan = [step(0, b"shut/gone", old, ABSENT)]
    plan += [
        step(n, path, old, new) for n, path in enumerate([b"shut/changed", b"open/changed"], 1)
    ]
    if point == "after-temporary":
        plan = [step(3, b"shut/new", ABSENT, new), *plan[1:]]
    shut = world.path / "shut"
    with (
        armed(point, lambda: shut.chmod(bits)),
        ThreadPoolExecutor(1, initializer=give_up_privileges) as others,
    ):
        results = others.submit(world.put, *plan).result()
    shut.chmod(0o700)
    assert synced == ([] if bits else ["everything"])
    assert [each.outcome for each in results] == [*outcomes, Outcome.RESTORED]
    for each, result in zip(plan, results, strict=True):
        is_skipped = result.outcome is Outcome.SKIPPED
        assert world.state(each.path) == (each.expect if is_skipped else each.want)


def test_what_cannot_be_synced_is_told_for_itself(tmp_path: Path) -> None:
    """Also if the kernel cannot even begin to write it; the others are synced."""
    reading, writing = os.pipe()
    with (tmp_path / "file").open("wb") as file:
        failures = atomic.sync_files([writing, None, file.fileno()])
    os.close(reading)
    os.close(writing)
    assert {fd: error.errno for fd, error in failures.items()} == {writing: errno.EINVAL}


@given(st.binary(min_size=1, max_size=255), st.integers(0, 10**6))
def test_own_names_are_known_and_kept_ones_are_seen(name: bytes, number: int) -> None:
    """Temporary names never reach a snapshot; a kept file is like any other."""
    assert is_own_name(temporary_name("plan-1", number))
    assert is_own_name(aside_name("plan-1", number))
    kept = kept_name(name, "plan-1", number)
    assert len(kept) <= 255
    assert not is_own_name(kept)


@pytest.mark.parametrize("tag", ["", "a/b", "a b", "\0", "x" * 65])
def test_a_tag_is_fit_for_a_file_name(tag: str) -> None:
    """Anything else is a bug of the caller."""
    with pytest.raises(InvariantBroken):
        temporary_name(tag, 1)


def test_five_hundred_files_in_one_run_need_few_descriptors(world: World) -> None:
    """Far fewer than the usual limit of open files, wherever the files are."""
    resource = pytest.importorskip("resource")
    new: Present = world.present(b"new")
    plan = [step(n, b"d%d/f" % n, ABSENT, new) for n in range(500)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 80, hard))
    try:
        with file_system("swapping"):
            results = world.put(*plan)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {result.outcome for result in results} == {Outcome.RECREATED}
