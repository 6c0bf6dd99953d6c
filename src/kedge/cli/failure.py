"""A failure of a command that is told in a sentence, with the exit code it leads to."""

from kedge.cli.exit_codes import FAILED


class CommandFailure(Exception):
    """The command cannot do what was asked for; `main` prints the message and exits."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
