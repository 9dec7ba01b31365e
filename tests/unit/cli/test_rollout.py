"""Rollouts and splits against a small mesh: order of events, failures, other people's changes."""

import asyncio

import pytest
from inferplane.discovery.v1 import worker_pb2
from inferplane.registry.v1 import endpoint_pb2, model_pb2, placement_pb2

from services.cli.adapters import routed
from services.cli.adapters.edge import Edge
from services.cli.adapters.rollout import Rollout, roll_out
from services.cli.adapters.traffic import set_split
from services.cli.domain.exit_code import UsageError
from services.cli.domain.reference import parse_weighted_reference
from services.rpc.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from services.rpc.names import VersionName
from tests.unit.cli.small_mesh import HeardReport, Store

_PULLING = placement_pb2.LOAD_STATE_PULLING
_READY = placement_pb2.LOAD_STATE_READY
_FAILED = placement_pb2.LOAD_STATE_FAILED
_V2 = "models/m/versions/2"


def _worker(
    state: placement_pb2.LoadState.ValueType | None,
    name: str = "w1",
    reason: str = "",
    pool: str = "default",
) -> worker_pb2.Worker:
    worker = worker_pb2.Worker(name=f"workers/{name}", pool=pool)
    if state is not None:
        worker.versions.add(version=_V2, state=state, reason=reason)
    return worker


def _rollout(percent: float | None = None, seconds: float = 20) -> Rollout:
    return Rollout(
        version=VersionName("m", "2"),
        endpoint="e",
        percent=percent,
        pool="default",
        seconds=seconds,
    )


def _endpoint(store: Store, **weights: float) -> None:
    targets = [
        endpoint_pb2.Target(target=f"models/m/versions/{version[1:]}", weight=weight)
        for version, weight in weights.items()
    ]
    store.endpoints["endpoints/e"] = endpoint_pb2.Endpoint(
        name="endpoints/e", etag="1", targets=targets, sticky_header="x-user"
    )


def _weights(endpoint: endpoint_pb2.Endpoint) -> dict[str, float]:
    return {target.target: target.weight for target in endpoint.targets}


async def test_each_change_is_told_and_the_endpoint_is_made_when_ready(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """States are told once each, in order; workers of other pools don't count."""
    other = _worker(_READY, "w9", pool="gpu")
    for state in (None, _PULLING, _PULLING, _READY):
        store.workers.put_nowait([other, _worker(state)])
    done = await roll_out(edge, _rollout(), report)
    assert report.said == ["m@2 on w1: pulling", "m@2 on w1: ready"]
    assert done.told == "endpoint e created: m@2 100 %"
    assert _weights(done.endpoint) == {_V2: 100}
    assert store.placements == ["pools/default models/m/versions/2"]


async def test_what_to_do_next_with_a_language_model(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """One chats with it; tensors are asked for with a file."""
    worker = _worker(_READY)
    store.workers.put_nowait([worker])
    assert (await roll_out(edge, _rollout(), report)).hint == "inferplane infer e --json FILE"
    worker.versions[0].engine.blocks = 1
    store.workers.put_nowait([worker])
    assert (await roll_out(edge, _rollout(), report)).hint == "inferplane chat e"


async def test_one_ready_worker_is_enough(edge: Edge, store: Store, report: HeardReport) -> None:
    """A worker that failed does not matter while another is READY."""
    store.workers.put_nowait([_worker(_FAILED, "w1", "no memory"), _worker(_PULLING, "w2")])
    store.workers.put_nowait([_worker(_FAILED, "w1", "no memory"), _worker(_READY, "w2")])
    await roll_out(edge, _rollout(), report)
    assert "m@2 on w1: failed: no memory" in report.said


async def test_failure_on_all_workers_ends_it(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """The worker's reason is the error; the endpoint is untouched."""
    _endpoint(store, v1=100)
    store.workers.put_nowait([_worker(_PULLING)])
    store.workers.put_nowait([_worker(_FAILED, reason="bad op")])
    with pytest.raises(FailedPreconditionError, match="bad op") as failed:
        await roll_out(edge, _rollout(50), report)
    assert failed.value.metadata["load_error"] == "bad op"
    assert report.said == ["m@2 on w1: pulling", "m@2 on w1: failed"]  # the reason is told once
    assert _weights(store.endpoints["endpoints/e"]) == {"models/m/versions/1": 100}


@pytest.mark.parametrize(
    ("workers", "error", "text"),
    [
        pytest.param([], UnavailableError, "no live worker of pool default", id="no worker"),
        pytest.param(
            [_worker(_PULLING)], DeadlineExceededError, r"\(w1 pulling\)", id="a slow worker"
        ),
    ],
)
async def test_timeout_tells_how_far_it_came(
    edge: Edge,
    store: Store,
    report: HeardReport,
    workers: list[worker_pb2.Worker],
    error: type[Exception],
    text: str,
) -> None:
    """When the time is over the message says where it stands."""
    store.workers.put_nowait(workers)
    with pytest.raises(error, match=text):
        await roll_out(edge, _rollout(seconds=0.3), report)


async def test_watch_that_breaks_is_begun_again(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """A restart of the registry in the middle is outlived."""
    store.workers.put_nowait([_worker(_PULLING)])
    store.workers.put_nowait([worker_pb2.Worker(name="break")])
    store.workers.put_nowait([_worker(_READY)])
    await roll_out(edge, _rollout(), report)
    assert report.said[:2] == ["m@2 on w1: pulling", "m@2 on w1: ready"]


async def test_share_is_given_though_others_change_the_endpoint(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """An update that lost the race is done again on what the other wrote; nothing of that is lost."""
    _endpoint(store, v1=3, v3=1)
    store.others_write = 2
    store.workers.put_nowait([_worker(_READY)])
    done = await roll_out(edge, _rollout(20), report)
    assert _weights(done.endpoint) == {
        "models/m/versions/1": 60,
        "models/m/versions/3": 20,
        _V2: 20,
    }
    assert (done.endpoint.description, done.endpoint.sticky_header) == ("!!", "x-user")


async def test_existing_endpoint_keeps_its_traffic_without_a_weight(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """Deploying beside what serves moves nothing, and the hint says how to."""
    _endpoint(store, v1=1)
    store.workers.put_nowait([_worker(_READY)])
    done = await roll_out(edge, _rollout(), report)
    assert _weights(done.endpoint) == {"models/m/versions/1": 1}
    assert done.hint == "inferplane traffic set e m@2=100"


@pytest.mark.parametrize(
    ("others", "percent", "told"),
    [
        pytest.param({_V2: 1}, None, "endpoint e created: m@2 100 %", id="the same"),
        pytest.param({_V2: 1}, 50, "endpoint e created: m@2 100 %", id="the same by weight"),
        pytest.param(
            {"models/m/versions/1": 1}, None, "endpoint e is as it was: m@1 100 %", id="another"
        ),
        pytest.param(
            {"models/m/versions/1": 1}, 25, "endpoint e: m@1 75 %, m@2 25 %", id="another to share"
        ),
    ],
)
async def test_lost_race_for_a_new_endpoint(
    edge: Edge,
    store: Store,
    report: HeardReport,
    others: dict[str, float],
    percent: float | None,
    told: str,
) -> None:
    """An endpoint that somebody makes meanwhile is what was asked for, or is treated as one that was there."""
    targets = [endpoint_pb2.Target(target=name, weight=weight) for name, weight in others.items()]
    store.others_create = endpoint_pb2.Endpoint(name="endpoints/e", etag="1", targets=targets)
    store.workers.put_nowait([_worker(_READY)])
    done = await roll_out(edge, _rollout(percent), report)
    assert done.told == told


async def test_refused_routes_are_told(
    edge: Edge, store: Store, report: HeardReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Envoy refuses what the change led to, its own words are said."""
    monkeypatch.setattr(routed, "_SECONDS", 0.2)
    store.is_routed = False
    store.workers.put_nowait([_worker(_READY)])
    await roll_out(edge, _rollout(), report)
    assert "stored, but Envoy edge refuses it: no such filter" in report.said


async def test_split_by_version_alias_and_model(edge: Edge, store: Store) -> None:
    """A bare id is a version of the endpoint's model if there is one, else an alias; other models are named."""
    _endpoint(store, v1=1)
    for name in ("models/m/versions/1", "models/other/versions/5"):
        store.versions[name] = model_pb2.ModelVersion(name=name)
    store.aliases["models/m/aliases/best"] = _V2
    with pytest.raises(NotFoundError, match="model m has neither a version nor an alias '9'"):
        await set_split(edge, "e", [parse_weighted_reference("9=1")])
    parts = [parse_weighted_reference(text) for text in ("1=5", "best=3", "other@5=2")]
    changed = await set_split(edge, "e", parts)
    assert _weights(changed) == {
        "models/m/versions/1": 5,
        "models/m/aliases/best": 3,
        "models/other/versions/5": 2,
    }
    assert changed.sticky_header == "x-user"
    with pytest.raises(UsageError, match="several models; write MODEL@1"):
        await set_split(edge, "e", [parse_weighted_reference("1=1")])


async def test_cancelled_wait_leaves_no_stream(
    edge: Edge, store: Store, report: HeardReport
) -> None:
    """Ctrl-C while waiting ends at once."""
    store.workers.put_nowait([_worker(_PULLING)])
    told = asyncio.Event()
    report.on_say = told.set
    task = asyncio.create_task(roll_out(edge, _rollout(seconds=60), report))
    async with asyncio.timeout(10):
        await told.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
