"""The real OpenCode is installed once, into a folder that nobody else can write; offline here."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.opencode import VERSION, Unavailable, install


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it would be, on a machine without npm."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / f"kedge-opencode-{VERSION}-{os.getuid()}"


def put_program(cache: Path, name: str, script: str) -> Path:
    """Something in the place of a program of OpenCode's."""
    program = cache / "node_modules" / name / "bin" / "opencode"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return program


@pytest.mark.usefixtures("cache")
def test_without_npm_it_cannot_be_had() -> None:
    """The error says what is missing."""
    with pytest.raises(Unavailable, match="no npm here"):
        install()


def test_what_is_installed_needs_no_npm(cache: Path) -> None:
    """Of the programs for several machines the first that runs here is taken."""
    cache.mkdir(mode=0o700)
    put_program(cache, "opencode-linux-arm64", "exit 1")
    runs = put_program(cache, "opencode-linux-x64", "exit 0")
    put_program(cache, "opencode-linux-x64-baseline", "exit 0")
    assert install() == runs


def test_a_folder_of_others_is_refused(cache: Path) -> None:
    """What somebody else may have put there is not run."""
    cache.mkdir()
    cache.chmod(0o777)
    put_program(cache, "opencode-linux-x64", "exit 0")
    with pytest.raises(Unavailable, match="not a folder of yours alone"):
        install()


def test_npm_that_fails_is_quoted(cache: Path) -> None:
    """The error has npm's own words."""
    npm = cache.parent / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    npm.chmod(0o700)
    with pytest.raises(Unavailable, match="ENOTFOUND"):
        install()
