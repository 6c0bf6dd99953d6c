"""Checks of trust: a file is trusted with the content that the user saw, and with no other."""

from kedge.store.queries.grants import (
    TrustedFile,
    distrust_file,
    is_trusted,
    trust_file,
    trusted_files,
)
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, opened

ONE, TWO = "a" * 64, "b" * 64


async def trust_is_in_a_path_and_its_content(database: Database) -> None:
    """Neither another content of the file nor the same content elsewhere is trusted."""
    async with opened(database) as scene:
        await scene.write(trust_file, "/p/kedge.json", ONE, now=START)
        assert await scene.read(is_trusted, "/p/kedge.json", ONE)
        assert not await scene.read(is_trusted, "/p/kedge.json", TWO)
        assert not await scene.read(is_trusted, "/q/kedge.json", ONE)
    async with opened(database) as scene:
        assert await scene.read(is_trusted, "/p/kedge.json", ONE)


async def trusted_contents_are_listed(database: Database) -> None:
    """A file may be trusted with several contents; trusting one again changes nothing."""
    async with opened(database) as scene:
        await scene.write(trust_file, "/q", TWO, now=START)
        await scene.write(trust_file, "/p", TWO, now=START + 1)
        await scene.write(trust_file, "/p", ONE, now=START + 2)
        await scene.write(trust_file, "/p", TWO, now=START + 3)
        assert await scene.read(trusted_files) == [
            TrustedFile("/p", TWO, START + 1),
            TrustedFile("/p", ONE, START + 2),
            TrustedFile("/q", TWO, START),
        ]


async def trust_can_be_taken_back(database: Database) -> None:
    """All contents of a file go at once; doing it again returns that there was nothing to do."""
    async with opened(database) as scene:
        for digest in (ONE, TWO):
            await scene.write(trust_file, "/p", digest, now=START)
        await scene.write(trust_file, "/q", ONE, now=START)
        assert await scene.write(distrust_file, "/p")
        assert not await scene.write(distrust_file, "/p")
        assert [file.path for file in await scene.read(trusted_files)] == ["/q"]
