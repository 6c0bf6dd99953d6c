"""What is in a folder, and which of its names is meant by one that is not there."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from kedge.agent.tools.places import Place, printable
from kedge.agent.tools.tool import ToolFailure
from kedge.snapshot.files.opening import Root

_MOST_NAMES = 50_000
_SUGGESTED = 3


def entries(place: Place) -> list[str]:
    """The names in a folder, sorted; those of folders end with a slash."""
    try:
        with Root(os.fsencode(place.root)) as root, root.folder(place.below) as fd:
            return sorted(islice(_names(fd), _MOST_NAMES))
    except OSError as error:
        raise ToolFailure(f"{printable(place.path)} cannot be listed: {error.strerror}.") from error


def near_names(place: Place) -> list[str]:
    """Paths beside a missing one whose names are like it."""
    try:
        names = [entry.name for entry in islice(os.scandir(place.real.parent), _MOST_NAMES)]
    except OSError:
        # There is no such folder either: nothing can be suggested.
        return []
    wanted = place.real.name.lower()
    holding = [name for name in names if wanted in name.lower() or name.lower() in wanted]
    close = get_close_matches(place.real.name, names, n=_SUGGESTED)
    found = list(dict.fromkeys([*close, *sorted(holding)]))[:_SUGGESTED]
    return [printable(place.path.parent / name) for name in found]


def _names(fd: int) -> Iterator[str]:
    with os.scandir(fd) as found:
        for entry in found:
            yield printable(entry.name) + ("/" if entry.is_dir() else "")
