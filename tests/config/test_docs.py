"""The page on configuration names every key, and its examples are ones."""

import re
from pathlib import Path

import msgspec
import pytest

from kedge.config.values import (
    AgentConfig,
    Config,
    CostConfig,
    LimitConfig,
    ModelConfig,
    ProviderConfig,
    Section,
)
from kedge.engine.trust import Trusting
from tests.config.scene import Scene, everybody
from tests.support import markdown

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
MADE = {"restrictions", "notices", "files", "raw", "key_variables", "untrusted", "problems"}
"""Fields that are not written in files; they are named as what they are in Python."""


@pytest.mark.parametrize(
    "kind", [Config, ProviderConfig, ModelConfig, AgentConfig, CostConfig, LimitConfig]
)
def test_every_key_is_named(kind: type[Section]) -> None:
    """What can be configured stands on the page."""
    code = markdown.code(PAGE)
    names = {field.name for field in msgspec.structs.fields(kind)} - MADE
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)] == []


def test_what_is_made_is_named() -> None:
    """What a program reads besides keys stands on the page too."""
    code = markdown.code(PAGE)
    assert [name for name in sorted(MADE) if f"config.{name}" not in code] == []
    methods = [name for name in vars(Trusting) if not name.startswith("_")]
    assert [name for name in methods if f"rusting.{name}" not in code] == []


def test_the_examples_are_configurations(scene: Scene) -> None:
    """Each is read without a notice, in a project that is trusted."""
    blocks = markdown.blocks(PAGE, "jsonc")
    assert len(blocks) == 5
    for block in blocks:
        scene.write(block.content)
        config = scene.load(everybody)
        assert config.notices == ()
        assert config.raw


def test_the_order_of_the_page_is_the_order(scene: Scene) -> None:
    """The files that the page lists are those that count, in that order."""
    rows = re.findall(r"^\| [123] \|(.*)\|.*\|$", PAGE.read_text(), re.MULTILINE)
    names = re.findall(r"`([\w./]+\.jsonc?)`", " ".join(rows))
    assert len(names) == 11
    for name in names[5:]:
        scene.write({}, name)
    for name in names[:5]:
        scene.own({}, name)
    files = scene.load(everybody).files
    expected = [str(scene.home / ".config" / name) for name in names[:5]]
    assert list(files) == expected + [str(scene.project / name) for name in names[5:]]
