"""A scene for each test of the configuration."""

from pathlib import Path

import pytest

from tests.config.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A home and a project without any files."""
    return Scene(tmp_path)
