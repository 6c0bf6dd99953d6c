"""What every test gets: a home of its own, no network, PostgreSQL on request; nothing of kedge."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import environment, network, postgres

pytest_plugins = ["pytester"]

# Before anything imports it, so that a failing check of a public suite shows what it compared.
pytest.register_assert_rewrite("kedge.testing")

# At import, because a conftest below this one may import kedge before any hook is called.
_OWNS_RUN = environment.isolate()

# How long an example takes says more of the machine's load than of the example.
_ANY_PACE = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: what only some run finds is for `make torture`, not for CI.
settings.register_profile("default", _ANY_PACE, max_examples=50, derandomize=True)
settings.register_profile("torture", _ANY_PACE, max_examples=2000, derandomize=False)
settings.load_profile("torture" if os.environ.get("KEDGE_TORTURE") else "default")


def pytest_unconfigure() -> None:
    """Leave nothing behind; only the process that began the run does it, after the others ended."""
    if _OWNS_RUN:
        postgres.stop_private_server(environment.run_folder())
        environment.dispose()


LONG = (
    "tests/torture/",
    "tests/server/test_schemathesis.py",
    "tests/clients/",
    "tests/test_install.py",
    "tests/test_bench.py",
)
"""Where single tests take from five to forty seconds."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL before `-m` looks at the marks, and put the long tests first.

    pytest-xdist hands out ever smaller batches in this order, so that the workers end together: a
    long test in one of the last batches would leave the others idle.
    """
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was skipped: a green run must not hide what it did not look at."""
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(str(report.longrepr[2]) for report in skipped)
    if not reasons:
        return
    terminalreporter.section("NOT TESTED", red=True, bold=True)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} skipped: {reason.removeprefix('Skipped: ')}", red=True)


@pytest.fixture(autouse=True)
def no_foreign_network() -> Iterator[None]:
    """Fail any test that tries to leave this machine, even if the code under test hid it."""
    with network.foreign_network_forbidden() as attempts:
        yield
    if attempts:
        pytest.fail(f"tests may reach only loopback, but this one tried: {', '.join(attempts)}")


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of a PostgreSQL server where databases may be made."""
    try:
        return postgres.server_url(environment.run_folder())
    except postgres.NoPostgresError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The URL of a database for all tests of this process that need no more than a schema."""
    with postgres.fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_database: str) -> str:
    """The URL of an empty schema, which takes a tenth of the time that a database does."""
    return postgres.fresh_schema(postgres_database)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database that is dropped after the test."""
    with postgres.fresh_database(postgres_server) as url:
        yield url
