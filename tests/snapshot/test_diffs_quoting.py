"""Path names are quoted exactly where git quotes them."""

from pathlib import Path

from kedge.snapshot.diffs.quoting import quoted
from tests.snapshot.made_trees import FILE, Git, Objects


def test_every_byte_is_quoted_as_git_does(tmp_path: Path) -> None:
    """A name with any byte that a name may have is printed as `git diff --name-only` prints it."""
    names = [b"n%c" % byte for byte in range(1, 256) if byte != ord("/")]
    objects = Objects()
    old = objects.write_files({})
    new = objects.write_files(dict.fromkeys(names, (FILE, b"")))
    git = Git(tmp_path)
    with git.holding(objects):
        printed = git.diff(old, new, "--name-only")
    assert b"\n".join(map(quoted, sorted(names))) + b"\n" == printed
