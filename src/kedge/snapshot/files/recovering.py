"""What a crash left of unfinished steps, put in order: afterwards each path is as it was before its
step or as it is after it, and the steps can be carried out again."""

from collections.abc import Iterable

from kedge.domain.errors import PathRefused
from kedge.domain.failpoints import reach
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root, components
from kedge.snapshot.files.replacing import settle
from kedge.snapshot.files.steps import Spot, Step, skipped
from kedge.snapshot.files.syncing import sync_folders
from kedge.snapshot.values import Result


def clean_up(root: Root, steps: Iterable[Step], *, tag: str) -> list[Result]:
    """Remove all temporary files of these steps; the results are of the paths with trouble.

    By what is at the step's path, and aside:

    | in place | aside | then |
    |---|---|---|
    | anything | nothing | nothing was begun, or all is done |
    | the same file | the same file | it was about to be put back: the second name goes |
    | anything | as wanted | it had not been put in place: it goes |
    | something | as expected | replaced: it goes, the store has it |
    | nothing | as expected | it was about to be deleted: put back |
    | nothing | other | somebody saved it in the last moment: put back, conflict |
    | as wanted | other | the same: put back, conflict |
    | other | other | somebody saved twice: the older one is kept beside the newer, conflict |
    """
    troubles: list[Result] = []
    touched: set[bytes] = set()
    for step in steps:
        try:
            components(step.path)
            with root.folder(step.folder) as dir_fd:
                reach("before-settle")
                result = settle(Spot(step, dir_fd, tag))
                reach("after-settle")
        except (FolderAbsent, FolderBlocked, PathRefused):
            continue
        except OSError as error:
            result = skipped(step, error)
        touched.add(step.folder)
        if result is not None:
            troubles.append(result)
    sync_folders(root, touched)
    return troubles
