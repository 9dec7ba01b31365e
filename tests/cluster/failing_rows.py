"""What is broken in the compose cluster, each as one act under the load that ends when all is as it was."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from benchmarks.failures.book import Promise
from benchmarks.failures.calls import TENSOR_ENDPOINT
from benchmarks.failures.failure import Act, Failure
from benchmarks.failures.traffic import Traffic
from tests.cluster.failing_cluster import SECONDS, Container, FailingCluster
from tests.e2e.mesh import eventually

_OWN = ("registry", "metering", "router", "worker", "edge")
_LOCK_SECONDS = 5
_LONG = 600  # calls: longer than a lease, and than who hangs is waited for
_LOCKED = {"metering": "usage_rows", "registry": "resources"}
_LAST = os.environ.get("INFERPLANE_TAG", "local")
_NEXT = f"{_LAST}-next"  # tag of the images that come with the upgrade

Row = Failure[FailingCluster]
Hold = Callable[[FailingCluster, Container], AbstractContextManager[None]]


def _crashed(*services: str) -> Act[FailingCluster]:
    return lambda cluster, _: cluster.crash(*(cluster.one(service) for service in services))


def _both_crashed(service: str) -> Act[FailingCluster]:
    return lambda cluster, _: cluster.crash(*cluster.containers(service))


def _held(service: str, hold: Hold, answers: int = _LONG) -> Act[FailingCluster]:
    """Something lasts while so many calls are answered."""

    def act(cluster: FailingCluster, traffic: Traffic) -> None:
        with hold(cluster, cluster.one(service)):
            traffic.answered(answers)
        cluster.well()

    return act


def _frozen(cluster: FailingCluster, victim: Container) -> AbstractContextManager[None]:
    return cluster.frozen(victim)


def _cut_off(cluster: FailingCluster, victim: Container) -> AbstractContextManager[None]:
    return cluster.cut_off(victim)


def _moved(cluster: FailingCluster, victim: Container) -> AbstractContextManager[None]:
    return cluster.moved(victim)


def _bad_network(cluster: FailingCluster, victim: Container) -> AbstractContextManager[None]:
    return cluster.bad_network(victim, delay=0.03, loss=0.02)


def can_change(cluster: FailingCluster) -> bool:
    """Whether the registry takes a change."""
    change = ("traffic", "set", TENSOR_ENDPOINT, "1=100")
    return not cluster.cli(*change, check=False).returncode


def _active_crashed(cluster: FailingCluster, _: Traffic) -> None:
    victim = cluster.active_registry()
    cluster.crash(victim)
    eventually(lambda: can_change(cluster), seconds=SECONDS, what="a change is taken")


def _active_cut_off(cluster: FailingCluster, traffic: Traffic) -> None:
    """The standby takes over as soon as Postgres has given up the connection of the other."""
    victim = cluster.active_registry()
    cluster.crashes[victim.name] += 1  # it ends, as another is active, and comes back as a standby
    with cluster.cut_off(victim):
        traffic.answered(_LONG)
        eventually(lambda: can_change(cluster), seconds=SECONDS, what="a change is taken")
        assert cluster.active_registry().name != victim.name
    cluster.well()


def _slow_postgres(cluster: FailingCluster, traffic: Traffic) -> None:
    """Nobody can read or write what is written most, for some seconds."""
    lock = "BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({}); COMMIT"
    locking = [
        threading.Thread(target=cluster.sql, args=(name, lock.format(table, _LOCK_SECONDS)))
        for name, table in _LOCKED.items()
    ]
    for one in locking:
        one.start()
    traffic.answered(_LONG)
    for one in locking:
        one.join()
    cluster.well()


def _scaled(cluster: FailingCluster, traffic: Traffic) -> None:
    """One more worker comes, takes calls, and goes."""
    count = len(cluster.containers("worker"))
    words = ("up", "--detach", "--no-deps", "--no-build", "--no-recreate")
    cluster.compose(*words, "--scale", f"worker={count + 1}", "worker")
    cluster.well()
    traffic.answered(_LONG)
    cluster.compose(*words, "--scale", f"worker={count}", "worker")
    cluster.well()


def _rolled(service: str) -> Act[FailingCluster]:
    return lambda cluster, _: cluster.roll(service, _NEXT)


def name_next() -> None:
    """The images under another tag: to compose these are others than those that run."""
    for service in _OWN:
        image = f"inferplane/{service}"
        subprocess.run(["docker", "tag", f"{image}:{_LAST}", f"{image}:{_NEXT}"], check=True)


ROWS: tuple[Row, ...] = (
    Failure("worker: kill -9", Promise.BEGUN_STREAMS, _crashed("worker")),
    Failure("worker: frozen", Promise.BEGUN_STREAMS, _held("worker", _frozen)),
    Failure("worker: cut off", Promise.BEGUN_STREAMS, _held("worker", _cut_off)),
    Failure(
        "worker: 30 ms and 2 % of packets lost", Promise.NOTHING, _held("worker", _bad_network)
    ),
    Failure("one worker more, one less", Promise.NOTHING, _scaled),
    Failure("router: kill -9", Promise.NOTHING, _crashed("router")),
    Failure("both routers: kill -9", Promise.NOTHING, _both_crashed("router")),
    Failure("registry: the active one: kill -9", Promise.NOTHING, _active_crashed),
    Failure("registry: the active one cut off", Promise.NOTHING, _active_cut_off),
    Failure("metering: kill -9", Promise.NOTHING, _crashed("metering")),
    Failure("metering: frozen", Promise.NOTHING, _held("metering", _frozen)),
    Failure(
        "metering: out of the network, back elsewhere", Promise.NOTHING, _held("metering", _moved)
    ),
    Failure("both metering: kill -9", Promise.NOTHING, _both_crashed("metering")),
    Failure("Consul: kill -9", Promise.NOTHING, _crashed("consul")),
    Failure("Postgres: kill -9", Promise.NOTHING, _crashed("postgres")),
    Failure(f"Postgres: tables locked for {_LOCK_SECONDS} s", Promise.NOTHING, _slow_postgres),
    Failure(
        "Postgres: 30 ms and 2 % of packets lost", Promise.NOTHING, _held("postgres", _bad_network)
    ),
    Failure("edge: kill -9", Promise.IN_FLIGHT, _crashed("edge")),
    Failure("upgrade of registry", Promise.NOTHING, _rolled("registry")),
    Failure("upgrade of metering", Promise.NOTHING, _rolled("metering")),
    Failure("upgrade of router", Promise.NOTHING, _rolled("router")),
    Failure("upgrade of worker", Promise.NOTHING, _rolled("worker")),
    Failure(
        "upgrade of edge", Promise.IN_FLIGHT, lambda cluster, _: cluster.replace("edge", _NEXT)
    ),
)
