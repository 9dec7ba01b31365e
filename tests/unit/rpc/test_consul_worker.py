"""A worker as Consul holds it."""

from typing import Any

import pytest
from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import placement_pb2

from services.rpc import consul_worker
from services.rpc.consul_meta import MOST_KEY_BYTES, MOST_PAIRS, MOST_VALUE_BYTES
from services.rpc.consul_worker import read_entries


def worker(versions: int = 1, reason: str = "") -> worker_pb2.Worker:
    return worker_pb2.Worker(
        name="workers/w1",
        pool="default",
        zone="züri",
        address="10.0.0.1:8085",
        in_flight=3,
        versions=[
            worker_pb2.WorkerVersion(
                version=f"models/model-{number * 7919 % 99991}/versions/{number}",
                state=placement_pb2.LOAD_STATE_READY,
                reason=reason and f"{reason} {number * 104729}",
                counters=worker_pb2.VersionCounters(succeeded=5),
                execution=placement_pb2.VersionExecution(max_batch_size=number * 7919 % 9973),
                engine=worker_pb2.EngineLoad(running=1),
            )
            for number in range(versions)
        ],
    )


def service(meta: dict[str, str], *checks: tuple[str, str, str]) -> dict[str, Any]:
    """As in an answer of health/service; checks are (id, service's id, status)."""
    return {
        "Node": {"Node": "n1"},
        "Service": {"ID": "inferplane-w1", "Meta": meta},
        "Checks": [
            {"CheckID": check, "ServiceID": of, "Status": status} for check, of, status in checks
        ],
    }


def told(one: worker_pb2.Worker) -> dict[str, str]:
    return consul_worker.metadata(consul_worker.told(one), 4, 5.0)


def test_what_changes_at_each_beat_is_not_told() -> None:
    """Counters, the engine's load and calls in flight make no difference to what is written."""
    busy = worker()
    busy.in_flight = 99
    busy.versions[0].counters.succeeded = 10**6
    busy.versions[0].engine.running = 32
    assert told(busy) == told(worker())
    busy.versions[0].state = placement_pb2.LOAD_STATE_DRAINING
    assert told(busy) != told(worker())


def test_read_back() -> None:
    """What routing needs is read back; pool and zone stand in plain too, for people."""
    meta = told(worker())
    assert (meta["pool"], meta["zone"], meta["lease"]) == ("default", "züri", "5")
    (entry,) = read_entries([service(meta, ("service:x", "x", "passing"))])
    assert entry.worker == consul_worker.told(worker())
    assert (entry.sequence, entry.lease, entry.patience) == (4, 5.0, 2.0)


@pytest.mark.parametrize(
    ("versions", "all_are_told", "executions_are_told"),
    [
        pytest.param(500, True, True, id="hundreds fit with all that is known of them"),
        pytest.param(2500, True, False, id="thousands fit by their states"),
        pytest.param(9000, False, False, id="of more the first are told"),
    ],
)
def test_what_does_not_fit_is_said(
    versions: int, all_are_told: bool, executions_are_told: bool
) -> None:
    """Metadata keeps to Consul's limits; what is left out is named, and nobody is told half a version."""
    full = consul_worker.told(worker(versions))
    meta = told(full)
    assert len(meta) <= MOST_PAIRS
    assert all(len(key.encode()) <= MOST_KEY_BYTES for key in meta)
    assert all(len(value.encode()) <= MOST_VALUE_BYTES for value in meta.values())
    (entry,) = read_entries([service(meta)])
    kept = entry.worker.versions
    assert [v.version for v in kept] == [v.version for v in full.versions[: len(kept)]]
    assert {v.state for v in kept} == {placement_pb2.LOAD_STATE_READY}
    assert (len(kept) == versions) is all_are_told
    assert all(v.HasField("execution") for v in kept) is executions_are_told
    assert bool(entry.worker.untold) is not executions_are_told
    if not all_are_told:
        assert len(kept) > 2000
        assert entry.worker.untold.startswith(f"{versions - len(kept)} of {versions} versions")


@pytest.mark.parametrize(
    ("checks", "renews", "node_is_well", "draining"),
    [
        pytest.param([], True, True, False, id="no check is no bad check"),
        pytest.param([("service:x", "x", "passing")], True, True, False, id="renewed"),
        pytest.param([("service:x", "x", "critical")], False, True, False, id="not renewed"),
        pytest.param([("service:x", "x", "warning")], False, True, False, id="a warning"),
        pytest.param([("serfHealth", "", "critical")], True, False, False, id="its node is away"),
        pytest.param(
            [("_service_maintenance:x", "x", "critical")],
            *(True, True, True),
            id="an operator took the service out",
        ),
        pytest.param(
            [("_node_maintenance", "", "critical")],
            *(True, True, True),
            id="an operator took the node out",
        ),
    ],
)
def test_checks(
    checks: list[tuple[str, str, str]], renews: bool, node_is_well: bool, draining: bool
) -> None:
    """The worker's own check, its node's, and maintenance, which is a drain."""
    (entry,) = read_entries([service(told(worker()), *checks)])
    assert (entry.renews, entry.node_is_well, entry.worker.draining) == (
        renews,
        node_is_well,
        draining,
    )


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(None, id="nothing"),
        pytest.param({}, id="empty"),
        pytest.param("text", id="a text"),
        pytest.param(service({}), id="no metadata of ours"),
        pytest.param({"Service": {"Meta": None}, "Checks": None}, id="nulls"),
        pytest.param(service(told(worker_pb2.Worker())), id="a worker without a name"),
    ],
)
def test_what_is_no_worker_is_left_out(odd: Any) -> None:
    """A foreign service under our name hides no worker."""
    read = read_entries([odd, service(told(worker()))])
    assert [entry.worker.name for entry in read] == ["workers/w1"]
    assert read_entries(odd) == []


@pytest.mark.parametrize(
    ("text", "lease"),
    [("3", 3.0), ("0", 1.0), ("1e9", 60.0), ("nan", 5.0), ("inf", 5.0), ("-1", 1.0), ("x", 5.0)],
)
def test_lease_is_bounded(text: str, lease: float) -> None:
    """Nobody's metadata makes others wait for ever."""
    (entry,) = read_entries([service({**told(worker()), "lease": text})])
    assert entry.lease == lease
