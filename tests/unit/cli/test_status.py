"""The picture of `status`: what is shown of trouble, shares, rates and workers; and whether a change is routed."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from inferplane.discovery.v1 import worker_pb2
from inferplane.metering.v1 import usage_report_service_pb2
from inferplane.registry.v1 import endpoint_pb2, placement_pb2
from inferplane.router.v1 import router_service_pb2
from rich.console import Console

from services.cli.adapters.execution_view import failures_of, placement_fields
from services.cli.adapters.routed import is_routed
from services.cli.adapters.status_reader import Status, router_problems
from services.cli.adapters.status_view import age, render
from services.cli.adapters.tables import size
from services.cli.adapters.terminal import plain_table
from services.cli.domain.rates import Rate

_V1, _V2 = "models/m/versions/1", "models/m/versions/2"


def _text(status: Status) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(render(status))
    return stream.getvalue()


def _row(text: str, start: str) -> list[str]:
    """The words of the first line that begins so."""
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def _router(*, in_sync: bool = True) -> router_service_pb2.GetStatusResponse:
    router = router_service_pb2.GetStatusResponse(
        snapshot_version="s", registry_connected=True, discovery_connected=True
    )
    envoy = router.envoys.add(node_id="edge-1", in_sync=in_sync)
    if not in_sync:
        envoy.nack_count = 3
        envoy.last_nack.type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
        envoy.last_nack.message = "no such filter"
    endpoint = router.endpoints.add(name="endpoints/e", mirror_version=_V2)
    endpoint.targets.add(
        target=_V1, version=_V1, declared_share=0.9, effective_share=1, ready_workers=2
    )
    endpoint.targets.add(target="models/m/aliases/next", version=_V2, declared_share=0.1)
    return router


def _status(**changes: object) -> Status:
    worker = worker_pb2.Worker(name="workers/w1", pool="default", address="unix:/x", in_flight=3)
    worker.versions.add(version=_V1, state=placement_pb2.LOAD_STATE_READY)
    placement = placement_pb2.Placement(name="pools/default/placements/m@2", version=_V2)
    placement.status.live_workers = 1
    placement.status.workers.add(
        worker="workers/w1", state=placement_pb2.LOAD_STATE_FAILED, reason="unknown operator"
    )
    values: dict[str, object] = {
        "router": _router(),
        "placements": [placement],
        "workers": [worker],
        "rates": {_V1: Rate(12.34, 0.5, 1.25)},
        "problems": [],
        "mirror_percents": {"endpoints/e": 12.5},
    }
    return Status(**{**values, **changes})  # type: ignore[arg-type]  # fields by name, see above


def test_endpoints_with_shares_and_rates() -> None:
    """Each target has declared and present share, ready workers, and its version's rates."""
    text = _text(_status())
    assert _row(text, "e ") == [
        "e",
        "m@1",
        "m@1",
        "90",
        "%",
        "100",
        "%",
        "2",
        "12.3",
        "0.5",
        "1.25",
        "ms",
    ]
    assert _row(text, "   mirror") == ["mirror", "m@2", "12.5", "%"]
    assert _row(text, "   m@next") == ["m@next", "m@2", "10", "%", "0", "%", "0", "–", "–", "–"]


def test_failures_and_refusals_are_shown() -> None:
    """Why a version failed, and what Envoy refused, in their own words."""
    text = _text(_status(router=_router(in_sync=False), problems=["workers can't be read: x"]))
    assert _row(text, "m@2") == [
        *("m@2", "default", "failed", "0/1", "–", "–"),
        *("unknown", "operator"),
    ]
    assert "Envoy edge-1 not in sync, 3 refused" in text
    assert "(Cluster, " in text
    assert ": no such filter" in text
    assert text.startswith("workers can't be read: x")


def test_the_same_failure_is_told_once() -> None:
    """Of two workers one has failed and one tries again after the same failure; other reasons stay."""
    status = placement_pb2.PlacementStatus(live_workers=2)
    status.workers.add(state=placement_pb2.LOAD_STATE_FAILED, reason="no such operator")
    again = status.workers.add(state=placement_pb2.LOAD_STATE_LOADING)
    again.reason = "last attempt: no such operator"
    assert failures_of(status) == ["no such operator"]
    again.reason = "last attempt: no room"
    assert failures_of(status) == ["last attempt: no room", "no such operator"]


def test_how_versions_are_run_is_shown() -> None:
    """Batch, instances and threads; why it is not batched and what is not as declared."""
    placement = placement_pb2.Placement(name="pools/default/placements/m@2", version=_V2)
    for name, batch, reason in (("w1", 32, ""), ("w2", 1, "row 1 is 3 alone, 4 together")):
        held = placement.status.workers.add(
            worker=f"workers/{name}", state=placement_pb2.LOAD_STATE_READY
        )
        held.execution.max_batch_size = batch
        held.execution.batching_off_reason = reason
        held.execution.instances, held.execution.intra_op_threads = 2, 1
        held.execution.warnings.append("output 'y' has shape [2]")
    placement.status.ready_workers = placement.status.live_workers = 2
    text = _text(_status(placements=[placement]))
    row = " ".join(_row(text, "m@2"))
    assert row == (
        "m@2 default ready 2/2 32, off 2×1"
        " not batched: row 1 is 3 alone, 4 together; output 'y' has shape [2]"
    )
    (line,) = placement_fields([placement]).values()
    assert line.split("; ") == [
        "ready (2/2), batch 32, off, instances×threads 2×1",
        "not batched: row 1 is 3 alone, 4 together",
        "output 'y' has shape [2]",
    ]


def test_engines_of_language_models() -> None:
    """How many texts are written and wait, and how full the cache is; where there are none, no table is there."""
    worker = worker_pb2.Worker(name="workers/w1", pool="default")
    held = worker.versions.add(version="models/smol/versions/1")
    assert "Engines" not in _text(_status(workers=[worker]))
    held.engine.MergeFrom(
        worker_pb2.EngineLoad(running=3, waiting=1, blocks=200, used_blocks=50, cached_blocks=11)
    )
    text = _text(_status(workers=[worker]))
    assert _row(text, "smol@1 ") == ["smol@1", "w1", "3", "1", "25", "%", "6", "%"]


def test_lost_connections_are_shown() -> None:
    """A router that has lost its sources says so; what was not published too."""
    router = _router()
    router.registry_connected = False
    router.refused_snapshot = "cluster x is named and absent"
    text = _text(_status(router=router))
    assert "the router has lost the registry" in text
    assert "the router does not publish the newest topology: cluster x is named and absent" in text


def test_several_routers_are_shown_by_name() -> None:
    """Envoys say whose they are; routers that don't answer, or not the same, are problems."""
    router = _router()
    router.envoys[0].router = "10.0.0.1:1"
    router.routers.add(address="10.0.0.1:1", snapshot_version="s", registry_connected=True)
    router.routers.add(address="10.0.0.2:1", snapshot_version="t", discovery_connected=True)
    router.routers.add(address="10.0.0.3:1", problem="no answer within 1 s")
    silent, unlike = router_problems(router)
    assert silent == "router 10.0.0.3:1 does not answer: no answer within 1 s"
    assert unlike.startswith("the routers don't publish the same (10.0.0.1:1 s, 10.0.0.2:1 t)")
    text = _text(_status(router=router))
    assert "Envoy edge-1 in sync, told by router 10.0.0.1:1" in text
    assert "router 10.0.0.1:1 has lost the discovery" in text
    assert "router 10.0.0.2:1 has lost the registry" in text
    assert "10.0.0.3:1 has lost" not in text


def test_a_lone_router_is_no_problem() -> None:
    """One that answers, by itself or among equals, is not worth a word."""
    router = _router()
    router.routers.add(address="10.0.0.1:1", snapshot_version="s")
    assert router_problems(router) == []
    router.routers.add(address="10.0.0.2:1", snapshot_version="s")
    assert router_problems(router) == []


def test_empty_mesh_says_what_to_do() -> None:
    """Nothing to show is a hint."""
    text = _text(Status(router_service_pb2.GetStatusResponse(), [], [], {}, [], {}))
    assert "inferplane deploy MODEL@VERSION" in text
    assert "no version is placed" in text
    assert "inferplane worker runs one" in text


def test_worker_row() -> None:
    """A draining worker is told apart."""
    worker = worker_pb2.Worker(name="workers/w1", pool="gpu", draining=True, in_flight=2)
    worker.expire_time.GetCurrentTime()
    assert _row(_text(_status(workers=[worker])), "w1")[:4] == ["w1", "gpu", "draining", "2"]


def test_where_a_worker_is() -> None:
    """A worker that says where it is has its zone beside its pool."""
    worker = worker_pb2.Worker(name="workers/w1", pool="gpu", zone="north")
    assert "gpu, zone north" in _text(_status(workers=[worker]))


def test_what_a_worker_does_not_tell() -> None:
    """A worker that is too large for discovery is named, with what is missing."""
    worker = worker_pb2.Worker(name="workers/w1", pool="gpu", untold="9 of 99 versions: too many")
    assert "w1 does not tell 9 of 99 versions: too many" in _text(_status(workers=[worker]))


def test_calls_in_flight_that_nobody_tells() -> None:
    """Where discovery doesn't say when leases end it doesn't say what changes at each beat either: no zero is shown."""
    worker = worker_pb2.Worker(name="workers/w1", pool="gpu")
    assert _row(_text(_status(workers=[worker])), "w1")[:4] == ["w1", "gpu", "live", "–"]


@pytest.mark.parametrize(
    ("lived", "shown"),
    [(5, "5s"), (65, "1m5s"), (3700, "1h1m"), (90000, "1d1h"), (-3, "0s")],
)
def test_age(lived: int, shown: str) -> None:
    """The two largest units; a clock that is behind shows no negative age."""
    now = datetime.now(UTC)
    worker = worker_pb2.Worker()
    worker.start_time.FromDatetime(now - timedelta(seconds=lived))
    assert age(worker, now) == shown
    assert age(worker_pb2.Worker(), now) == ""


def test_json_has_all_parts() -> None:
    """Programs get endpoints, placements, workers, the router's view, rates and problems."""
    value = _status().as_dict()
    assert list(value) == [
        "endpoints", "placements", "workers", "router", "rates", "usage_today", "problems",
    ]  # fmt: skip
    assert value["endpoints"][0]["targets"][0]["declared_share"] == 0.9
    assert value["rates"][_V1] == {
        "calls_per_second": 12.34,
        "errors_per_second": 0.5,
        "mean_ms": 1.25,
    }
    assert "endpoints" not in value["router"]


@pytest.mark.parametrize(
    ("weights", "in_sync", "routed"),
    [
        pytest.param({_V1: 9, "models/m/aliases/next": 1}, True, True, id="as published"),
        pytest.param({_V1: 90, "models/m/aliases/next": 10}, True, True, id="same shares"),
        pytest.param({_V1: 9, "models/m/aliases/next": 1}, False, False, id="not acknowledged"),
        pytest.param({_V1: 1, "models/m/aliases/next": 1}, True, False, id="other shares"),
        pytest.param({_V1: 9, _V2: 1}, True, False, id="other target"),
        pytest.param({_V1: 1}, True, False, id="one target less"),
    ],
)
def test_is_routed(weights: dict[str, float], in_sync: bool, routed: bool) -> None:
    """A change is routed once published with its shares and acknowledged by every Envoy."""
    targets = [endpoint_pb2.Target(target=name, weight=weight) for name, weight in weights.items()]
    endpoint = endpoint_pb2.Endpoint(name="endpoints/e", targets=targets)
    assert is_routed(_router(in_sync=in_sync), endpoint) is routed
    assert not is_routed(router_service_pb2.GetStatusResponse(), endpoint)


def test_plain_table_can_be_cut() -> None:
    """Columns are aligned, and no line ends with spaces."""
    rows = [["NAME", "SIZE"], ["a", "1 B"], ["longer", ""]]
    assert plain_table(rows) == ["NAME    SIZE", "a       1 B", "longer"]
    assert plain_table([]) == []


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**5, "5120.0 TiB")],
)
def test_size(count: int, shown: str) -> None:
    """Bytes with a fitting unit."""
    assert size(count) == shown


def test_usage_of_today_is_told() -> None:
    """How many requests, and what was charged, without zeros at its end."""
    sums = usage_report_service_pb2.UsageSums(requests=4636, charged="0.463340550000")
    today = usage_report_service_pb2.QueryUsageResponse(total=sums, currency="USD")
    assert "4,636 requests counted, charged 0.46334055 USD" in _text(_status(today=today))
    assert "requests counted" not in _text(_status())
