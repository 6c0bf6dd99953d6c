"""The commands of `kedge`: their names, groups and one line of help each.

`kedge --help` is made of this table alone; the module of a command is imported when it runs.
"""


class CommandEntry:
    """One command; its module has `ABOUT`, `add(parser)` and `run(options)`."""

    # Neither a dataclass nor a named tuple: importing those takes longer than all of `--help`.
    __slots__ = ("group", "help", "module", "name")

    def __init__(self, name: str, group: str, help: str, module: str = "") -> None:
        self.name = name
        self.group = group
        self.help = help
        self.module = module or name
        """The module in `kedge.cli`."""


_WORK, _LOOK, _UNDO, _KEEP, _SET, _OPERATE = (
    "work with an agent",
    "look",
    "undo",
    "manage sessions",
    "set up",
    "look after the data",
)

COMMANDS = (
    CommandEntry("run", _WORK, "give an agent a prompt, and watch it work"),
    CommandEntry("answer", _WORK, "answer what agents ask"),
    CommandEntry("abort", _WORK, "stop what runs in a session"),
    CommandEntry("serve", _WORK, "serve sessions over HTTP, for OpenCode's clients and others"),
    CommandEntry("attach", _WORK, "open OpenCode's terminal UI here"),
    CommandEntry("sessions", _LOOK, "list and search sessions"),
    CommandEntry("show", _LOOK, "show one session and its last turn"),
    CommandEntry("log", _LOOK, "the turns of a session, or --all that was done to files"),
    CommandEntry("diff", _LOOK, "what a turn or a session changed"),
    CommandEntry("cat", _LOOK, "a file as it was at a turn"),
    CommandEntry("blame", _LOOK, "who wrote each line of a file"),
    CommandEntry("todo", _LOOK, "the todo list of a session"),
    CommandEntry("stats", _LOOK, "tokens and cost by day, model or project"),
    CommandEntry("undo", _UNDO, "take back the last turn, its messages and its files"),
    CommandEntry("redo", _UNDO, "bring back the turn that was undone last"),
    CommandEntry("revert", _UNDO, "take a session back to before any turn"),
    CommandEntry("unrevert", _UNDO, "bring back everything that is undone"),
    CommandEntry("tails", _UNDO, "what prompts after an undo removed"),
    CommandEntry("fork", _KEEP, "copy a session, whole or up to a turn"),
    CommandEntry("archive", _KEEP, "put sessions out of the way, or back"),
    CommandEntry("delete", _KEEP, "delete sessions; they can be restored for seven days"),
    CommandEntry("restore", _KEEP, "bring back a deleted session, or a tail"),
    CommandEntry("models", _SET, "the models that can be asked here"),
    CommandEntry("agents", _SET, "the agents that can be asked here"),
    CommandEntry("permissions", _SET, "what was allowed with `always`, and revoking it"),
    CommandEntry("config", _SET, "print the merged configuration of a folder"),
    CommandEntry("trust", _SET, "trust the configuration files of a project"),
    CommandEntry("completion", _SET, "print the script for completion in bash"),
    CommandEntry("doctor", _OPERATE, "find what is wrong, and repair it"),
    CommandEntry("gc", _OPERATE, "show what takes space, and free it"),
    CommandEntry("backup", _OPERATE, "make a backup, or restore one"),
)

OVERVIEW = CommandEntry("", "", "what runs and what to type next", "overview")
"""`kedge` without a command."""

BY_NAME = {command.name: command for command in COMMANDS}
