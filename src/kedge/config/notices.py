"""What people should know of a file that does not count as it is written."""

from kedge.config.files import LoadedFile
from kedge.config.naming import dotted, printable

_MOST = 20
TO_TRUST = "until you have looked at the file and run `kedge trust`"
"""How a notice of something ends that counts when the file is trusted."""


def notices(file: LoadedFile) -> list[str]:
    """One line for each thing."""
    path = printable(file.path)
    if file.strays:
        return [f"{path} is ignored: it is a link out of the project; put a copy in its place"]
    if file.irregular:
        return [f"{path} is ignored: it is not a regular file"]
    ignored = [f"{dotted(key)} is ignored {TO_TRUST}" for key in dict.fromkeys(file.ignored)]
    allowing = [
        f"{dotted(key)} only makes an exception from the file's own rules {TO_TRUST}"
        for key in file.allowing
    ]
    odd = [f"{dotted(key)} is ignored: kedge does not know its value" for key in file.odd]
    found = [*ignored, *allowing, *odd]
    if len(found) > _MOST:
        found = [*found[:_MOST], f"and {len(found) - _MOST} more like these"]
    return [f"{path}: {line}" for line in found]
