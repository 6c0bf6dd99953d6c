"""The environment that tests run in; it holds nothing of the person who runs them."""

import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

RUN_FOLDER = "KEDGE_TEST_RUN_FOLDER"
"""Names the folder that the processes of one test run share; the first of them makes it."""

_XDG_FOLDERS = ("CACHE", "CONFIG", "DATA", "STATE")


def isolate() -> bool:
    """Point this process at a home of its own; true if it is the one that must call `dispose`."""
    first = RUN_FOLDER not in os.environ
    if first:
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="kedge-tests-")
    home = tempfile.mkdtemp(prefix="home-", dir=run_folder())
    set_home(os.environ, Path(home))
    remove_git_variables(os.environ)
    return first


def dispose() -> None:
    """Remove what the processes of this run left behind."""
    shutil.rmtree(run_folder())
    del os.environ[RUN_FOLDER]


def run_folder() -> Path:
    """The folder that the processes of this run share."""
    return Path(os.environ[RUN_FOLDER])


def set_home(variables: MutableMapping[str, str], home: Path) -> None:
    """Make `home` the place for all data, configuration and caches."""
    variables["HOME"] = str(home)
    for name in _XDG_FOLDERS:
        folder = home / name.lower()
        folder.mkdir(parents=True)
        variables[f"XDG_{name}_HOME"] = str(folder)
    runtime = home / "runtime"
    runtime.mkdir(mode=0o700)
    variables["XDG_RUNTIME_DIR"] = str(runtime)


def remove_git_variables(variables: MutableMapping[str, str]) -> None:
    """Keep the person's git settings out, and git itself off the network."""
    for name in [name for name in variables if name.startswith("GIT_")]:
        del variables[name]
    variables["GIT_CONFIG_GLOBAL"] = os.devnull
    variables["GIT_CONFIG_NOSYSTEM"] = "1"
    variables["GIT_ALLOW_PROTOCOL"] = "file"
