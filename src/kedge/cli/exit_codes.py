"""The exit codes of all commands; docs/cli.md describes them."""

DONE = 0
FAILED = 1
"""It could not be done; standard error says why, and what to do."""
USAGE = 2
"""The command line was not understood."""
INCOMPLETE = 3
"""It was done, but not all of it: some files were left alone, or something was refused or found to
be wrong."""
REFUSED = 4
"""A command of an agent must not do this: a person has to."""
DECLINED = 5
"""It needs a yes, and got none."""
INTERRUPTED = 130
CLOSED_PIPE = 141
"""The reader of the output has gone."""
