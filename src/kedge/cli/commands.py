"""The commands of `kedge`: their names, groups and one line of help each.

`kedge --help` is made of this table alone; the module of a command is imported when it runs.
"""


class Command:
    """One command; its module has `ABOUT`, `add(parser)` and `run(options)`."""

    # Neither a dataclass nor a named tuple: importing those takes longer than all of `--help`.
    __slots__ = ("group", "help", "module", "name")

    def __init__(self, name: str, group: str, help: str, module: str = "") -> None:
        self.name = name
        self.group = group
        self.help = help
        self.module = module or name
        """The module in `kedge.cli`."""


_WORK, _LOOK, _UNDO, _KEEP, _SET = (
    "work with an agent",
    "look",
    "undo",
    "manage sessions",
    "set up",
)

COMMANDS = (
    Command("run", _WORK, "give an agent a prompt, and watch it work"),
    Command("serve", _WORK, "serve sessions over HTTP, for OpenCode's clients and others"),
    Command("sessions", _LOOK, "list and search sessions"),
    Command("undo", _UNDO, "take back the last turn, its messages and its files"),
    Command("redo", _UNDO, "bring back the turn that was undone last"),
    Command("config", _SET, "print the merged configuration of a folder"),
    Command("trust", _SET, "trust the configuration files of a project"),
)

BY_NAME = {command.name: command for command in COMMANDS}
