"""`python -m kedge` is the command `kedge`."""

from kedge.cli.main import run

if __name__ == "__main__":
    run()
