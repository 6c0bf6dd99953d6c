"""Makes git repositories for tests, with the real git; none of it is how kedge reads them."""

import subprocess
from pathlib import Path

_ME = ("-c", "user.email=a@example.invalid", "-c", "user.name=a", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder; gives what it says."""
    done = subprocess.run(
        ["git", *_ME, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, message: str = "one") -> str:
    """An empty commit; gives its hash."""
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def repository(folder: Path, commits: int = 1) -> str:
    """A repository with some commits; gives the hash of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    hashes = [commit(folder, f"{folder} {n}") for n in range(commits)]
    return hashes[0] if hashes else ""
