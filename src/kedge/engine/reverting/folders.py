"""The folders that a revert makes on the way to files, so that taking it back can remove them."""

import os
from collections.abc import Iterable

from kedge.snapshot.files.steps import Step
from kedge.snapshot.values import Present


def missing_folders(root: str, steps: Iterable[Step]) -> list[bytes]:
    """Folders of files that are about to be written, as far as there is nothing yet."""
    missing: dict[bytes, bool] = {}
    for step in steps:
        folder = step.folder if isinstance(step.want, Present) else b""
        while folder and folder not in missing:
            missing[folder] = not os.path.lexists(os.path.join(os.fsencode(root), folder))
            folder = folder.rpartition(b"/")[0]
    return sorted(folder for folder, is_missing in missing.items() if is_missing)
