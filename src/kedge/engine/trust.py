"""Which configuration files of projects a user trusts, and the resulting configuration.

    trusting = Trusting(engine.store, engine.clock)
    config = await trusting.config(directory, worktree)

A file is trusted with the content that the user saw. When it changes, it is untrusted again.
"""

import asyncio
import os
from collections.abc import Mapping
from functools import partial

from kedge.config.files import LoadedFile, TrustCheck, load_files
from kedge.config.load import load_config, load_readable_config
from kedge.config.values import Config
from kedge.domain.clock import Clock
from kedge.domain.errors import InvalidInput
from kedge.store.port import Store
from kedge.store.queries.grants import (
    TrustedFile,
    distrust_file,
    is_trusted,
    trust_file,
    trusted_files,
)


class Trusting:
    """The trusted files of a database."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def trust(self, file: LoadedFile) -> None:
        """Trust a project's file with the content that it had when it was loaded."""
        if file.root is None or not file.was_read:
            raise InvalidInput(f"{file.path} is not a file of a project that can be trusted")
        script = partial(trust_file, file.path, file.digest, now=self._clock.now())
        await self._store.write(script)

    async def untrust(self, path: str) -> bool:
        """Untrust a file with any content; return whether it was trusted."""
        return await self._store.write(partial(distrust_file, path))

    async def is_trusted(self, path: str, digest: str) -> bool:
        """Whether a file is trusted with a content."""
        return await self._store.read(partial(is_trusted, path, digest))

    async def trusted(self) -> list[TrustedFile]:
        """Every trusted file with each of its trusted contents."""
        return await self._store.read(trusted_files)

    async def files(
        self, directory: str, worktree: str, *, environ: Mapping[str, str] | None = None
    ) -> list[LoadedFile]:
        """The configuration files of a directory, each with the part that takes effect."""
        variables = os.environ if environ is None else environ
        check = await self._check()
        return await asyncio.to_thread(
            load_files, directory, worktree, environ=variables, is_trusted=check
        )

    async def config(
        self, directory: str, worktree: str, *, environ: Mapping[str, str] | None = None
    ) -> Config:
        """The configuration of a directory, with what users trust."""
        check = await self._check()
        return await asyncio.to_thread(
            load_config, directory, worktree, environ=environ, is_trusted=check
        )

    async def readable_config(
        self, directory: str, worktree: str, *, environ: Mapping[str, str]
    ) -> Config:
        """Like `config`, without the files that cannot be read: for display only."""
        check = await self._check()
        return await asyncio.to_thread(
            load_readable_config, directory, worktree, environ=environ, is_trusted=check
        )

    async def _check(self) -> TrustCheck:
        known = {(file.path, file.digest) for file in await self.trusted()}
        return lambda path, digest: (path, digest) in known
