"""Where data is kept, and which numbers a user may set."""

import math
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.errors import InvalidInput
from kedge.engine.settings import (
    Settings,
    data_folder,
    database_address,
    make_private_folder,
)


def test_the_data_folder_is_the_given_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument beats `KEDGE_DATA_DIR`, which beats the data home, which has a default."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("KEDGE_DATA_DIR", raising=False)
    assert data_folder(None) == tmp_path / ".local" / "share" / "kedge"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_folder(None) == tmp_path / ".local" / "share" / "kedge"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert data_folder(None) == Path("/data/kedge")
    monkeypatch.setenv("KEDGE_DATA_DIR", "~/mine")
    assert data_folder(None) == tmp_path / "mine"
    assert data_folder("~/given") == tmp_path / "given"
    monkeypatch.chdir(tmp_path)
    assert data_folder(Path("here")) == tmp_path / "here"
    monkeypatch.setenv("KEDGE_DATA_DIR", "")
    assert data_folder(None) == Path("/data/kedge")


def test_the_database_is_the_given_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument beats `KEDGE_DATABASE_URL`; an empty one counts as none."""
    monkeypatch.delenv("KEDGE_DATABASE_URL", raising=False)
    assert database_address(None) is None
    monkeypatch.setenv("KEDGE_DATABASE_URL", "")
    assert database_address(None) is None
    monkeypatch.setenv("KEDGE_DATABASE_URL", "postgresql://x")
    assert database_address(None) == "postgresql://x"
    assert database_address(Path("/a/b.db")) == "/a/b.db"


@pytest.mark.parametrize("name", ["lease_time", "retention", "queue_length", "stop_patience"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "5", None, True])
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: Any) -> None:  # noqa: ANN401
    """A negative, endless or wrong value is a typed error that names the setting."""
    with pytest.raises(InvalidInput, match=name) as caught:
        Settings(**{name: value})
    assert caught.value.field == name


def test_a_lease_lasts() -> None:
    """A lease time near zero would renew without a pause, so it is refused; so is no queue."""
    with pytest.raises(InvalidInput, match="lease_time"):
        Settings(lease_time=1e-6)
    for length in (0, 1.5):
        with pytest.raises(InvalidInput, match="queue_length"):
            Settings(queue_length=length)  # type: ignore[arg-type]  # what is tested
    assert Settings(retention=0, stop_patience=0).retention == 0


def test_a_folder_in_a_new_data_folder_is_private(tmp_path: Path) -> None:
    """So is the data folder itself, whatever is made in it first."""
    make_private_folder(tmp_path / "data" / "servers")
    for folder in (tmp_path / "data", tmp_path / "data" / "servers"):
        assert folder.stat().st_mode & 0o777 == 0o700
