"""The command line: each command is a module with `add` and `run`, imported when it is used."""
