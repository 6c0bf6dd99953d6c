"""Ways to make a worktree hostile: what a cloned repository, a colleague or an odd shell can hold.

Every public function here is an attack. It changes a worktree before its first snapshot, and
returns the environment variables to set while snapshots are used.
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


def commands_in_the_configuration(worktree: HostileWorktree) -> None:
    """Every setting of git's that is a command, and attributes that call for them."""
    worktree.bait_configuration(worktree.git_folder / "config")
    worktree.bait_hooks(worktree.git_folder / "hooks")
    worktree.bait_hooks(worktree.outside)
    worktree.scene.write(".gitattributes", b"* filter=bait diff=bait merge=bait text\n")


def commands_in_an_included_file(worktree: HostileWorktree) -> None:
    """The same in a file of the worktree that the configuration includes."""
    worktree.bait_configuration(worktree.root / "settings")
    worktree.configure(include__path="../settings")
    worktree.scene.write(".gitattributes", b"* filter=bait diff=bait\n")


def commands_of_the_user(worktree: HostileWorktree) -> Mapping[str, str]:
    """The same in the user's own configuration, with attributes for all repositories."""
    worktree.bait_configuration(worktree.outside / "gitconfig")
    (worktree.outside / "attributes").write_bytes(b"* filter=bait diff=bait\n")
    with (worktree.outside / "gitconfig").open("a") as file:
        file.write(f"[core]\n\tattributesFile = {worktree.outside}/attributes\n")
    return {"GIT_CONFIG_GLOBAL": str(worktree.outside / "gitconfig")}


def filters_in_private_attributes(worktree: HostileWorktree) -> None:
    """Attributes that are in no file of the worktree."""
    worktree.bait_configuration(worktree.git_folder / "config")
    (worktree.git_folder / "info/attributes").write_bytes(b"* filter=bait ident eol=crlf\n")


def variables_of_git(worktree: HostileWorktree) -> Mapping[str, str]:
    """A shell in which every variable that git knows leads astray, or names a command."""
    worktree.bait_configuration(worktree.outside / "gitconfig")
    wrong = str(worktree.outside / "folder")
    places = ["DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR", "TEMPLATE_DIR"]
    places += ["ALTERNATE_OBJECT_DIRECTORIES", "EXEC_PATH", "SHALLOW_FILE", "GRAFT_FILE"]
    commands = ["EXTERNAL_DIFF", "SSH", "SSH_COMMAND", "EDITOR", "PAGER", "ASKPASS"]
    commands += ["PROXY_COMMAND", "SEQUENCE_EDITOR"]
    logs = ["TRACE", "TRACE_SETUP", "TRACE_PACK_ACCESS", "TRACE2", "TRACE2_EVENT", "TRACE2_PERF"]
    return {
        **{f"GIT_{name}": wrong for name in places},
        **{f"GIT_{name}": worktree.bait(name) for name in commands},
        **{f"GIT_{name}": str(worktree.ran) for name in logs},
        **{name: worktree.bait(name) for name in ("PAGER", "EDITOR", "VISUAL", "SSH_ASKPASS")},
        "GIT_CONFIG": str(worktree.outside / "gitconfig"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": worktree.bait("GIT_CONFIG_VALUE_0"),
        "GIT_CONFIG_PARAMETERS": f"'core.pager'='{worktree.bait('GIT_CONFIG_PARAMETERS')}'",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_NAMESPACE": "../../outside",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_REDIRECT_STDERR": str(worktree.ran),
    }


def a_git_of_its_own(worktree: HostileWorktree) -> Mapping[str, str]:
    """A program called git in the worktree, for a shell that looks in the current folder first."""
    for name in ("git", "git-config", "git-pack-objects", "sh"):
        shutil.copy(worktree.outside / "bait", worktree.root / name)
    return {"PATH": f".:{os.environ['PATH']}"}


def no_git_at_all(worktree: HostileWorktree) -> Mapping[str, str]:
    """A machine on which git is not installed."""
    return {"PATH": str(worktree.outside / "folder")}


def settings_in_a_pipe(worktree: HostileWorktree) -> Mapping[str, str]:
    """A shell that says the user's settings are in a pipe."""
    return {"GIT_CONFIG_GLOBAL": str(worktree.outside / "pipe"), "HOME": "/dev/zero"}


def objects_to_be_fetched(worktree: HostileWorktree) -> None:
    """A partial clone whose missing objects git would get by running a command."""
    _unpack(worktree)
    blob = worktree.scene.git("rev-parse", "HEAD:kept")
    (worktree.git_folder / "objects" / blob[:2] / blob[2:]).unlink()
    worktree.configure(
        core__repositoryFormatVersion="1",
        extensions__partialClone="origin",
        remote__origin__promisor="true",
        remote__origin__url=f"ext::{worktree.bait('fetch')}",
        remote__origin__uploadpack=worktree.bait("uploadpack"),
        protocol__allow="always",
    )


def a_worktree_elsewhere(worktree: HostileWorktree) -> None:
    """A repository that says its files are outside."""
    worktree.configure(core__worktree=str(worktree.outside / "folder"))


def rules_in_a_pipe(worktree: HostileWorktree) -> None:
    """Files with rules, named in the configuration, that never end."""
    worktree.configure(
        core__excludesFile=str(worktree.outside / "pipe"), core__attributesFile="/dev/zero"
    )


def rules_in_a_device(worktree: HostileWorktree) -> None:
    """The other way round."""
    worktree.configure(
        core__excludesFile="/dev/zero", core__attributesFile=str(worktree.outside / "pipe")
    )


def rules_in_a_folder(worktree: HostileWorktree) -> None:
    """Folders where files with rules should be, the private ones too."""
    worktree.configure(core__excludesFile=str(worktree.outside), core__attributesFile="~nobody/x")
    (worktree.git_folder / "info/exclude").unlink()
    (worktree.git_folder / "info/exclude").mkdir()
    (worktree.git_folder / "info/attributes").mkdir()


def private_rules_in_a_pipe(worktree: HostileWorktree) -> None:
    """The repository's own files with rules are pipes."""
    (worktree.git_folder / "info/exclude").unlink()
    os.mkfifo(worktree.git_folder / "info/exclude")
    os.mkfifo(worktree.git_folder / "info/attributes")


def linked_rules(worktree: HostileWorktree) -> None:
    """Files with rules that are links to what is outside."""
    worktree.scene.at(".gitignore").unlink()
    worktree.scene.link(".gitignore", "../outside/secret")
    worktree.scene.link(".gitattributes", "../outside/secret")
    worktree.scene.link("folder/.gitignore", "../../outside/pipe")
    worktree.scene.link("folder/.gitattributes", "/dev/zero")


def rules_that_are_pipes(worktree: HostileWorktree) -> None:
    """Pipes where files with rules should be."""
    worktree.scene.at(".gitignore").unlink()
    for name in (".gitignore", ".gitattributes", "folder/.gitignore", "folder/.gitattributes"):
        os.mkfifo(worktree.scene.at(name))


def rules_that_are_folders(worktree: HostileWorktree) -> None:
    """Folders where files with rules should be."""
    worktree.scene.at(".gitignore").unlink()
    for name in (".gitignore", ".gitattributes", "folder/.gitignore", "folder/.gitattributes"):
        worktree.scene.write(f"{name}/file")


def rules_that_explode(worktree: HostileWorktree) -> None:
    """Patterns on which a naive matcher takes for ever."""
    pattern = b"a*" * 40 + b"b\n" + b"**/" * 60 + b"x\n" + b"[" * 2000 + b"\n"
    worktree.scene.write(".gitignore", pattern)
    worktree.scene.write("a" * 200)


def _git_folder_moved(worktree: HostileWorktree, name: str = "git") -> Path:
    return worktree.git_folder.rename(worktree.outside / name)


def a_linked_git_folder(worktree: HostileWorktree) -> None:
    """A `.git` that is a link to a folder elsewhere."""
    worktree.git_folder.symlink_to(_git_folder_moved(worktree))


def a_git_file(worktree: HostileWorktree) -> None:
    """A `.git` that is a file which names a folder elsewhere."""
    named = _git_folder_moved(worktree, "g i\xfct")
    worktree.git_folder.write_text(f"gitdir: {named}\n")


def a_git_file_that_names_a_pipe(worktree: HostileWorktree) -> None:
    """A `.git` file that leads to something which is no repository."""
    _git_folder_moved(worktree)
    worktree.git_folder.write_text(f"gitdir: {worktree.outside}/pipe\n")


def a_git_file_that_names_a_device(worktree: HostileWorktree) -> None:
    """A `.git` that is a link to a file that never ends."""
    _git_folder_moved(worktree)
    worktree.git_folder.symlink_to("/dev/zero")


def a_git_file_that_names_nothing(worktree: HostileWorktree) -> None:
    """A `.git` file with a NUL, and more than a path can hold."""
    _git_folder_moved(worktree)
    worktree.git_folder.write_bytes(b"gitdir: \0" + b"x" * 100_000)


def a_git_pipe(worktree: HostileWorktree) -> None:
    """A `.git` that is a pipe."""
    _git_folder_moved(worktree)
    os.mkfifo(worktree.git_folder)


def a_git_loop(worktree: HostileWorktree) -> None:
    """A `.git` that is a link to itself."""
    _git_folder_moved(worktree)
    worktree.git_folder.symlink_to(".git")


def a_git_folder_of_pipes(worktree: HostileWorktree) -> None:
    """A git folder in which every file that could be read is a pipe."""
    for name in ("HEAD", "config", "index", "packed-refs", "commondir", "config.worktree"):
        (worktree.git_folder / name).unlink(missing_ok=True)
        os.mkfifo(worktree.git_folder / name)


def an_included_pipe(worktree: HostileWorktree) -> None:
    """A configuration that includes a pipe."""
    worktree.configure(include__path=str(worktree.outside / "pipe"))


def an_included_device(worktree: HostileWorktree) -> None:
    """A configuration that includes what never ends."""
    worktree.configure(include__path="/dev/zero")


def an_included_loop(worktree: HostileWorktree) -> None:
    """A configuration that includes itself."""
    worktree.configure(include__path="config")


def another_common_folder(worktree: HostileWorktree) -> None:
    """A git folder that says its objects and rules are somewhere outside."""
    (worktree.git_folder / "commondir").write_text(f"{worktree.outside}\n")


def alternates_in_a_loop(worktree: HostileWorktree) -> None:
    """Object folders that borrow from each other, from nowhere and from a pipe."""
    other = worktree.outside / "objects"
    (other / "info").mkdir(parents=True)
    objects = worktree.git_folder / "objects"
    (other / "info/alternates").write_text(f"{objects}\n{other}\n")
    (objects / "info/alternates").write_text(
        f"{other}\n../objects\n{objects}\n/nowhere\n{worktree.outside}/pipe\n/dev/zero\n"
    )


def alternates_in_a_pipe(worktree: HostileWorktree) -> None:
    """A list of alternates that never ends."""
    os.mkfifo(worktree.git_folder / "objects/info/alternates")


def _unpack(worktree: HostileWorktree) -> None:
    """Leave the loose objects alone."""
    for path in (worktree.git_folder / "objects/pack").iterdir():
        path.unlink()


def objects_that_are_pipes(worktree: HostileWorktree) -> None:
    """Pipes under the names of loose objects."""
    _unpack(worktree)
    for name in ("kept", "edited"):
        blob = worktree.scene.git("rev-parse", f"HEAD:{name}")
        path = worktree.git_folder / "objects" / blob[:2] / blob[2:]
        path.unlink()
        os.mkfifo(path)


def packs_that_are_pipes(worktree: HostileWorktree) -> None:
    """Pipes where a pack, the index of a pack and the list of packs should be."""
    worktree.scene.git("gc", "-q")
    folder = worktree.git_folder / "objects/pack"
    (pack,) = folder.glob("*.pack")
    pack.unlink()
    os.mkfifo(pack)
    os.mkfifo(folder / f"pack-{'0' * 40}.idx")
    os.mkfifo(folder / f"pack-{'0' * 40}.pack")
    os.mkfifo(folder / "multi-pack-index")


def objects_in_another_folder(worktree: HostileWorktree) -> None:
    """All objects are borrowed from a folder outside."""
    objects = worktree.git_folder / "objects"
    objects.rename(worktree.outside / "objects")
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"{worktree.outside}/objects\n")


def damaged_packs(worktree: HostileWorktree) -> None:
    """Packs, their indexes and the commit graph hold something else."""
    worktree.scene.git("gc", "-q")
    worktree.scene.git("commit-graph", "write", "--reachable")
    worktree.scene.git("multi-pack-index", "write")
    pack = worktree.git_folder / "objects/pack"
    for path in [*pack.iterdir(), worktree.git_folder / "objects/info/commit-graph"]:
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(content[:100] + bytes(reversed(content[100:])))


def damaged_objects(worktree: HostileWorktree) -> None:
    """Loose objects that are empty, or no objects."""
    _unpack(worktree)
    for number, path in enumerate(sorted((worktree.git_folder / "objects").glob("??/*"))):
        path.chmod(0o644)
        path.write_bytes(b"" if number % 2 else b"no object")


def exchanged_objects(worktree: HostileWorktree) -> None:
    """Blobs that hold something else than their names say."""
    _unpack(worktree)
    folder = worktree.git_folder / "objects"
    blobs = [worktree.scene.git("rev-parse", f"HEAD:{name}") for name in ("kept", "edited")]
    one, two = (folder / blob[:2] / blob[2:] for blob in blobs)
    content = one.read_bytes()
    one.chmod(0o644)
    one.write_bytes(two.read_bytes())
    two.chmod(0o644)
    two.write_bytes(content)


def a_damaged_index(worktree: HostileWorktree) -> None:
    """An index that is cut off."""
    index = worktree.git_folder / "index"
    index.write_bytes(index.read_bytes()[:-30])


def a_forged_index(worktree: HostileWorktree) -> None:
    """An index in which a file has the object of another one; only its checksum tells."""
    other = worktree.scene.git("rev-parse", "HEAD:edited")
    kept = worktree.scene.git("rev-parse", "HEAD:kept")
    index = worktree.git_folder / "index"
    index.write_bytes(index.read_bytes().replace(bytes.fromhex(kept), bytes.fromhex(other)))


def a_split_index(worktree: HostileWorktree) -> None:
    """An index in two files."""
    worktree.scene.git("update-index", "--split-index")


def a_sparse_index(worktree: HostileWorktree) -> None:
    """An index that names a folder in place of its files."""
    worktree.scene.git("sparse-checkout", "set", "--cone", "--sparse-index", "folder")
    worktree.scene.write("edited", b"one\n")
    worktree.scene.write("gone", b"one\n")


def an_index_with_everything(worktree: HostileWorktree) -> None:
    """The newest version, an untracked cache, and files said to be unchanged that are not."""
    worktree.scene.git("update-index", "--index-version", "4", "--force-untracked-cache")
    worktree.scene.git("update-index", "--assume-unchanged", "kept")
    worktree.scene.git("update-index", "--skip-worktree", "folder/deep")
    worktree.scene.write("kept", b"not as the index says\n")
    worktree.scene.write("folder/deep", b"nor this\n")


def longer_ids(worktree: HostileWorktree) -> None:
    """A repository whose ids are SHA-256."""
    shutil.rmtree(worktree.git_folder)
    worktree.scene.git("init", "-q", "--object-format=sha256")
    worktree.scene.commit()


def odd_refs(worktree: HostileWorktree) -> None:
    """A branch whose name could be taken for something else."""
    worktree.scene.git("checkout", "-q", "-b", "$(touch${IFS}ran);-x\xfc'\"")


def a_head_that_climbs_out(worktree: HostileWorktree) -> None:
    """A HEAD that names a file outside."""
    (worktree.git_folder / "HEAD").write_text("ref: refs/../../../outside/secret\n")


def a_head_that_is_a_pipe(worktree: HostileWorktree) -> None:
    """A HEAD that leads to a branch that is a pipe, and packed refs that are one."""
    os.mkfifo(worktree.git_folder / "refs/heads/pipe")
    os.mkfifo(worktree.git_folder / "packed-refs")
    (worktree.git_folder / "HEAD").write_text("ref: refs/heads/pipe\n")


def a_head_in_a_loop(worktree: HostileWorktree) -> None:
    """Branches that name each other."""
    for one, two in (("a", "b"), ("b", "a")):
        (worktree.git_folder / "refs/heads" / one).write_text(f"ref: refs/heads/{two}\n")
    (worktree.git_folder / "HEAD").write_text("ref: refs/heads/a\n")


def replaced_objects(worktree: HostileWorktree) -> None:
    """Refs that have git read one object for another."""
    edited, kept = (worktree.scene.git("rev-parse", f"HEAD:{name}") for name in ("edited", "kept"))
    worktree.scene.git("replace", edited, kept)


def odd_names(worktree: HostileWorktree) -> None:
    """Names of files that mean something to a shell, to git, to a terminal or to other systems."""
    for name in ODD_NAMES:
        worktree.scene.write(name, b"odd\n")
        worktree.scene.write(b"folders/" + name + b"/" + name, b"odd\n")


def links_to_everywhere(worktree: HostileWorktree) -> None:
    """Links to what is outside, to devices, to themselves and to nothing, of folders too."""
    worktree.scene.at("kept").unlink()
    worktree.scene.link("kept", "../outside/secret")
    targets = ("/dev/zero", "/proc/self/mem", "loop", "..", "/", "nowhere", "../outside/pipe")
    for number, target in enumerate(targets):
        worktree.scene.link(f"links/{number}", target)
    worktree.scene.link("loop", "loop")


def special_files(worktree: HostileWorktree) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(worktree.scene.at("pipe"))
    os.mkfifo(worktree.scene.at("folder/pipe.log"))


def a_hostile_repository_inside(worktree: HostileWorktree) -> None:
    """A nested repository with all the commands."""
    worktree.scene.repository("inside")
    worktree.scene.write("inside/file")
    worktree.scene.commit("inside")
    worktree.bait_configuration(worktree.root / "inside/.git/config")
    worktree.bait_hooks(worktree.root / "inside/.git/hooks")
    worktree.scene.write("inside/.gitattributes", b"* filter=bait diff=bait\n")


def a_repository_without_commits_inside(worktree: HostileWorktree) -> None:
    """Nested repositories that are new, half removed, and no repository at all."""
    worktree.scene.repository("fresh")
    worktree.scene.write("fresh/file")
    worktree.scene.repository("half")
    worktree.scene.at("half/.git/HEAD").unlink()
    worktree.scene.write("half/file")
    worktree.scene.write("fake/.git/file")
    worktree.scene.write("fake/file")


def a_submodule_with_a_command(worktree: HostileWorktree) -> None:
    """A submodule that is to be updated by a command and fetched from one."""
    worktree.scene.repository("library")
    worktree.scene.write("library/file")
    worktree.scene.commit("library")
    module = '[submodule "library"]\n\tpath = library\n\turl = '
    worktree.scene.write(".gitmodules", f"{module}ext::{worktree.bait('submodule')}\n".encode())
    worktree.scene.commit()
    worktree.scene.git("submodule", "absorbgitdirs")
    make_index_newer(worktree.scene)
    worktree.configure(submodule__library__update=f"!{worktree.bait('update')}")


def a_linked_worktree(worktree: HostileWorktree) -> None:
    """The worktree is one that another repository's worktree was linked to."""
    shutil.move(worktree.root, worktree.outside / "main")
    command = ["git", "worktree", "add", "-q", str(worktree.root), "-b", "linked"]
    subprocess.run(command, cwd=worktree.outside / "main", check=True, capture_output=True)
    worktree.scene.write("ignored.log", b"ignored\n")


def converted_line_ends(worktree: HostileWorktree) -> None:
    """Files that git would store with other bytes than they have on disk."""
    worktree.configure(core__autocrlf="true", core__safecrlf="false")
    worktree.scene.write(
        ".gitattributes", b"*.txt text eol=crlf\n*.id ident\n*.u encoding=UTF-16\n"
    )
    for name in ("crlf.txt", "auto", "a.id"):
        worktree.scene.write(name, b"1\r\n2\r\n$Id$\r\n")
    worktree.scene.commit()
    make_index_newer(worktree.scene)


def large_files_elsewhere(worktree: HostileWorktree) -> None:
    """A filter that stores a pointer for the content, as LFS does."""
    worktree.configure(filter__lfs__clean="sed s/.*/pointer/", filter__lfs__smudge="false")
    worktree.scene.write(".gitattributes", b"*.bin filter=lfs\n")
    worktree.scene.write("large.bin", b"content\n" * 100)
    worktree.scene.commit()
    make_index_newer(worktree.scene)
