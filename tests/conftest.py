"""How property tests run: the same examples each time, and none fails because a busy machine was slow.

`pytest --hypothesis-profile=search` tries other examples with each run; what it finds becomes a test of its own.
"""

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
