"""Trust in a project's configuration is kept in the database, with the content that was seen."""

import json
from pathlib import Path

import pytest

from kedge.domain.errors import InvalidInput
from kedge.engine.engine import Engine
from kedge.engine.trust import Trusting
from tests.engine.engine_factory import EngineFactory

FILE = {"model": "a/b", "shell": "/bin/zsh"}


@pytest.fixture
def trusting(engine: Engine) -> Trusting:
    """What is trusted in an engine's database."""
    return Trusting(engine.store, engine.clock)


async def test_a_file_counts_once_it_is_trusted(trusting: Trusting, folder: Path) -> None:
    """Until then it only chooses; when its content changes, it only chooses again."""
    path = folder / "kedge.json"
    path.write_text(json.dumps(FILE))
    here = str(folder)
    config = await trusting.config(here, here)
    assert (config.model, config.shell) == ("a/b", None)
    [file] = await trusting.files(here, here)
    await trusting.trust(file)
    assert await trusting.is_trusted(file.path, file.digest)
    assert (await trusting.config(here, here)).shell == "/bin/zsh"
    path.write_text(json.dumps(FILE | {"shell": "/evil"}))
    assert (await trusting.config(here, here)).shell is None
    path.write_text(json.dumps(FILE))
    assert await trusting.untrust(str(path))
    assert not await trusting.untrust(str(path))
    assert (await trusting.config(here, here)).shell is None
    assert await trusting.trusted() == []


async def test_only_what_was_looked_at_is_trusted(trusting: Trusting, folder: Path) -> None:
    """A file that changed between the look and the yes is not trusted."""
    path = folder / "kedge.json"
    path.write_text(json.dumps(FILE))
    [file] = await trusting.files(str(folder), str(folder))
    path.write_text(json.dumps(FILE | {"shell": "/evil"}))
    await trusting.trust(file)
    assert (await trusting.config(str(folder), str(folder))).shell is None


async def test_trust_outlives_the_engine(place: EngineFactory, folder: Path) -> None:
    """The next engine on the same database knows it."""
    (folder / "kedge.json").write_text(json.dumps(FILE))
    async with place.open() as engine:
        trusting = Trusting(engine.store, engine.clock)
        [file] = await trusting.files(str(folder), str(folder))
        await trusting.trust(file)
    async with place.open() as engine:
        trusting = Trusting(engine.store, engine.clock)
        assert (await trusting.config(str(folder), str(folder))).shell == "/bin/zsh"


async def test_what_cannot_be_trusted(trusting: Trusting, folder: Path) -> None:
    """The user's own files need no trust, and links out of the project never get any."""
    (folder / "kedge.json").symlink_to("/etc/passwd")
    own = folder / "config" / "kedge" / "kedge.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    variables = {"XDG_CONFIG_HOME": str(folder / "config")}
    files = await trusting.files(str(folder), str(folder), environ=variables)
    assert [file.path for file in files] == [str(own), str(folder / "kedge.json")]
    for file in files:
        with pytest.raises(InvalidInput):
            await trusting.trust(file)
