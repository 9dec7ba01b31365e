"""How long a revocation takes, from an admin's call to the first refused one, and in which stage the time goes.

Run: .venv/bin/python -m benchmarks.revocations [--revoked 10000] [--limited 100000] [--endpoints 1] [--times 20]

Keys are put into metering's database, some revoked and some with limits; then a metering process serves it, a router
(in this process) follows it, and an Envoy follows the router. Keys with limits are made, and revoked one by one. Told
are the medians: how long each stage took by the clock, which a busy machine stretches, and the CPU time that metering,
router (with the calls of this benchmark) and Envoy spent, which it doesn't stretch as much.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from inferplane.metering.v1 import api_key_pb2, api_key_service_pb2, limits_pb2

from benchmarks.policy import key_id, put_keys
from services.metering.adapters.database import Database
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.domain.api_key import ApiKey, Role, revoked
from services.metering.domain.limits import Limits
from services.router.adapters.policy_watch import PolicyWatch
from services.router.domain.policy import Policy, PolicyUpdate
from services.router.domain.snapshot import Resource
from services.router.domain.topology import Endpoint, Target, Topology
from services.router.ports.feeds import Builder, PolicySink
from services.rpc import channel
from services.rpc.clock import SystemClock
from services.rpc.names import EndpointName, KeyName
from tests.integration.metering import metering_process
from tests.integration.metering.metering_process import MeteringStubs
from tests.integration.router import keys
from tests.integration.router.edge import V1, EdgeUnderTest
from tests.integration.router.waiting import until

_PAUSE = 0.2  # seconds between two revocations, for what is done after one
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured beside how much."""

    revoked: int
    limited: int
    endpoints: int
    times: int


@dataclass(slots=True)
class Watched:
    """A builder and a sink that say when something came by, and what the builder spent."""

    builder: Builder
    sink: PolicySink | None = None
    heard: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    built: float = 0.0
    building: float = 0.0  # seconds of CPU

    def build(self, topology: Topology, policy: Policy | None) -> Iterable[Resource]:
        began = time.thread_time()
        made = list(self.builder.build(topology, policy))
        self.building = time.thread_time() - began
        self.built = time.perf_counter()
        return made

    def hear_policy(self, update: PolicyUpdate) -> None:
        self.heard = time.perf_counter()
        self.news.set()
        assert self.sink is not None
        self.sink.hear_policy(update)

    def lose_metering(self) -> None:
        assert self.sink is not None
        self.sink.lose_metering()


@dataclass(slots=True)
class Seen:
    """Milliseconds by what they were for, of all revocations."""

    by_stage: dict[str, list[float]] = field(default_factory=dict)

    def add(self, stage: str, seconds: float) -> None:
        self.by_stage.setdefault(stage, []).append(1e3 * seconds)

    def lines(self) -> Iterator[str]:
        for stage, found in self.by_stage.items():
            yield f"{stage:44} | {statistics.median(found):8.2f} | {max(found):8.2f}"


def _cpu(pid: int) -> float:
    """Seconds that a process ran, finer than in hundredths as elsewhere."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _key(kid: str, name: str, limits: Limits) -> ApiKey:
    now = SystemClock().now()
    return ApiKey(
        name=KeyName("default", key_id(name)),
        kid=kid,
        role=Role.CALLER,
        endpoints=("*",),
        create_time=now,
        expire_time=now.replace(microsecond=0) + timedelta(days=90),
        limits=limits,
    )


async def _fill(folder: Path, plan: Plan) -> None:
    """Keys in the database of a metering that doesn't run."""
    async with Database.open(folder / "metering" / "metering.db") as database:
        store = SqlIdentityStore(database)
        (signing,) = await store.read(lambda view: view.signing_keys())
        now = SystemClock().now()
        none, some = Limits(), Limits(requests_per_second=10, burst=20)
        gone = (_key(signing.kid, f"gone {number}", none) for number in range(plan.revoked))
        limited = (_key(signing.kid, f"limited {number}", some) for number in range(plan.limited))
        await put_keys(store, [*(revoked(key, now) for key in gone), *limited])


async def _made(stubs: MeteringStubs) -> tuple[str, str]:
    """A new key with limits: name and token."""
    key = api_key_pb2.ApiKey(
        role=api_key_pb2.ROLE_CALLER,
        endpoints=["*"],
        limits=limits_pb2.Limits(requests_per_second=1000),
    )
    request = api_key_service_pb2.CreateApiKeyRequest(parent="projects/default", api_key=key)
    made = await stubs.keys.CreateApiKey(request)
    return made.api_key.name, made.token


@dataclass(frozen=True, slots=True)
class World:
    """Metering, router and Envoy."""

    stubs: MeteringStubs
    metering: int  # process id
    edge: EdgeUnderTest
    watched: Watched

    async def settled(self) -> float:
        """When Envoy has taken what is published."""
        edge = self.edge
        await until(
            lambda: not edge.publisher._changed.is_set() and edge._all_in_sync(),
            seconds=_SECONDS,
        )
        return time.perf_counter()

    async def revoke(self, name: str, token: str, seen: Seen) -> None:
        """One revocation, whole."""
        edge, watched = self.edge, self.watched
        assert await keys.answer(edge, token) == "OK"
        await asyncio.sleep(_PAUSE)
        envoy = edge.envoy.process.pid
        before, router = [_cpu(pid) for pid in (self.metering, envoy)], time.process_time()
        watched.news.clear()
        began = time.perf_counter()
        request = api_key_service_pb2.RevokeApiKeyRequest(name=name)
        call = asyncio.ensure_future(self.stubs.keys.RevokeApiKey(request))
        await watched.news.wait()
        taken = await self.settled()
        spent = [_cpu(pid) for pid in (self.metering, envoy)]
        router = time.process_time() - router
        while await keys.answer(edge, token) != keys.REVOKED:
            pass
        refused = time.perf_counter()
        await call
        seen.add("metering has stored it, the router has heard", watched.heard - began)
        seen.add("the router has made the filters", watched.built - watched.heard)
        seen.add("it is published, sent, and Envoy has taken it", taken - watched.built)
        seen.add("all until the first refused call", refused - began)
        seen.add("CPU: metering", spent[0] - before[0])
        seen.add("CPU: router, with this benchmark", router)
        seen.add("CPU: of it, making what Envoy gets", watched.building)
        seen.add("CPU: Envoy", spent[1] - before[1])


async def _world(folder: Path, plan: Plan, stack: AsyncExitStack) -> World:
    async with metering_process.running(folder):
        pass
    await _fill(folder, plan)
    process, stubs = await stack.enter_async_context(metering_process.running(folder))
    wrapped: list[Watched] = []

    def wrap(builder: Builder) -> Builder:
        wrapped.append(Watched(builder))
        return wrapped[0]

    address = metering_process.address_of(folder)
    edge = await keys.start(folder, None, wrap=wrap, metering_address=address)
    stack.push_async_callback(edge.stop)
    for number in range(plan.endpoints):
        name = EndpointName(f"endpoint-{number}")
        edge.set_endpoint(Endpoint(name=name, targets=(Target(V1, 1),)))
    wrapped[0].sink = edge.publisher
    metering = await stack.enter_async_context(channel.connect(address))
    following = asyncio.create_task(PolicyWatch(metering, wrapped[0]).run())
    stack.callback(following.cancel)
    return World(stubs, process.pid, edge, wrapped[0])


async def run(plan: Plan) -> None:
    """Measure and tell."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ip")))
        world = await _world(folder, plan, stack)
        made: Sequence[tuple[str, str]] = [await _made(world.stubs) for _ in range(plan.times + 1)]

        async def is_let_in() -> bool:
            return await keys.answer(world.edge, made[-1][1]) == "OK"

        await until(is_let_in, seconds=_SECONDS)
        await world.settled()
        await world.revoke(*made[-1], Seen())  # warms up
        for name, token in made[:-1]:
            await world.revoke(name, token, seen)
    sys.stdout.write(
        f"{plan.times} revocations of keys with limits, among {plan.revoked} revoked ones beside"
        f" limits of {plan.limited} keys and {plan.endpoints} endpoints\n"
    )
    head: Any = f"{'milliseconds':44} | {'median':>8} | {'most':>8}"
    sys.stdout.write("\n".join([head, *seen.lines(), ""]))


def main() -> None:
    """Read the plan and run it."""
    parser = argparse.ArgumentParser(prog="benchmarks.revocations", description=__doc__)
    parser.add_argument("--revoked", type=int, default=10_000)
    parser.add_argument("--limited", type=int, default=100_000)
    parser.add_argument("--endpoints", type=int, default=1)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    asyncio.run(run(Plan(given.revoked, given.limited, given.endpoints, given.times)))


if __name__ == "__main__":
    main()
