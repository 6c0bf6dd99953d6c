"""The projects of a database, and their user settings."""

from functools import partial

from kedge.domain import wire
from kedge.domain.clock import Clock
from kedge.domain.errors import ProjectNotFound, TooLarge
from kedge.domain.projects import Project, ProjectCommands, ProjectIcon
from kedge.engine.validation import check_text, check_value
from kedge.store.port import Store
from kedge.store.queries.projects import all_projects, find_project, update_project

_PAGE = 200
_LARGEST = 256 * 1024
"""Characters of a project's settings; a small picture fits into the URL of an icon."""


class Projects:
    """Every project that kedge ever worked in."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self) -> list[Project]:
        """All projects, by id."""
        found: list[Project] = []
        last = ""
        while page := await self._store.read(partial(all_projects, last, _PAGE)):
            found += page
            last = page[-1].id
        return found

    async def get(self, id: str) -> Project:
        """A project by any id that it ever had."""
        found = await self._store.read(partial(find_project, _checked(id)))
        if found is None:
            raise ProjectNotFound(id)
        return found

    async def update(
        self,
        id: str,
        *,
        name: str | None = None,
        icon: ProjectIcon | None = None,
        commands: ProjectCommands | None = None,
    ) -> Project:
        """Change a project's name, icon and start command; None leaves a field as it is."""
        name = None if name is None else check_text(name, "name")
        icon = None if icon is None else check_value(icon, ProjectIcon)
        commands = None if commands is None else check_value(commands, ProjectCommands)
        if len(wire.encode([name, icon, commands])) > _LARGEST:
            raise TooLarge(f"the settings of a project may have at most {_LARGEST} characters")
        script = partial(
            update_project,
            _checked(id),
            self._clock.now(),
            name=name,
            icon=icon,
            commands=commands,
        )
        changed = await self._store.write(script)
        if changed is None:
            raise ProjectNotFound(id)
        return changed

    async def set_initialized(self, id: str) -> Project:
        """Record that the instructions for agents in a project were written just now."""
        now = self._clock.now()
        script = partial(update_project, _checked(id), now, initialized=now)
        changed = await self._store.write(script)
        if changed is None:
            raise ProjectNotFound(id)
        return changed


def _checked(id: str) -> str:
    # PostgreSQL has no text with NUL in it, so no project has such an id.
    if "\0" in check_text(id, "id"):
        raise ProjectNotFound(id)
    return check_text(id, "id")
