"""Ways to make a worktree hostile: what a cloned repository, a colleague or an odd shell can hold.

Every public function here is a trap. It changes a hostage before its first snapshot; the variables
that it gives are set while snapshots are used.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.snapshot.hostile_worktree import HostileWorktree, make_index_newer

ODD_NAMES = [
    b"--upload-pack=touch ran", b"-rf", b"$(touch ran)", b"`touch ran`", b"; touch ran", b"a\nb",
    b"\xff\xfe", b":(exclude)x", b"a\\b", b'"quoted"', b" ", b"HEAD", b"refs", b"\x1b[31m", b"a\tb",
    b"| touch ran", b"@{-1}", b".gitmodules", b".mailmap", b"git~1", b".git ", b".GIT", b"con",
]  # fmt: skip


def commands_in_the_configuration(hostage: HostileWorktree) -> None:
    """Every setting of git's that is a command, and attributes that call for them."""
    hostage.bait_configuration(hostage.git_folder / "config")
    hostage.bait_hooks(hostage.git_folder / "hooks")
    hostage.bait_hooks(hostage.outside)
    hostage.scene.write(".gitattributes", b"* filter=bait diff=bait merge=bait text\n")


def commands_in_an_included_file(hostage: HostileWorktree) -> None:
    """The same in a file of the worktree that the configuration includes."""
    hostage.bait_configuration(hostage.root / "settings")
    hostage.configure(include__path="../settings")
    hostage.scene.write(".gitattributes", b"* filter=bait diff=bait\n")


def commands_of_the_user(hostage: HostileWorktree) -> Mapping[str, str]:
    """The same in the user's own configuration, with attributes for all repositories."""
    hostage.bait_configuration(hostage.outside / "gitconfig")
    (hostage.outside / "attributes").write_bytes(b"* filter=bait diff=bait\n")
    with (hostage.outside / "gitconfig").open("a") as file:
        file.write(f"[core]\n\tattributesFile = {hostage.outside}/attributes\n")
    return {"GIT_CONFIG_GLOBAL": str(hostage.outside / "gitconfig")}


def filters_in_private_attributes(hostage: HostileWorktree) -> None:
    """Attributes that are in no file of the worktree."""
    hostage.bait_configuration(hostage.git_folder / "config")
    (hostage.git_folder / "info/attributes").write_bytes(b"* filter=bait ident eol=crlf\n")


def variables_of_git(hostage: HostileWorktree) -> Mapping[str, str]:
    """A shell in which every variable that git knows leads astray, or names a command."""
    hostage.bait_configuration(hostage.outside / "gitconfig")
    wrong = str(hostage.outside / "folder")
    places = ["DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR", "TEMPLATE_DIR"]
    places += ["ALTERNATE_OBJECT_DIRECTORIES", "EXEC_PATH", "SHALLOW_FILE", "GRAFT_FILE"]
    commands = ["EXTERNAL_DIFF", "SSH", "SSH_COMMAND", "EDITOR", "PAGER", "ASKPASS"]
    commands += ["PROXY_COMMAND", "SEQUENCE_EDITOR"]
    logs = ["TRACE", "TRACE_SETUP", "TRACE_PACK_ACCESS", "TRACE2", "TRACE2_EVENT", "TRACE2_PERF"]
    return {
        **{f"GIT_{name}": wrong for name in places},
        **{f"GIT_{name}": hostage.bait(name) for name in commands},
        **{f"GIT_{name}": str(hostage.ran) for name in logs},
        **{name: hostage.bait(name) for name in ("PAGER", "EDITOR", "VISUAL", "SSH_ASKPASS")},
        "GIT_CONFIG": str(hostage.outside / "gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": hostage.bait("GIT_CONFIG_VALUE_0"),
        "GIT_CONFIG_PARAMETERS": f"'core.pager'='{hostage.bait('GIT_CONFIG_PARAMETERS')}'",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_NAMESPACE": "../../outside",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_REDIRECT_STDERR": str(hostage.ran),
    }


def a_git_of_its_own(hostage: HostileWorktree) -> Mapping[str, str]:
    """A program called git in the worktree, for a shell that looks in the current folder first."""
    for name in ("git", "git-config", "git-pack-objects", "sh"):
        shutil.copy(hostage.outside / "bait", hostage.root / name)
    return {"PATH": f".:{os.environ['PATH']}"}


def no_git_at_all(hostage: HostileWorktree) -> Mapping[str, str]:
    """A machine on which git is not installed."""
    return {"PATH": str(hostage.outside / "folder")}


def settings_in_a_pipe(hostage: HostileWorktree) -> Mapping[str, str]:
    """A shell that says the user's settings are in a pipe."""
    return {"GIT_CONFIG_GLOBAL": str(hostage.outside / "pipe"), "HOME": "/dev/zero"}


def objects_to_be_fetched(hostage: HostileWorktree) -> None:
    """A partial clone whose missing objects git would get by running a command."""
    _unpack(hostage)
    blob = hostage.scene.git("rev-parse", "HEAD:kept")
    (hostage.git_folder / "objects" / blob[:2] / blob[2:]).unlink()
    hostage.configure(
        core__repositoryFormatVersion="1",
        extensions__partialClone="origin",
        remote__origin__promisor="true",
        remote__origin__url=f"ext::{hostage.bait('fetch')}",
        remote__origin__uploadpack=hostage.bait("uploadpack"),
        protocol__allow="always",
    )


def a_worktree_elsewhere(hostage: HostileWorktree) -> None:
    """A repository that says its files are outside."""
    hostage.configure(core__worktree=str(hostage.outside / "folder"))


def rules_in_a_pipe(hostage: HostileWorktree) -> None:
    """Files with rules, named in the configuration, that never end."""
    hostage.configure(
        core__excludesFile=str(hostage.outside / "pipe"), core__attributesFile="/dev/zero"
    )


def rules_in_a_device(hostage: HostileWorktree) -> None:
    """The other way round."""
    hostage.configure(
        core__excludesFile="/dev/zero", core__attributesFile=str(hostage.outside / "pipe")
    )


def rules_in_a_folder(hostage: HostileWorktree) -> None:
    """Folders where files with rules should be, the private ones too."""
    hostage.configure(core__excludesFile=str(hostage.outside), core__attributesFile="~nobody/x")
    (hostage.git_folder / "info/exclude").unlink()
    (hostage.git_folder / "info/exclude").mkdir()
    (hostage.git_folder / "info/attributes").mkdir()


def private_rules_in_a_pipe(hostage: HostileWorktree) -> None:
    """The repository's own files with rules are pipes."""
    (hostage.git_folder / "info/exclude").unlink()
    os.mkfifo(hostage.git_folder / "info/exclude")
    os.mkfifo(hostage.git_folder / "info/attributes")


def linked_rules(hostage: HostileWorktree) -> None:
    """Files with rules that are links to what is outside."""
    hostage.scene.at(".gitignore").unlink()
    hostage.scene.link(".gitignore", "../outside/secret")
    hostage.scene.link(".gitattributes", "../outside/secret")
    hostage.scene.link("folder/.gitignore", "../../outside/pipe")
    hostage.scene.link("folder/.gitattributes", "/dev/zero")


def rules_that_are_pipes(hostage: HostileWorktree) -> None:
    """Pipes where files with rules should be."""
    hostage.scene.at(".gitignore").unlink()
    for name in (".gitignore", ".gitattributes", "folder/.gitignore", "folder/.gitattributes"):
        os.mkfifo(hostage.scene.at(name))


def rules_that_are_folders(hostage: HostileWorktree) -> None:
    """Folders where files with rules should be."""
    hostage.scene.at(".gitignore").unlink()
    for name in (".gitignore", ".gitattributes", "folder/.gitignore", "folder/.gitattributes"):
        hostage.scene.write(f"{name}/file")


def rules_that_explode(hostage: HostileWorktree) -> None:
    """Patterns on which a naive matcher takes for ever."""
    pattern = b"a*" * 40 + b"b\n" + b"**/" * 60 + b"x\n" + b"[" * 2000 + b"\n"
    hostage.scene.write(".gitignore", pattern)
    hostage.scene.write("a" * 200)


def _git_folder_moved(hostage: HostileWorktree, name: str = "git") -> Path:
    return hostage.git_folder.rename(hostage.outside / name)


def a_linked_git_folder(hostage: HostileWorktree) -> None:
    """A `.git` that is a link to a folder elsewhere."""
    hostage.git_folder.symlink_to(_git_folder_moved(hostage))


def a_git_file(hostage: HostileWorktree) -> None:
    """A `.git` that is a file which names a folder elsewhere."""
    named = _git_folder_moved(hostage, "g i\xfct")
    hostage.git_folder.write_text(f"gitdir: {named}\n")


def a_git_file_that_names_a_pipe(hostage: HostileWorktree) -> None:
    """A `.git` file that leads to something which is no repository."""
    _git_folder_moved(hostage)
    hostage.git_folder.write_text(f"gitdir: {hostage.outside}/pipe\n")


def a_git_file_that_names_a_device(hostage: HostileWorktree) -> None:
    """A `.git` that is a link to a file that never ends."""
    _git_folder_moved(hostage)
    hostage.git_folder.symlink_to("/dev/zero")


def a_git_file_that_names_nothing(hostage: HostileWorktree) -> None:
    """A `.git` file with a NUL, and more than a path can hold."""
    _git_folder_moved(hostage)
    hostage.git_folder.write_bytes(b"gitdir: \0" + b"x" * 100_000)


def a_git_pipe(hostage: HostileWorktree) -> None:
    """A `.git` that is a pipe."""
    _git_folder_moved(hostage)
    os.mkfifo(hostage.git_folder)


def a_git_loop(hostage: HostileWorktree) -> None:
    """A `.git` that is a link to itself."""
    _git_folder_moved(hostage)
    hostage.git_folder.symlink_to(".git")


def a_git_folder_of_pipes(hostage: HostileWorktree) -> None:
    """A git folder in which every file that could be read is a pipe."""
    for name in ("HEAD", "config", "index", "packed-refs", "commondir", "config.worktree"):
        (hostage.git_folder / name).unlink(missing_ok=True)
        os.mkfifo(hostage.git_folder / name)


def an_included_pipe(hostage: HostileWorktree) -> None:
    """A configuration that includes a pipe."""
    hostage.configure(include__path=str(hostage.outside / "pipe"))


def an_included_device(hostage: HostileWorktree) -> None:
    """A configuration that includes what never ends."""
    hostage.configure(include__path="/dev/zero")


def an_included_loop(hostage: HostileWorktree) -> None:
    """A configuration that includes itself."""
    hostage.configure(include__path="config")


def another_common_folder(hostage: HostileWorktree) -> None:
    """A git folder that says its objects and rules are somewhere outside."""
    (hostage.git_folder / "commondir").write_text(f"{hostage.outside}\n")


def alternates_in_a_loop(hostage: HostileWorktree) -> None:
    """Object folders that borrow from each other, from nowhere and from a pipe."""
    other = hostage.outside / "objects"
    (other / "info").mkdir(parents=True)
    objects = hostage.git_folder / "objects"
    (other / "info/alternates").write_text(f"{objects}\n{other}\n")
    (objects / "info/alternates").write_text(
        f"{other}\n../objects\n{objects}\n/nowhere\n{hostage.outside}/pipe\n/dev/zero\n"
    )


def alternates_in_a_pipe(hostage: HostileWorktree) -> None:
    """A list of alternates that never ends."""
    os.mkfifo(hostage.git_folder / "objects/info/alternates")


def _unpack(hostage: HostileWorktree) -> None:
    """Leave the loose objects alone."""
    for path in (hostage.git_folder / "objects/pack").iterdir():
        path.unlink()


def objects_that_are_pipes(hostage: HostileWorktree) -> None:
    """Pipes under the names of loose objects."""
    _unpack(hostage)
    for name in ("kept", "edited"):
        blob = hostage.scene.git("rev-parse", f"HEAD:{name}")
        path = hostage.git_folder / "objects" / blob[:2] / blob[2:]
        path.unlink()
        os.mkfifo(path)


def packs_that_are_pipes(hostage: HostileWorktree) -> None:
    """Pipes where a pack, the index of a pack and the list of packs should be."""
    hostage.scene.git("gc", "-q")
    folder = hostage.git_folder / "objects/pack"
    (pack,) = folder.glob("*.pack")
    pack.unlink()
    os.mkfifo(pack)
    os.mkfifo(folder / f"pack-{'0' * 40}.idx")
    os.mkfifo(folder / f"pack-{'0' * 40}.pack")
    os.mkfifo(folder / "multi-pack-index")


def objects_in_another_folder(hostage: HostileWorktree) -> None:
    """All objects are borrowed from a folder outside."""
    objects = hostage.git_folder / "objects"
    objects.rename(hostage.outside / "objects")
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"{hostage.outside}/objects\n")


def damaged_packs(hostage: HostileWorktree) -> None:
    """Packs, their indexes and the commit graph hold something else."""
    hostage.scene.git("gc", "-q")
    hostage.scene.git("commit-graph", "write", "--reachable")
    hostage.scene.git("multi-pack-index", "write")
    pack = hostage.git_folder / "objects/pack"
    for path in [*pack.iterdir(), hostage.git_folder / "objects/info/commit-graph"]:
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(content[:100] + bytes(reversed(content[100:])))


def damaged_objects(hostage: HostileWorktree) -> None:
    """Loose objects that are empty, or no objects."""
    _unpack(hostage)
    for number, path in enumerate(sorted((hostage.git_folder / "objects").glob("??/*"))):
        path.chmod(0o644)
        path.write_bytes(b"" if number % 2 else b"no object")


def exchanged_objects(hostage: HostileWorktree) -> None:
    """Blobs that hold something else than their names say."""
    _unpack(hostage)
    folder = hostage.git_folder / "objects"
    blobs = [hostage.scene.git("rev-parse", f"HEAD:{name}") for name in ("kept", "edited")]
    one, two = (folder / blob[:2] / blob[2:] for blob in blobs)
    content = one.read_bytes()
    one.chmod(0o644)
    one.write_bytes(two.read_bytes())
    two.chmod(0o644)
    two.write_bytes(content)


def a_damaged_index(hostage: HostileWorktree) -> None:
    """An index that is cut off."""
    index = hostage.git_folder / "index"
    index.write_bytes(index.read_bytes()[:-30])


def a_forged_index(hostage: HostileWorktree) -> None:
    """An index in which a file has the object of another one; only its checksum tells."""
    other = hostage.scene.git("rev-parse", "HEAD:edited")
    kept = hostage.scene.git("rev-parse", "HEAD:kept")
    index = hostage.git_folder / "index"
    index.write_bytes(index.read_bytes().replace(bytes.fromhex(kept), bytes.fromhex(other)))


def a_split_index(hostage: HostileWorktree) -> None:
    """An index in two files."""
    hostage.scene.git("update-index", "--split-index")


def a_sparse_index(hostage: HostileWorktree) -> None:
    """An index that names a folder in place of its files."""
    hostage.scene.git("sparse-checkout", "set", "--cone", "--sparse-index", "folder")
    hostage.scene.write("edited", b"one\n")
    hostage.scene.write("gone", b"one\n")


def an_index_with_everything(hostage: HostileWorktree) -> None:
    """The newest version, an untracked cache, and files said to be unchanged that are not."""
    hostage.scene.git("update-index", "--index-version", "4", "--force-untracked-cache")
    hostage.scene.git("update-index", "--assume-unchanged", "kept")
    hostage.scene.git("update-index", "--skip-worktree", "folder/deep")
    hostage.scene.write("kept", b"not as the index says\n")
    hostage.scene.write("folder/deep", b"nor this\n")


def longer_ids(hostage: HostileWorktree) -> None:
    """A repository whose ids are SHA-256."""
    shutil.rmtree(hostage.git_folder)
    hostage.scene.git("init", "-q", "--object-format=sha256")
    hostage.scene.commit()


def odd_refs(hostage: HostileWorktree) -> None:
    """A branch whose name could be taken for something else."""
    hostage.scene.git("checkout", "-q", "-b", "$(touch${IFS}ran);-x\xfc'\"")


def a_head_that_climbs_out(hostage: HostileWorktree) -> None:
    """A HEAD that names a file outside."""
    (hostage.git_folder / "HEAD").write_text("ref: refs/../../../outside/secret\n")


def a_head_that_is_a_pipe(hostage: HostileWorktree) -> None:
    """A HEAD that leads to a branch that is a pipe, and packed refs that are one."""
    os.mkfifo(hostage.git_folder / "refs/heads/pipe")
    os.mkfifo(hostage.git_folder / "packed-refs")
    (hostage.git_folder / "HEAD").write_text("ref: refs/heads/pipe\n")


def a_head_in_a_loop(hostage: HostileWorktree) -> None:
    """Branches that name each other."""
    for one, two in (("a", "b"), ("b", "a")):
        (hostage.git_folder / "refs/heads" / one).write_text(f"ref: refs/heads/{two}\n")
    (hostage.git_folder / "HEAD").write_text("ref: refs/heads/a\n")


def replaced_objects(hostage: HostileWorktree) -> None:
    """Refs that have git read one object for another."""
    edited, kept = (hostage.scene.git("rev-parse", f"HEAD:{name}") for name in ("edited", "kept"))
    hostage.scene.git("replace", edited, kept)


def odd_names(hostage: HostileWorktree) -> None:
    """Names of files that mean something to a shell, to git, to a terminal or to other systems."""
    for name in ODD_NAMES:
        hostage.scene.write(name, b"odd\n")
        hostage.scene.write(b"folders/" + name + b"/" + name, b"odd\n")


def links_to_everywhere(hostage: HostileWorktree) -> None:
    """Links to what is outside, to devices, to themselves and to nothing, of folders too."""
    hostage.scene.at("kept").unlink()
    hostage.scene.link("kept", "../outside/secret")
    targets = ("/dev/zero", "/proc/self/mem", "loop", "..", "/", "nowhere", "../outside/pipe")
    for number, target in enumerate(targets):
        hostage.scene.link(f"links/{number}", target)
    hostage.scene.link("loop", "loop")


def special_files(hostage: HostileWorktree) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(hostage.scene.at("pipe"))
    os.mkfifo(hostage.scene.at("folder/pipe.log"))


def a_hostile_repository_inside(hostage: HostileWorktree) -> None:
    """A nested repository with all the commands."""
    hostage.scene.repository("inside")
    hostage.scene.write("inside/file")
    hostage.scene.commit("inside")
    hostage.bait_configuration(hostage.root / "inside/.git/config")
    hostage.bait_hooks(hostage.root / "inside/.git/hooks")
    hostage.scene.write("inside/.gitattributes", b"* filter=bait diff=bait\n")


def a_repository_without_commits_inside(hostage: HostileWorktree) -> None:
    """Nested repositories that are new, half removed, and no repository at all."""
    hostage.scene.repository("fresh")
    hostage.scene.write("fresh/file")
    hostage.scene.repository("half")
    hostage.scene.at("half/.git/HEAD").unlink()
    hostage.scene.write("half/file")
    hostage.scene.write("fake/.git/file")
    hostage.scene.write("fake/file")


def a_submodule_with_a_command(hostage: HostileWorktree) -> None:
    """A submodule that is to be updated by a command and fetched from one."""
    hostage.scene.repository("library")
    hostage.scene.write("library/file")
    hostage.scene.commit("library")
    module = '[submodule "library"]\n\tpath = library\n\turl = '
    hostage.scene.write(".gitmodules", f"{module}ext::{hostage.bait('submodule')}\n".encode())
    hostage.scene.commit()
    hostage.scene.git("submodule", "absorbgitdirs")
    make_index_newer(hostage.scene)
    hostage.configure(submodule__library__update=f"!{hostage.bait('update')}")


def a_linked_worktree(hostage: HostileWorktree) -> None:
    """The worktree is one that another repository's worktree was linked to."""
    shutil.move(hostage.root, hostage.outside / "main")
    command = ["git", "worktree", "add", "-q", str(hostage.root), "-b", "linked"]
    subprocess.run(command, cwd=hostage.outside / "main", check=True, capture_output=True)
    hostage.scene.write("ignored.log", b"ignored\n")


def converted_line_ends(hostage: HostileWorktree) -> None:
    """Files that git would store with other bytes than they have on disk."""
    hostage.configure(core__autocrlf="true", core__safecrlf="false")
    hostage.scene.write(".gitattributes", b"*.txt text eol=crlf\n*.id ident\n*.u encoding=UTF-16\n")
    for name in ("crlf.txt", "auto", "a.id"):
        hostage.scene.write(name, b"1\r\n2\r\n$Id$\r\n")
    hostage.scene.commit()
    make_index_newer(hostage.scene)


def large_files_elsewhere(hostage: HostileWorktree) -> None:
    """A filter that stores a pointer for the content, as LFS does."""
    hostage.configure(filter__lfs__clean="sed s/.*/pointer/", filter__lfs__smudge="false")
    hostage.scene.write(".gitattributes", b"*.bin filter=lfs\n")
    hostage.scene.write("large.bin", b"content\n" * 100)
    hostage.scene.commit()
    make_index_newer(hostage.scene)
