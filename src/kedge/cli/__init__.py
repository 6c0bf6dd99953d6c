"""The command line: each command is a module with `add` and `run`."""
