"""What callers see when workers fail, drain, hang or are too few, and what a mirror may not do."""

import asyncio
import json
import time
from typing import Any

import grpc
import pytest

from services.router.domain.topology import (
    CircuitLimits,
    Endpoint,
    Mirror,
    RetryPolicy,
    Target,
)
from services.rpc.errors import InternalError, UnavailableError
from services.rpc.names import EndpointName, VersionName
from tests.integration.router.echo_worker import EchoWorker
from tests.integration.router.edge import DIGITS, V1, V2, EdgeUnderTest
from tests.integration.router.load import callers
from tests.integration.router.waiting import until


async def serve(edge: EdgeUnderTest, *versions: VersionName, **fields: Any) -> list[EchoWorker]:
    """One worker for each given version; the endpoint's target is V1 unless fields say otherwise."""
    workers = [
        await edge.add_worker(f"w{index}", version) for index, version in enumerate(versions)
    ]
    fields.setdefault("targets", (Target(V1, 1),))
    edge.set_endpoint(Endpoint(name=DIGITS, **fields))
    edge.set_workers({w.address: {v} for w, v in zip(workers, versions, strict=True)})
    await edge.in_sync()
    return workers


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_failing_worker_is_retried_on_another(edge: EdgeUnderTest) -> None:
    """A worker that answers UNAVAILABLE costs its callers nothing while another serves."""
    good, bad = await serve(edge, V1, V1)
    bad.fail = lambda: UnavailableError("busy")
    async with callers(edge) as outcome:
        await outcome.more(300)
    assert not outcome.failures
    assert bad.calls.total() < good.calls.total()


async def test_dead_worker_is_retried_on_another(edge: EdgeUnderTest) -> None:
    """A worker whose connections break under load costs its callers nothing while another serves."""
    _, dying = await serve(edge, V1, V1)
    async with callers(edge) as outcome:
        await outcome.more(100)
        await dying.stop()
        await outcome.more(300)
    assert not outcome.failures


async def test_no_retries_if_turned_off(edge: EdgeUnderTest) -> None:
    """With zero retries a worker's UNAVAILABLE reaches the caller as it is."""
    (worker,) = await serve(edge, V1, retry=RetryPolicy(num_retries=0))
    worker.fail = lambda: UnavailableError("busy: queue of 'digits'")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edge.infer()
    assert raised.value.details() == "busy: queue of 'digits'"
    assert worker.calls.total() == 1


EJECTED = f"cluster.{V1}.outlier_detection.ejections_enforced_total"


async def test_internal_errors_neither_retry_nor_eject(edge: EdgeUnderTest) -> None:
    """A caller whose inputs break a model gets INTERNAL each time, and can't put the workers aside for others."""
    workers = await serve(edge, V1, V1)
    for worker in workers:
        worker.fail = lambda: InternalError("model failed")
    for _ in range(30):
        assert await code_of(edge.infer()) is grpc.StatusCode.INTERNAL
    assert sum(worker.calls.total() for worker in workers) == 30
    assert await edge.envoy.counter(EJECTED) == 0


async def test_worker_that_keeps_failing_is_put_aside(edge: EdgeUnderTest) -> None:
    """A worker that answers UNAVAILABLE five times in a row gets no calls for a while."""
    _, bad = await serve(edge, V1, V1)
    bad.fail = lambda: UnavailableError("broken")

    async def is_put_aside() -> bool:
        assert await code_of(edge.infer()) is grpc.StatusCode.OK
        return await edge.envoy.counter(EJECTED) == 1

    await until(is_put_aside)
    seen = bad.calls.total()
    assert seen >= 5
    for _ in range(20):  # far fewer than fit in the five seconds
        assert await code_of(edge.infer()) is grpc.StatusCode.OK
    assert bad.calls.total() == seen


async def test_drained_worker_finishes_what_runs(edge: EdgeUnderTest) -> None:
    """1. A call runs on a worker. 2. It drains. 3. New calls go to the other. 4. The running call is answered."""
    first, second = await serve(edge, V1, V1)
    first.hold = second.hold = asyncio.Event()
    running = asyncio.ensure_future(edge.infer())
    await until(lambda: bool(first.calls.total() + second.calls.total()))
    holder = first if first.calls.total() else second
    other = second if holder is first else first
    other.hold = None
    edge.set_workers(
        {first.address: {V1}, second.address: {V1}}, draining=frozenset([holder.address])
    )
    await edge.in_sync()
    for _ in range(20):
        response = await edge.infer()
        assert response.parameters["worker"].string_param == other.name
    assert holder.hold is not None
    holder.hold.set()
    assert (await running).parameters["worker"].string_param == holder.name


async def test_share_of_a_version_without_workers_moves_and_returns(edge: EdgeUnderTest) -> None:
    """A target's last worker drains and comes back under load: no call fails and the share follows."""
    one, two = await serve(edge, V1, V2, targets=(Target(V1, 1), Target(V2, 1)))
    both = {one.address: {V1}, two.address: {V2}}
    async with callers(edge) as outcome:
        for _ in range(20):
            await outcome.more(30)
            edge.set_workers(both, draining=frozenset([two.address]))
            await edge.in_sync()
            seen = two.calls.total()
            await outcome.more(30)
            assert two.calls.total() <= seen + 8  # those on their way
            edge.set_workers(both)
            await edge.in_sync()
    assert not outcome.failures
    assert outcome.answers[str(V2)] > 0


async def test_unhealthy_version_gets_nothing_while_another_worker_is_well(
    edge: EdgeUnderTest,
) -> None:
    """A version that says NOT_SERVING leaves the balancing by its health check, before discovery says anything."""
    well, ill = await serve(edge, V1, V1)
    await ill.server.set_health(str(V1), serving=False)

    async def is_out() -> bool:
        return await edge.envoy.counter(f"cluster.{V1}.membership_healthy") == 1

    await until(is_out)
    before = ill.calls.total()
    for _ in range(50):
        await edge.infer()
    assert ill.calls.total() == before
    assert well.calls.total() >= 50


async def test_no_worker_at_all_is_unavailable(edge: EdgeUnderTest) -> None:
    """An endpoint without a READY worker is UNAVAILABLE and says so."""
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({})
    await edge.in_sync()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edge.infer()
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert raised.value.details() == "no worker is ready for endpoint 'digits'; try again"


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        pytest.param(60.0, 0.3, id="client-is-shorter"),
        pytest.param(0.3, 30.0, id="endpoint-is-shorter"),
    ],
)
async def test_the_shorter_deadline_wins(
    edge: EdgeUnderTest, declared: float, asked: float
) -> None:
    """The client's deadline and the endpoint's timeout both end a call; the worker is told by cancellation."""
    (worker,) = await serve(edge, V1, timeout=declared)
    worker.hold = asyncio.Event()
    began = time.monotonic()
    assert await code_of(edge.infer(timeout=asked)) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0.2 < time.monotonic() - began < 20  # nearer to the shorter than to the other


async def test_rest_callers_time_out_too(edge: EdgeUnderTest) -> None:
    """REST has no deadline of its own; the endpoint's timeout gives 504 in the protocol's shape."""
    (worker,) = await serve(edge, V1, timeout=0.3)
    worker.hold = asyncio.Event()
    status, _, answer = await edge.http("POST", "/v2/models/digits/infer", b"{}")
    assert status == 504
    # Either the edge or the worker, which is told the deadline, is first to say so.
    text = json.loads(answer)["error"]
    assert text in {"endpoint 'digits' did not answer in time", "Deadline Exceeded"}


async def test_calls_beyond_the_limit_are_refused_at_once(edge: EdgeUnderTest) -> None:
    """With 4 calls in flight allowed, the rest of a burst is UNAVAILABLE at once; the 4 are answered."""
    limits, retry = CircuitLimits(max_requests=4), RetryPolicy(num_retries=0)
    (worker,) = await serve(edge, V1, limits=limits, retry=retry)
    worker.hold = asyncio.Event()
    calls = [asyncio.ensure_future(code_of(edge.infer())) for _ in range(12)]
    refused = [await next(asyncio.as_completed(calls)) for _ in range(1)]
    assert refused == [grpc.StatusCode.UNAVAILABLE]
    await until(lambda: not (sum(call.done() for call in calls) < 8 or worker.calls.total() < 4))
    worker.hold.set()
    codes = await asyncio.gather(*calls)
    assert codes.count(grpc.StatusCode.OK) == 4
    assert codes.count(grpc.StatusCode.UNAVAILABLE) == 8


async def test_mirror_gets_its_own_version(edge: EdgeUnderTest) -> None:
    """Each call is copied to the mirror, which is told its own version, not the original's."""
    original, shadow = await serve(edge, V1, V2, mirror=Mirror(V2, 100))
    for _ in range(50):
        assert (await edge.infer()).model_version == str(V1)
    await until(lambda: shadow.calls.total() == 50)
    assert shadow.calls == {str(V2): 50}
    assert original.calls == {str(V1): 50}


async def test_mirror_takes_its_percentage(edge: EdgeUnderTest) -> None:
    """30 % of 1,000 calls are copied, within 6 points; the limit of copies at once is not met."""
    limits = CircuitLimits(max_mirror_requests=1000)
    _, shadow = await serve(edge, V1, V2, mirror=Mirror(V2, 30), limits=limits)
    for _ in range(20):
        await asyncio.gather(*(edge.infer() for _ in range(50)))
    await until(lambda: shadow.calls.total() >= 240)
    assert shadow.calls.total() <= 360


@pytest.mark.parametrize("trouble", ["dead", "slow", "failing"])
async def test_troubled_mirror_does_not_hurt(edge: EdgeUnderTest, trouble: str) -> None:
    """With a mirror that is dead, hangs or fails, every original call is answered, none at its deadline."""
    _, shadow = await serve(edge, V1, V2, mirror=Mirror(V2, 100))
    if trouble == "dead":
        await shadow.stop()
    elif trouble == "slow":
        shadow.hold = asyncio.Event()
    else:
        shadow.fail = lambda: UnavailableError("broken")
    async with callers(edge) as outcome:
        await outcome.more(500)
    assert not outcome.failures


async def test_copies_do_not_use_up_the_limits_of_a_version_that_serves(
    edge: EdgeUnderTest,
) -> None:
    """1. 40 copies hang on V2, which is allowed 8 calls. 2. V2's own endpoint is served all the same."""
    limits = CircuitLimits(max_requests=8)
    _, shadow = await serve(edge, V1, V2, mirror=Mirror(V2, 100), limits=limits)
    own = EndpointName("own")
    edge.set_endpoint(Endpoint(name=own, targets=(Target(V2, 1),), limits=limits))
    await edge.in_sync()
    hold = shadow.hold = asyncio.Event()
    for _ in range(40):
        await edge.infer()
    await until(lambda: shadow.calls.total() == 40)
    shadow.hold = None
    for _ in range(8):
        assert (await edge.infer("own")).model_version == str(V2)
    hold.set()


async def test_copies_are_bounded(edge: EdgeUnderTest) -> None:
    """A mirror that hangs holds no more copies than its own limit; originals are answered."""
    limits = CircuitLimits(max_mirror_requests=5)
    _, shadow = await serve(edge, V1, V2, mirror=Mirror(V2, 100), limits=limits)
    shadow.hold = asyncio.Event()
    for _ in range(50):
        await edge.infer()
    await until(lambda: shadow.calls.total() >= 5)
    for _ in range(10):
        await edge.infer()
    assert shadow.calls.total() == 5
    shadow.hold.set()
