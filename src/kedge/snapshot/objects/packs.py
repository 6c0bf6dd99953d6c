"""Reads objects from packs, our own and those of a folder that objects are borrowed from."""

from pathlib import Path
from typing import TYPE_CHECKING

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects.records import KINDS

if TYPE_CHECKING:
    import pygit2


class Packs:
    """The objects in one folder of git's; opened when first asked, and again when it changed."""

    def __init__(self, objects: Path) -> None:
        self.objects = objects
        self._opened: pygit2.Odb | None = None

    def _open(self) -> "pygit2.Odb":
        # Not with its alternates: what is borrowed must never be taken for our own.
        import pygit2

        database = pygit2.Odb()
        database.add_backend(pygit2.OdbBackendPack(str(self.objects)), 2)
        database.add_backend(pygit2.OdbBackendLoose(str(self.objects), -1, False), 1)
        return database

    def _database(self) -> "pygit2.Odb":
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def reopen(self) -> None:
        """Forget what the folder held; packs may have come and gone."""
        self._opened = None

    def exists(self, id: bytes) -> bool:
        """Whether the object is here."""
        import pygit2

        return self._database().exists(pygit2.Oid(raw=id))

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is here; its content is held against its id."""
        import pygit2

        oid = pygit2.Oid(raw=id)
        try:
            return self._read(oid)
        except (pygit2.GitError, OSError):
            # Most likely its pack was just replaced by another one.
            self.reopen()
        try:
            return self._read(oid)
        except (pygit2.GitError, OSError) as error:
            raise SnapshotStoreDamaged(f"{id.hex()} in {self.objects}: {error}") from error

    def _read(self, oid: "pygit2.Oid") -> tuple[bytes, bytes] | None:
        try:
            kind, content = self._database().read(oid)
        except KeyError:
            return None
        return KINDS[kind], content


class BorrowedPacks(Packs):
    """The objects of a repository of the user's, with those that it borrows itself."""

    def _open(self) -> "pygit2.Odb":
        import pygit2

        try:
            return pygit2.Odb(str(self.objects))
        except pygit2.GitError:
            return pygit2.Odb()  # the folder is gone, and all that it lent
