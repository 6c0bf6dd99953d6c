"""A home and a project with configuration files, and what kedge makes of them."""

import json
from pathlib import Path
from typing import Any

from kedge.config.files import LoadedFile, TrustCheck, load_files, nobody
from kedge.config.load import load_config
from kedge.config.values import Config
from kedge.domain.permissions import PermissionRule


def everybody(path: str, digest: str) -> bool:
    """Trusts whatever there is."""
    return True


class Scene:
    """A home, a project, and variables."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        for each in (self.home, self.project):
            each.mkdir()
        self.environ = {"HOME": str(self.home)}

    def own(self, value: object, name: str = "opencode/opencode.json") -> Path:
        """Write a file of the user."""
        return put(self.home / ".config" / name, value)

    def write(self, value: object, name: str = "opencode.json") -> Path:
        """Write a file of the project."""
        return put(self.project / name, value)

    def load(self, is_trusted: TrustCheck = nobody, below: str = "") -> Config:
        """The configuration of the project, or of a folder in it."""
        return load_config(
            self.project / below, self.project, environ=self.environ, is_trusted=is_trusted
        )

    def files(self, is_trusted: TrustCheck = nobody) -> list[LoadedFile]:
        """Its files."""
        return load_files(self.project, self.project, environ=self.environ, is_trusted=is_trusted)


def put(path: Path, value: object) -> Path:
    """A file that holds a text, or a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def rule(permission: str, pattern: str, action: Any) -> PermissionRule:  # noqa: ANN401 - a literal
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)
