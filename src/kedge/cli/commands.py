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


_WORK, _LOOK, _UNDO, _KEEP, _SET, _OPERATE = (
    "work with an agent",
    "look",
    "undo",
    "manage sessions",
    "set up",
    "look after the data",
)

COMMANDS = (
    Command("run", _WORK, "give an agent a prompt, and watch it work"),
    Command("answer", _WORK, "answer what agents ask"),
    Command("abort", _WORK, "stop what runs in a session"),
    Command("serve", _WORK, "serve sessions over HTTP, for OpenCode's clients and others"),
    Command("attach", _WORK, "open OpenCode's terminal UI here"),
    Command("sessions", _LOOK, "list and search sessions"),
    Command("show", _LOOK, "show one session and its last turn"),
    Command("log", _LOOK, "the turns of a session, and what each changed"),
    Command("diff", _LOOK, "what a turn or a session changed"),
    Command("cat", _LOOK, "a file as it was at a turn"),
    Command("todo", _LOOK, "the todo list of a session"),
    Command("stats", _LOOK, "tokens and cost by day, model or project"),
    Command("undo", _UNDO, "take back the last turn, its messages and its files"),
    Command("redo", _UNDO, "bring back the turn that was undone last"),
    Command("revert", _UNDO, "take a session back to before any turn"),
    Command("unrevert", _UNDO, "bring back everything that is undone"),
    Command("tails", _UNDO, "what prompts after an undo removed"),
    Command("fork", _KEEP, "copy a session, whole or up to a turn"),
    Command("archive", _KEEP, "put sessions out of the way, or back"),
    Command("delete", _KEEP, "delete sessions; they can be restored for seven days"),
    Command("restore", _KEEP, "bring back a deleted session, or a tail"),
    Command("models", _SET, "the models that can be asked here"),
    Command("agents", _SET, "the agents that can be asked here"),
    Command("permissions", _SET, "what was allowed with `always`, and revoking it"),
    Command("config", _SET, "print the merged configuration of a folder"),
    Command("trust", _SET, "trust the configuration files of a project"),
    Command("completion", _SET, "print the script for completion in bash"),
    Command("doctor", _OPERATE, "find what is wrong, and repair it"),
    Command("gc", _OPERATE, "show what takes space, and free it"),
    Command("backup", _OPERATE, "make a backup, or restore one"),
)

OVERVIEW = Command("", "", "what runs and what to type next", "overview")
"""`kedge` without a command."""

BY_NAME = {command.name: command for command in COMMANDS}
