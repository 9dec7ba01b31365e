"""The cluster that runs while these tests do; `.ci/cluster` starts it, and names it in INFERPLANE_TEST_CLUSTER."""

import os
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.cluster.failing_cluster import FailingCluster

_NAME = os.environ.get("INFERPLANE_TEST_CLUSTER", "")
_ENGINE = "/var/run/docker.sock"
_KEY_FILE = "/var/lib/inferplane/admin.key"

# Elsewhere nobody is to start a cluster for them.
collect_ignore = [] if _NAME else ["test_backup.py", "test_compose.py", "test_failures.py"]


@pytest.fixture(scope="session")
def failing() -> Iterator[FailingCluster]:
    """The project of compose, as found in the environment (COMPOSE_FILE, INFERPLANE_EDGE_PORT)."""
    key = subprocess.run(
        ["docker", "compose", "-p", _NAME, "exec", "-T", "metering", "cat", _KEY_FILE],
        check=True,
        capture_output=True,
        text=True,
    )
    engine = httpx.HTTPTransport(uds=_ENGINE)
    with httpx.Client(transport=engine, base_url="http://engine", timeout=60.0) as client:
        yield FailingCluster(
            project=_NAME,
            address=f"127.0.0.1:{os.environ.get('INFERPLANE_EDGE_PORT', '8080')}",
            admin=key.stdout.strip(),
            engine=client,
            environment={"COMPOSE_PROJECT_NAME": _NAME},
        )
