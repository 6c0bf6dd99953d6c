"""Which configuration files of projects somebody trusts, each with the content it had then."""

from dataclasses import dataclass

from kedge.store.script import Script, row, rows, run


@dataclass(frozen=True, slots=True)
class TrustedFile:
    """A file that is trusted for as long as its content has this digest."""

    path: str
    digest: str
    time: int


def trust_file(path: str, digest: str, *, now: int) -> Script[None]:
    """Trust a file with this content; other contents that were trusted stay so."""
    yield from run("trust_add", path=path, digest=digest, now=now)


def is_trusted(path: str, digest: str) -> Script[bool]:
    """Whether a file is trusted with this content."""
    return (yield from row("trust_get", path=path, digest=digest)) is not None


def distrust_file(path: str) -> Script[bool]:
    """Trust a file no more, whatever it holds; tells whether it was trusted."""
    return (yield from run("trust_drop", path=path)) > 0


def trusted_files() -> Script[list[TrustedFile]]:
    """Every trusted file with each of its trusted contents, by path, the newest last."""
    found = [TrustedFile(*each) for each in (yield from rows("trust_list"))]
    return sorted(found, key=lambda file: (file.path, file.time, file.digest))
