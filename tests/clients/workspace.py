"""Where a server and a client of the tests are at home, and the project that both are about."""

from dataclasses import dataclass
from pathlib import Path

from tests.engine.repositories import git, repository
from tests.support.servers import scratch

_ASKS = """\
{
  "$schema": "https://opencode.ai/config.json",
  "model": "kedge/offline",
  "permission": {"bash": {"touch *": "ask"}}
}
"""
"""A project may want to be asked, without being trusted; OpenCode would add the schema itself."""

GREET = """\
---
description: greets somebody
---
write $1 $2
say See @$3 for more.
"""
TIDES = """\
---
name: tides
description: When it is high water.
---
High water is at noon.
"""


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The folders of one test."""

    folder: Path
    project: Path
    environ: dict[str, str]
    """The variables of a client."""

    def configure(self, name: str, text: str) -> None:
        """Write a file of the configuration of whoever starts the server."""
        file = self.folder / "server" / "config" / "opencode" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def text(self, name: str) -> str | None:
        """What a file of the project holds, None if there is none."""
        file = self.project / name
        return file.read_text() if file.exists() else None


def prepared(folder: Path) -> Workspace:
    """A project with a commit, whose commands that begin with `touch` need a permission."""
    project = folder / "project"
    repository(project)
    (project / "README.md").write_text("# A project\n\nWith a needle in it.\n")
    (project / "opencode.json").write_text(_ASKS)
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "files")
    return Workspace(folder=folder, project=project, environ=scratch(folder / "client"))
