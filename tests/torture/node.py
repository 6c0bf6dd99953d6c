"""One node of several: `kedge serve` as in a container of its own, with leases that expire soon."""

import sys

from kedge.engine import os_process
from kedge.engine.settings import Settings
from tests.support.timeouts import defaults_of


def main() -> None:
    """Serve; the arguments are a name, the time of a lease, and those of `kedge`."""
    name, lease_time, *arguments = sys.argv[1:]
    # In another namespace its process cannot be looked up: only the expiry of its leases tells.
    vars(os_process)["_namespace"] = lambda: name
    defaults_of(Settings)["lease_time"] = float(lease_time)
    sys.argv[1:] = arguments

    from kedge.cli.main import run

    run()


if __name__ == "__main__":
    main()
