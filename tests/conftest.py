"""How property tests run: the same examples each time, and none fails because a busy machine was slow.

`pytest --hypothesis-profile=search` tries other examples with each run; what it finds becomes a test of its own.

And which tests are `extended`, that is not among those of `./inferplane test` without arguments: whatever needs a
Postgres or a Consul; others say so themselves.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.metering_postgres import metering_databases, metering_url
from tests.postgres import own_postgres, postgres_databases, postgres_url

__all__ = [  # fixtures for all tests
    "metering_databases",
    "metering_url",
    "own_postgres",
    "postgres_databases",
    "postgres_url",
]

_SLOW = (HealthCheck.too_slow,)

settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW
)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=_SLOW)
settings.load_profile("same")

_POSTGRES = {"postgres_databases", "own_postgres"}  # fixtures that start one
_SERVERS = {"postgres", "consul"}  # parameters of contract tests that do
_CONTRACTS = Path(__file__).with_name("contract")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `extended` what needs a server that embedded defaults do without."""
    for item in items:
        if isinstance(item, pytest.Function) and _needs_a_server(item):
            item.add_marker(pytest.mark.extended)


def _needs_a_server(test: pytest.Function) -> bool:
    if not _POSTGRES.isdisjoint(test.fixturenames):
        return True
    if not hasattr(test, "callspec") or not test.path.is_relative_to(_CONTRACTS):
        return False
    return any(
        value in _SERVERS for value in test.callspec.params.values() if isinstance(value, str)
    )
