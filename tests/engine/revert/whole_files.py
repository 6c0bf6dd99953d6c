"""A real folder as the model of a worktree sees it: read whole, and changed as the model is."""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from kedge.domain.file_states import Absent, Present
from tests.engine.revert.plan_trees import Blobs, State, Tree


def scanned(root: Path, blobs: Blobs) -> Tree:
    """Everything that is in a folder, whatever it is called."""
    tree = Tree()
    top = os.fsencode(root)
    for above, folders, files in os.walk(top):
        for name in (*folders, *files):
            whole = os.path.join(above, name)
            path = os.path.relpath(whole, top)
            mode = os.lstat(whole).st_mode
            if stat.S_ISDIR(mode):
                tree.folders.add(path)
            elif stat.S_ISLNK(mode):
                tree.files[path] = blobs.file(os.readlink(whole), mode)
            else:
                tree.files[path] = blobs.file(Path(os.fsdecode(whole)).read_bytes(), mode)
    return tree


def change(root: Path, changes: Mapping[bytes, State], blobs: Blobs) -> None:
    """Make paths hold states as `Tree.change` does: what goes first, folders only if hollow."""
    for path, state in changes.items():
        if isinstance(state, Absent):
            _place(root, path).unlink()
    for path, state in changes.items():
        if isinstance(state, Present):
            _put(_place(root, path), state, blobs[state.blob])


def _place(root: Path, path: bytes) -> Path:
    return root / os.fsdecode(path)


def _put(place: Path, state: Present, content: bytes) -> None:
    if place.is_dir() and not place.is_symlink():
        # The model makes sure that there are only folders in it.
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink() or (state.is_link and place.exists()):
        place.unlink()
    if state.is_link:
        place.symlink_to(os.fsdecode(content))
        return
    # Like an editor that keeps the file: a snapshot has to notice it all the same.
    place.write_bytes(content)
    place.chmod(stat.S_IMODE(state.mode))
