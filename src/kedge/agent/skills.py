"""Skills: instructions for a kind of work, which models read when they need them."""

import os
from collections.abc import Iterable, Iterator, Sequence

from kedge.config.values import Config
from kedge.domain.commands import Skill
from kedge.domain.permissions import Rulebook
from kedge.domain.text import printable

_MOST_FILES = 10
_MOST_NAMES = 1000
"""How many names of a skill's folder are looked at."""
_DEEPEST = 4


def skills_of(config: Config) -> Sequence[Skill]:
    """The skills of a configuration, by name."""
    return [
        Skill(
            name=name,
            description=found.description,
            location=found.location,
            content=found.content,
        )
        for name, found in sorted(config.skill.items())
    ]


def offered(skills: Iterable[Skill], rulebook: Rulebook) -> list[Skill]:
    """The skills that a model may read, as far as rules say before it asks."""
    return [skill for skill in skills if rulebook.decide("skill", skill.name).action != "deny"]


def system_block(skills: Sequence[Skill]) -> str:
    """The part of the system prompt that names skills; empty if none has a description."""
    told = [skill for skill in skills if skill.description]
    if not told:
        return ""
    lines = [
        "# Skills",
        "Instructions for certain kinds of work. When one fits the task, read it with the tool"
        " `skill` before you begin.",
        "<available_skills>",
    ]
    for skill in told:
        about = " ".join((skill.description or "").split())
        lines.append(f"- {skill.name}: {printable(about)} ({printable(skill.location)})")
    return "\n".join([*lines, "</available_skills>"])


def base_folder(skill: Skill) -> str:
    """Where the paths in a skill start."""
    folder = printable(os.path.dirname(skill.location))
    return f"The folder of this skill is {folder}: relative paths in it start there."


def files_of(skill: Skill) -> list[str]:
    """Some other files of a skill's folder. It looks at the disk."""
    found = sorted(_below(os.path.dirname(skill.location), _DEEPEST, [_MOST_NAMES]))
    return [path for path in found if path != skill.location][:_MOST_FILES]


def _below(folder: str, depth: int, left: list[int]) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                if entry.is_file(follow_symlinks=False):
                    yield entry.path
                elif depth and entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path, depth - 1, left)
    except OSError:
        # A folder that cannot be listed has nothing to name.
        return
