"""What a crash left of unfinished steps, put in order: afterwards each path is as it was before its
step or as it is after it, and the steps can be carried out again."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from kedge.domain.errors import PathRefused
from kedge.domain.failpoints import reach
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root, components
from kedge.snapshot.files.replacing import settle
from kedge.snapshot.files.steps import MayWrite, Spot, Step, always, skipped
from kedge.snapshot.files.syncing import sync_folders
from kedge.snapshot.values import Result


def clean_up(
    root: Root,
    steps: Iterable[Step],
    *,
    tag: str,
    is_stored: Callable[[str], bool] | None = None,
    may_write: MayWrite = always,
) -> list[Result]:
    """Remove all temporary files of these steps; the results are of the paths with trouble.

    `is_stored` tells whether a blob is anywhere else; left out, everything is that steps expect.
    `may_write` is called before each step; if it raises, the rest is left.

    By what is at the step's path, and aside:

    | in place | aside | then |
    |---|---|---|
    | anything | nothing | nothing was begun, or all is done |
    | the same file | the same file | it was about to be put back: the second name goes |
    | anything | as wanted | it had not been put in place: it goes |
    | something | as expected, and stored | replaced: it goes |
    | as wanted | as expected, and nowhere else | put back |
    | other | as expected, and nowhere else | somebody saved since: it is kept beside, conflict |
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
                may_write()
                touched.add(step.folder)
                spot = Spot(step, dir_fd, tag)
                result = settle(replace(spot, is_stored=is_stored) if is_stored else spot)
                reach("after-settle")
        except (FolderAbsent, FolderBlocked, PathRefused):
            continue
        except OSError as error:
            result = skipped(step, error)
        if result is not None:
            troubles.append(result)
    sync_folders(root, touched)
    return troubles
