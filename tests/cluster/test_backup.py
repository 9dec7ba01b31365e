"""Backups of the cluster, made by the container that docs/operations.md has for it, while everything serves."""

import re

from tests.cluster.failing_cluster import FailingCluster

_ONCE = ("run", "--rm", "--no-TTY", "--no-deps", "backup")


def test_a_running_cluster_is_saved_and_the_backup_verifies(failing: FailingCluster) -> None:
    """A backup of both databases and all models is made beside the services, and every byte of it is right."""
    before = {one.ident for one in failing.containers()}
    made = failing.compose(*_ONCE, "create")
    backup = re.search(r"^backup +(\S+)$", made, re.MULTILINE)
    assert backup, made
    assert re.search(r"^stores +postgresql$", made, re.MULTILINE), made
    read = failing.compose(*_ONCE, "verify", backup[1])
    print(made, read)
    assert {one.ident for one in failing.containers()} == before
