"""The names that programs import stay what they are; `public_names.txt` lists them."""

from importlib import import_module
from pathlib import Path

LIST = Path(__file__).with_name("public_names.txt")
MODULES = (
    "kedge",
    "kedge.agent",
    "kedge.errors",
    "kedge.events",
    "kedge.maintenance",
    "kedge.snapshot",
    "kedge.values",
)


def public() -> set[str]:
    """Every name of every public module."""
    return {f"{module}.{name}" for module in MODULES for name in import_module(module).__all__}


def test_no_public_name_is_removed() -> None:
    """A program that runs today finds all names that it imports."""
    removed = sorted(set(LIST.read_text().split()) - public())
    assert removed == [], (
        f"programs that import {', '.join(removed)} would break: restore these names, or remove"
        f" them from {LIST.name} and tell users in the changelog"
    )


def test_every_new_public_name_is_listed() -> None:
    """A new public name is a promise, so it is added on purpose."""
    added = sorted(public() - set(LIST.read_text().split()))
    assert added == [], f"{', '.join(added)} became public: add to {LIST.name} what is meant to be"


def test_every_public_name_exists() -> None:
    """What `__all__` lists can be imported."""
    for name in public():
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name
