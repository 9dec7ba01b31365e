"""Endpoints, placements, workers and watches over a real server."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.registry.v1 import endpoint_pb2, endpoint_service_pb2, model_pb2, placement_pb2
from inferplane.registry.v1 import model_service_pb2 as models_pb
from inferplane.registry.v1 import placement_service_pb2 as placements_pb
from inferplane.registry.v1 import watch_service_pb2 as watch_pb
from prometheus_client import CollectorRegistry, generate_latest

from tests.integration.registry.client import Client, policy, read, refusal_of, refused

PLACED = "pools/default/placements/m@1"


@pytest.fixture
async def served(client: Client) -> Client:
    """Two READY versions on a pool."""
    for number in "12":
        await client.place(await client.push(f"m@{number}"))
    return client


def update(
    endpoint: endpoint_pb2.Endpoint, *paths: str, allow_missing: bool = False
) -> endpoint_service_pb2.UpdateEndpointRequest:
    return endpoint_service_pb2.UpdateEndpointRequest(
        endpoint=endpoint, update_mask=FieldMask(paths=paths), allow_missing=allow_missing
    )


def worker(
    name: str = "w", state: int = placement_pb2.LOAD_STATE_READY, **fields: Any
) -> worker_pb2.Worker:
    message = worker_pb2.Worker(
        name=f"workers/{name}", pool="default", address="unix:/run/w.sock", **fields
    )
    if state:
        message.versions.add(version="models/m/versions/1", state=state, reason="because")
    return message


async def register(
    client: Client, message: worker_pb2.Worker, ttl: float | None = None
) -> worker_pb2.Worker:
    request = discovery_service_pb2.RegisterWorkerRequest(worker=message)
    if ttl is not None:
        request.ttl.CopyFrom(Duration(seconds=int(ttl), nanos=int(ttl % 1 * 1e9)))
    return (await client.discovery.RegisterWorker(request)).worker


async def test_an_endpoint_lives(served: Client) -> None:
    """Created whole, changed by mask, read, listed, deleted."""
    whole = policy(m__1=9, m__2=1)
    whole.sticky_header = "x-user"
    whole.mirror.target = "models/m/versions/2"
    whole.mirror.percent = 5
    whole.retry_policy.num_retries = 0
    whole.timeout.seconds = 30
    whole.circuit_limits.max_requests = 7
    whole.tags["a"] = "b"
    request = endpoint_service_pb2.CreateEndpointRequest(endpoint_id="e", endpoint=whole)
    created = (await served.endpoints.CreateEndpoint(request)).endpoint
    for field in ("targets", "sticky_header", "mirror", "retry_policy", "timeout", "tags"):
        assert getattr(created, field) == getattr(whole, field), field
    assert created.retry_policy.HasField("num_retries")
    assert not created.retry_policy.HasField("budget_percent")
    change = policy(m__2=1)
    change.name, change.etag = created.name, created.etag
    changed = (await served.endpoints.UpdateEndpoint(update(change, "targets"))).endpoint
    assert [target.target for target in changed.targets] == ["models/m/versions/2"]
    assert changed.mirror == whole.mirror
    assert changed.etag != created.etag
    stale = await refused(served.endpoints.UpdateEndpoint(update(change, "targets")))
    assert (stale.code, stale.metadata["etag"]) == (grpc.StatusCode.ABORTED, changed.etag)
    change.etag = ""
    replaced = (await served.endpoints.UpdateEndpoint(update(change))).endpoint
    assert not replaced.HasField("mirror")
    assert not replaced.HasField("timeout")
    listing = endpoint_service_pb2.ListEndpointsRequest()
    assert list((await served.endpoints.ListEndpoints(listing)).endpoints) == [replaced]
    delete = endpoint_service_pb2.DeleteEndpointRequest(name=created.name, etag=created.etag)
    assert (await refused(served.endpoints.DeleteEndpoint(delete))).code is grpc.StatusCode.ABORTED
    delete.etag = replaced.etag
    await served.endpoints.DeleteEndpoint(delete)
    get = endpoint_service_pb2.GetEndpointRequest(name=created.name)
    assert (await refused(served.endpoints.GetEndpoint(get))).code is grpc.StatusCode.NOT_FOUND


async def test_a_missing_endpoint_is_made_if_allowed(served: Client) -> None:
    """Without allow_missing NOT_FOUND; with it all fields count, mask or not; an etag of nothing is ABORTED."""
    wanted = policy(m__1=1)
    wanted.name = "endpoints/e"
    wanted.description = "d"
    missing = await refused(served.endpoints.UpdateEndpoint(update(wanted, "targets")))
    assert missing.code is grpc.StatusCode.NOT_FOUND
    wanted.etag = "1"
    stale = await refused(served.endpoints.UpdateEndpoint(update(wanted, allow_missing=True)))
    assert stale.code is grpc.StatusCode.ABORTED
    wanted.etag = ""
    made = await served.endpoints.UpdateEndpoint(update(wanted, "targets", allow_missing=True))
    assert made.endpoint.description == "d"


async def test_placements_are_kept_while_needed(served: Client) -> None:
    """The last placement of a served version stays; with another pool it may go."""
    await served.expose("e", m__1=1)
    delete = placements_pb.DeletePlacementRequest(name=PLACED)
    refusal = await refused(served.placements.DeletePlacement(delete))
    assert (refusal.reason, refusal.metadata["used_by"]) == ("IN_USE", "endpoints/e")
    await served.place("models/m/versions/1", "gpu")
    await served.placements.DeletePlacement(delete)
    listed = await served.placements.ListPlacements(
        placements_pb.ListPlacementsRequest(parent="pools/-")
    )
    assert [placement.name for placement in listed.placements] == [
        "pools/default/placements/m@2",
        "pools/gpu/placements/m@1",
    ]
    empty = placements_pb.ListPlacementsRequest(parent="pools/none")
    assert list((await served.placements.ListPlacements(empty)).placements) == []


async def test_placements_say_what_workers_report(served: Client) -> None:
    """PENDING until a worker speaks, then its state and reason; gone with the worker."""
    get = placements_pb.GetPlacementRequest(name=PLACED)

    async def status() -> placement_pb2.PlacementStatus:
        return (await served.placements.GetPlacement(get)).placement.status

    assert (await status()).live_workers == 0
    await register(served, worker(state=0))
    (one,) = (await status()).workers
    assert one.state == placement_pb2.LOAD_STATE_PENDING
    await register(served, worker(state=placement_pb2.LOAD_STATE_FAILED))
    (one,) = (await status()).workers
    assert (one.worker, one.reason) == ("workers/w", "because")
    await register(served, worker())
    assert (await status()).ready_workers == 1
    leave = discovery_service_pb2.DeregisterWorkerRequest(name="workers/w")
    for _ in range(2):
        await served.discovery.DeregisterWorker(leave)
    assert (await status()).live_workers == 0


async def test_workers_are_watched(client: Client) -> None:
    """A watcher hears of who there is, who comes, who changes, and who stays away for its ttl."""
    watch = client.discovery.WatchWorkers(discovery_service_pb2.WatchWorkersRequest())

    async def seen() -> list[tuple[str, bool]]:
        async with asyncio.timeout(60):
            return [(w.name, w.draining) for w in (await read(watch)).workers]

    assert await seen() == []
    await register(client, worker(), ttl=60)
    assert await seen() == [("workers/w", False)]
    await register(client, worker(in_flight=3), ttl=60)
    listed = await client.discovery.ListWorkers(discovery_service_pb2.ListWorkersRequest())
    assert listed.workers[0].in_flight == 3
    registered = await register(client, worker(draining=True), ttl=1)
    assert await seen() == [("workers/w", True)]
    assert registered.HasField("expire_time")
    assert await seen() == []


async def changes(
    watch: Any,
) -> tuple[int, list[str]]:
    async with asyncio.timeout(60):
        response = await read(watch)
    assert response.synced
    return response.revision, [change.name for change in response.changes]


async def test_a_watch_resumes(served: Client) -> None:
    """1. all there is; 2. changes at once; 3. a new stream goes on where the old one ended."""
    watch = served.watches.Watch(watch_pb.WatchRequest())
    revision, names = await changes(watch)
    assert names[0] == "models/m"
    assert len(names) == 5
    await served.expose("e", m__1=1)
    assert await changes(watch) == (revision + 1, ["endpoints/e"])
    watch.cancel()
    await served.alias("m", "champion", "1")
    delete = endpoint_service_pb2.DeleteEndpointRequest(name="endpoints/e")
    await served.endpoints.DeleteEndpoint(delete)
    watch = served.watches.Watch(watch_pb.WatchRequest(after_revision=revision + 1))
    async with asyncio.timeout(60):
        response = await read(watch)
    assert response.revision == revision + 3
    alias, endpoint = response.changes
    assert alias.alias.version == "models/m/versions/1"
    assert (endpoint.name, endpoint.WhichOneof("resource")) == ("endpoints/e", None)


async def test_a_watch_of_some_kinds(served: Client) -> None:
    """Only wanted kinds arrive; placements come without status."""
    kinds = [watch_pb.RESOURCE_KIND_PLACEMENT, watch_pb.RESOURCE_KIND_ENDPOINT]
    await register(served, worker())
    watch = served.watches.Watch(watch_pb.WatchRequest(kinds=kinds))
    async with asyncio.timeout(60):
        response = await read(watch)
    assert [change.name for change in response.changes] == [PLACED, PLACED[:-1] + "2"]
    assert not response.changes[0].placement.HasField("status")


@pytest.mark.parametrize("after", [1, 2**62])
async def test_a_foreign_revision_is_refused(client: Client, after: int) -> None:
    """A revision from before a reset, or from the future, says to begin again."""
    watch = client.watches.Watch(watch_pb.WatchRequest(after_revision=after))
    with pytest.raises(grpc.aio.AioRpcError) as refused_watch:
        await watch.read()
    refusal = refusal_of(refused_watch.value)
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "REVISION_UNAVAILABLE",
    )


async def test_a_large_state_comes_in_pieces(client: Client) -> None:
    """A state over a megabyte comes in several responses, of which only the last is synced."""
    for number in range(12):
        await client.models.CreateModel(
            models_pb.CreateModelRequest(
                model_id=f"m{number}",
                model=model_pb2.Model(tags={f"{'k' * 60}{n}": "v" * 255 for n in range(64)}),
            )
        )
    for number in range(60):
        await client.models.CreateModel(
            models_pb.CreateModelRequest(
                model_id=f"n{number}",
                model=model_pb2.Model(tags={f"{'k' * 60}{n}": "v" * 255 for n in range(64)}),
            )
        )
    watch = client.watches.Watch(watch_pb.WatchRequest())
    names: list[str] = []
    pieces = 0
    async with asyncio.timeout(60):
        async for response in watch:
            pieces += 1
            names += [change.name for change in response.changes]
            if response.synced:
                break
    watch.cancel()
    assert pieces == 2
    assert len(set(names)) == 72


async def test_a_reader_that_does_not_read_costs_nothing(served: Client) -> None:
    """Hundreds of commits pass a watch that nobody reads; read again, it ends with the newest state."""
    watch = served.watches.Watch(watch_pb.WatchRequest())
    await changes(watch)
    created = await served.expose("e", m__1=1)
    for number in range(200):
        created.description = f"{number} " + "x" * 4000
        created.etag = ""
        await served.endpoints.UpdateEndpoint(update(created, "description"))
    last = ""
    async with asyncio.timeout(60):
        while not last.startswith("199 "):
            for change in (await read(watch)).changes:
                last = change.endpoint.description
    watch.cancel()


async def test_metrics(served: Client, metrics: CollectorRegistry) -> None:
    """Calls are counted by method and code; revision, bytes, watchers and leases are there; it is active."""
    await refused(served.models.GetModel(models_pb.GetModelRequest(name="models/none")))
    await register(served, worker())
    watch = served.watches.Watch(watch_pb.WatchRequest())
    await changes(watch)
    text = generate_latest(metrics).decode()
    method = 'method="/inferplane.registry.v1.ModelService/GetModel"'
    assert f'inferplane_rpc_calls_total{{code="NOT_FOUND",{method}}} 1.0' in text
    assert "inferplane_registry_active 1.0" in text
    assert "inferplane_registry_watchers 1.0" in text
    assert "inferplane_registry_leases 1.0" in text
    assert "inferplane_registry_blob_bytes 107.0" in text
    assert "inferplane_registry_revision 1." in text
    watch.cancel()
