"""How much callers may: what is let in, what the refused are told, and that nothing is held afterwards."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from inference import open_inference_pb2 as oip

from services.native_library import EDGE
from services.router.domain.policy import Limits, LimitsChange
from tests.integration.router import keys
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.router.keys import answer, bearer, head, tell
from tests.integration.router.waiting import until
from tests.metering_keys import KeyMint

needs_module = pytest.mark.skipif(EDGE.find() is None, reason="the module is not built")
PROJECT, KEY = "projects/default", "projects/default/keys/one"
USED_UP = "RESOURCE_EXHAUSTED REQUESTS_PER_SECOND"
TOO_MANY = "RESOURCE_EXHAUSTED CONCURRENT_REQUESTS"
# So slow that nothing is filled in again while a test runs.
_SLOW = 0.0001
REQUEST = oip.ModelInferRequest(model_name="digits")


@pytest.fixture
def mint() -> KeyMint:
    """Signs tokens."""
    return KeyMint()


@pytest.fixture
async def edge(folder: Path, mint: KeyMint) -> AsyncIterator[EdgeUnderTest]:
    """Asks for keys of the mint; Envoy has two threads."""
    edge = await keys.start(folder, mint, threads=2)
    yield edge
    await edge.stop()


async def limit(edge: EdgeUnderTest, name: str, **limits: Any) -> None:
    await tell(edge, LimitsChange(name, Limits(**limits)))


@needs_module
async def test_requests_over_time(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """As many as may come at once do; the next is refused and told, others of the project are not."""
    await limit(edge, KEY, requests_per_second=_SLOW, burst=3)
    one, two = mint.token(jti="one"), mint.token(jti="two")
    request = oip.ModelInferRequest(model_name="digits")
    for left in ("2", "1", "0"):
        call = edge.stub.ModelInfer(request, metadata=bearer(one))
        await call
        headers = dict(await call.initial_metadata())
        assert headers["x-ratelimit-limit-requests"] == "3"
        assert headers["x-ratelimit-remaining-requests"] == left
        assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert await answer(edge, one) == USED_UP
    assert await answer(edge, two) == "OK"
    status, headers, body = await edge.http("GET", "/v2", headers=head(one))
    assert status == 429
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert int(headers["retry-after"]) > 9000
    assert json.loads(body)["error"].startswith(f"{KEY} may have 0.0001 requests a second")
    assert "grpc-status-details-bin" not in headers
    chat = b'{"model": "digits", "messages": []}'
    status, headers, body = await edge.http("POST", "/v1/chat/completions", chat, head(one))
    assert (status, "retry-after" in headers) == (429, True)
    assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"


@needs_module
async def test_many_callers_on_all_threads_get_no_more(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """300 calls over 8 connections: exactly what a key and its project may is let in."""
    await limit(edge, KEY, requests_per_second=_SLOW, burst=40)
    await limit(edge, PROJECT, requests_per_second=_SLOW, burst=70)
    channels = [
        grpc.aio.insecure_channel(
            edge.settings.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        for _ in range(8)
    ]
    counts: Counter[str] = Counter()

    async def call(number: int) -> None:
        jti = "one" if number % 2 else "two"
        method: Any = channels[number % 8].unary_unary("/inference.GRPCInferenceService/ModelInfer")
        request = oip.ModelInferRequest(model_name="digits").SerializeToString()
        try:
            await method(request, metadata=bearer(mint.token(jti=jti)), timeout=60)
        except grpc.aio.AioRpcError as error:
            counts[keys.reason(error)] += 1
        else:
            counts[jti] += 1

    await asyncio.gather(*[call(number) for number in range(300)])
    for one in channels:
        await one.close()
    assert counts["one"] <= 40
    assert counts["one"] + counts["two"] == 70
    assert counts["REQUESTS_PER_SECOND"] == 230


def are_done(calls: list[asyncio.Task[str]], count: int) -> bool:
    return sum(call.done() for call in calls) == count


@needs_module
async def test_requests_in_flight(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Of six at once four run; when they have ended there is room for four again."""
    await limit(edge, PROJECT, concurrent_requests=4)
    worker, token = edge.workers[0], mint.token()
    for _ in range(2):
        worker.calls.clear()
        worker.hold = asyncio.Event()
        calls = [asyncio.create_task(answer(edge, token, timeout=60)) for _ in range(6)]
        await until(partial(are_done, calls, 2), seconds=60)
        await until(lambda: worker.calls.total() == 4, seconds=60)
        worker.hold.set()
        assert Counter(await asyncio.gather(*calls)) == {"OK": 4, TOO_MANY: 2}


@needs_module
async def test_one_after_the_other_is_never_too_many(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Who may have one request in flight may ask again the moment that he has his answer, by gRPC and REST."""
    await limit(edge, KEY, concurrent_requests=1)
    token = mint.token(jti="one")
    assert [await answer(edge, token) for _ in range(200)] == ["OK"] * 200
    statuses = [(await edge.http("GET", "/v2", headers=head(token)))[0] for _ in range(50)]
    assert statuses == [200] * 50


@dataclass(frozen=True, slots=True)
class Endings:
    """Ways in which a request ends; each leaves its worker to be let go."""

    edge: EdgeUnderTest
    mint: KeyMint

    @property
    def token(self) -> str:
        return self.mint.token(jti="one")

    async def is_free(self) -> bool:
        return await answer(self.edge, self.token) == "OK"

    async def _begun(self) -> None:
        await until(lambda: self.edge.workers[0].calls.total() > 0)

    async def cancelled(self) -> None:
        call = self.edge.stub.ModelInfer(REQUEST, metadata=bearer(self.token))
        await self._begun()
        call.cancel()

    async def late(self) -> None:
        assert (await answer(self.edge, self.token, timeout=0.3)).startswith("DEADLINE_EXCEEDED")

    async def stream_ends(self) -> None:
        call = self.edge.stub.ModelStreamInfer(metadata=bearer(self.token))
        await call.write(REQUEST)
        await self._begun()
        await call.done_writing()

    async def stream_is_cancelled(self) -> None:
        call = self.edge.stub.ModelStreamInfer(metadata=bearer(self.token))
        await call.write(REQUEST)
        await self._begun()
        call.cancel()

    async def connection_breaks(self) -> None:
        """In the middle of a body."""
        host, _, port = self.edge.settings.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        lines = ["POST /v2/models/digits/infer HTTP/1.1", "host: edge", "content-length: 10"]
        lines.append(f"authorization: Bearer {self.token}")
        writer.write("\r\n".join([*lines, "", "{"]).encode())
        await writer.drain()
        await until(self._is_taken)
        writer.transport.abort()

    async def _is_taken(self) -> bool:
        return await self.edge.envoy.counter("http.edge.downstream_rq_active") > 0

    async def refused(self) -> None:
        """By what stands behind the limits."""
        await answer(self.edge, self.token, "missing")
        await answer(self.edge, self.mint.token(jti="one", endpoints=[]))
        await answer(self.edge, self.mint.token(jti="one", role="nobody"))


@needs_module
async def test_nothing_is_held_in_any_ending(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """Cancelled, late, broken off, refused, streams, no worker: there is always room for one more afterwards."""
    await limit(edge, KEY, concurrent_requests=1)
    ways, worker = Endings(edge, mint), edge.workers[0]
    for ending in (
        ways.cancelled,
        ways.late,
        ways.stream_ends,
        ways.stream_is_cancelled,
        ways.connection_breaks,
        ways.refused,
    ):
        for _ in range(3):
            worker.calls.clear()
            held = worker.hold = asyncio.Event()
            await ending()
            held.set()
            worker.hold = None
            await until(ways.is_free, seconds=60)
    await worker.stop()
    edge.workers.clear()
    for _ in range(3):
        assert (await answer(edge, ways.token)).startswith("UNAVAILABLE")


@needs_module
async def test_shadow_mode_refuses_nothing(edge: EdgeUnderTest, mint: KeyMint) -> None:
    """It is counted what would have been."""
    await limit(edge, KEY, requests_per_second=_SLOW, burst=1, shadow=True)
    token = mint.token(jti="one")
    assert [await answer(edge, token) for _ in range(3)] == ["OK"] * 3
    prefix = "dynamicmodulescustom.inferplane_limits"
    counter = edge.envoy.counter
    assert await counter(f"{prefix}_shadow_requests_per_second") == 2
    assert await counter(f"{prefix}_refused_requests_per_second") == 0
    assert await counter(f"{prefix}_admitted") == 3


@needs_module
async def test_what_is_used_outlives_changes_of_the_policy(
    edge: EdgeUnderTest, mint: KeyMint
) -> None:
    """A change of anything gives nobody a new start."""
    await limit(edge, KEY, requests_per_second=_SLOW, burst=2)
    token = mint.token(jti="one")
    assert await answer(edge, token) == "OK"
    for number in range(5):
        await limit(edge, f"projects/other/keys/{number}", requests_per_second=1)
        await tell(edge, keys.signing(KeyMint()))
    assert [await answer(edge, token) for _ in range(2)] == ["OK", USED_UP]
    await limit(edge, KEY, requests_per_second=1000, burst=5)
    assert await answer(edge, token) == "OK"
    await tell(edge, LimitsChange(KEY, None))
    assert await answer(edge, token) == "OK"


async def test_without_the_module_requests_over_time_are_kept(folder: Path, mint: KeyMint) -> None:
    """By Envoy's own filter: the burst passes, then nothing; of shadow and of requests in flight it knows nothing."""
    edge = await keys.start(folder, mint, has_module=False)
    try:
        await limit(edge, KEY, requests_per_second=_SLOW, burst=3)
        await limit(edge, "projects/p2", requests_per_second=_SLOW, burst=2)
        await limit(edge, "projects/p3", requests_per_second=_SLOW, burst=1, shadow=True)
        one, two = mint.token(jti="one"), mint.token(jti="two")
        assert [await answer(edge, one) for _ in range(4)] == ["OK"] * 3 + [USED_UP]
        assert await answer(edge, two) == "OK"
        project = [mint.token(project="p2", jti=jti) for jti in "ab"]
        assert [await answer(edge, project[i % 2]) for i in range(3)] == ["OK", "OK", USED_UP]
        other = mint.token(project="p3")
        assert [await answer(edge, other) for _ in range(3)] == ["OK"] * 3
        status, headers, _ = await edge.http("GET", "/v2", headers=head(one))
        assert (status, headers["retry-after"]) == (429, "1")
    finally:
        await edge.stop()
