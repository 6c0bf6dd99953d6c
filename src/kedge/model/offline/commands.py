"""What the offline model can be told to do, as values; how it is written is in `reading`."""

from dataclasses import dataclass
from typing import TypeAlias

# Tools that it calls.


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file."""

    file: str
    content: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace a text in a file, everywhere if `all`."""

    file: str
    old: str
    new: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a file."""

    file: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read a file or a directory."""

    file: str
    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Bash:
    """Run a command."""

    command: str


@dataclass(frozen=True, slots=True)
class Glob:
    """Find files by name."""

    pattern: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Grep:
    """Find text in files."""

    pattern: str
    path: str | None = None
    include: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply a patch."""

    text: str


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One line of the todo list."""

    content: str
    status: str = "pending"
    priority: str = "medium"


@dataclass(frozen=True, slots=True)
class Todo:
    """Set the todo list."""

    items: tuple[TodoItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to choose."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Put a question to the person."""

    question: str
    options: tuple[Option, ...]
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Call any tool with any text as its arguments, JSON or not."""

    name: str
    raw: str = "{}"


# What it does by itself.


@dataclass(frozen=True, slots=True)
class Say:
    """Say a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Think a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Show:
    """Say what the last calls gave back."""


@dataclass(frozen=True, slots=True)
class Help:
    """Say which commands there are."""


@dataclass(frozen=True, slots=True)
class Huge:
    """Say this many characters."""

    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Give this as the reason why the step ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail in the way that `kind` names, at the first `times` attempts or at all of them."""

    kind: str
    times: int | None = None
    after: int | None = None
    """Milliseconds that the provider would ask to wait."""


Offered: TypeAlias = Write | Edit | Delete | Read | Bash | Glob | Grep | Patch | Todo | Ask
Calling: TypeAlias = Offered | Call
Speaking: TypeAlias = Say | Think | Show | Help | Huge
Command: TypeAlias = Calling | Speaking | Wait | Finish | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """In how many pieces something comes, and the pause between two of them."""

    pieces: int
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command and how it is to be done."""

    command: Command
    joined: bool = False
    """It belongs to the same step as the line before."""
    tolerant: bool = False
    """The script goes on though a call of its step fails."""
    times: int | None = 1
    """In how many steps it is done; None is forever."""
    pace: Pace | None = None
