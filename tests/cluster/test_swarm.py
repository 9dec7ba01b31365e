"""The cluster as a stack of Swarm: it starts in no order, and roll-outs lose no call. Behind a flag: it takes minutes.

INFERPLANE_TEST_SWARM=1 makes this machine's engine a Swarm of one machine meanwhile; images must be built.
"""

import os
from collections.abc import Iterator

import pytest

from tests.cluster import swarm
from tests.cluster.swarm import ROLLED, Stack

pytestmark = [
    pytest.mark.skipif(
        "INFERPLANE_TEST_SWARM" not in os.environ, reason="INFERPLANE_TEST_SWARM is not set"
    ),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with swarm.running() as started:
        started.wait(started.is_whole, "all services run, all jobs are done")
        yield started


def rolled(stack: Stack, service: str, tag: str) -> bool:
    image = f"inferplane/{service}:{tag}"
    return stack.image(service) == image and stack.update_state(service) == "completed"


def test_it_starts_in_no_order(stack: Stack) -> None:
    """Everything is started at once; what needed something that was not there yet is well in the end, and serves."""
    with stack.load() as report:
        stack.wait(lambda: all(stack.containers(one) for one in ROLLED), "all run")
    print(report)
    assert report["ends"] == {"OK": report["sent"]}


@pytest.mark.parametrize("service", ROLLED)
def test_a_roll_out_loses_no_call(stack: Stack, service: str) -> None:
    """A service is brought to another image under load: every call is answered."""
    before = set(stack.containers(service))
    swarm.docker("tag", f"inferplane/{service}:local", f"inferplane/{service}:next")
    with stack.load() as report:
        swarm.docker(
            *("service", "update", "--detach", "--image", f"inferplane/{service}:next"),
            f"{swarm.NAME}_{service}",
        )
        stack.wait(lambda: rolled(stack, service, "next"), f"{service} is rolled out")
    print(service, report)
    assert not before & set(stack.containers(service))
    assert report["ends"] == {"OK": report["sent"]}


def test_a_release_that_does_not_start_is_taken_back(stack: Stack) -> None:
    """A release that ends at once takes nobody's place, and the last one is what is to run again."""
    before = set(stack.containers("worker"))
    swarm.docker("tag", "inferplane/cli:local", "inferplane/worker:bad")
    with stack.load() as report:
        swarm.docker(
            *("service", "update", "--detach", "--image", "inferplane/worker:bad"),
            f"{swarm.NAME}_worker",
        )
        stack.wait(
            lambda: stack.update_state("worker") == "rollback_completed", "the roll-out is undone"
        )
    print(report)
    assert before <= set(stack.containers("worker"))
    assert report["ends"] == {"OK": report["sent"]}
