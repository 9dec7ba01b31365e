"""The publisher: half a world is not published, a bad picture is refused, leases end by the clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

import pytest

from services.router.domain.catalog import CatalogUpdate, EndpointChange
from services.router.domain.policy import Policy, PolicyUpdate, RevocationChange
from services.router.domain.snapshot import Kind, Reference, Resource
from services.router.domain.topology import Endpoint, Target, Topology, Worker
from services.router.drivers.board import Board
from services.router.drivers.publisher import Publisher
from services.rpc.names import AliasName, EndpointName, VersionName

V1 = VersionName("m", "1")
ENDPOINT = Endpoint(name=EndpointName("e"), targets=(Target(V1, 1),))
WORKER = Worker(name="workers/a", address="a:1", ready=frozenset([V1]))
SYNCED = CatalogUpdate(
    changes=(EndpointChange(ENDPOINT.name, ENDPOINT),), synced=True, restart=True
)


@dataclass(slots=True)
class ManualClock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


@dataclass(slots=True)
class SmallBuilder:
    """One cluster with the workers' addresses as its content, and a filter with the policy."""

    dangling: bool = False
    takes: Callable[[], None] = field(default=lambda: None)
    built: int = 0

    def build(self, topology: Topology, policy: Policy | None) -> Iterable[Resource]:
        self.built += 1
        self.takes()
        references = [Reference(Kind.ASSIGNMENT, "gone")] if self.dangling else []
        yield Resource.of(Kind.CLUSTER, "c", repr(topology.addresses).encode(), references)
        if policy is not None:
            yield Resource.of(Kind.FILTER, "f", repr(policy).encode())


@dataclass(slots=True)
class Bench:
    """A running publisher and what it publishes."""

    clock: ManualClock = field(default_factory=ManualClock)
    board: Board = field(default_factory=Board)
    builder: SmallBuilder = field(default_factory=SmallBuilder)
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        self.publisher = Publisher(
            board=self.board, builder=self.builder, clock=self.clock, lease=0.0625
        )

    async def turn(self) -> None:
        """Let the publisher do what it has to do now."""
        for _ in range(5):
            await asyncio.sleep(0)

    def published(self) -> tuple[str, ...] | None:
        return None if self.board.current is None else self.board.current.topology.addresses


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    running = asyncio.create_task(bench.publisher.run())
    yield bench
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_half_a_world_is_not_published(bench: Bench) -> None:
    """Nothing is published before both the registry and discovery have spoken."""
    bench.publisher.hear_registry(SYNCED)
    await bench.turn()
    assert bench.published() is None
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    assert bench.published() == ("a:1",)


async def test_initial_state_must_be_complete(bench: Bench) -> None:
    """Parts of the registry's initial state are not published."""
    bench.publisher.hear_discovery([WORKER])
    bench.publisher.hear_registry(CatalogUpdate(changes=(), synced=False, restart=True))
    await bench.turn()
    assert bench.published() is None


async def test_first_picture_settles_when_served_or_when_the_lease_is_over(bench: Bench) -> None:
    """1. No worker yet: unsettled. 2. After one lease it is settled all the same."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([])
    await bench.turn()
    assert bench.board.current is not None
    assert not bench.board.current.settled
    wake = asyncio.Event()
    bench.board.join(wake)
    bench.clock.now += 0.0625
    async with asyncio.timeout(5):
        await wake.wait()
    assert bench.board.current.settled


async def test_served_picture_is_settled_and_stays_so(bench: Bench) -> None:
    """Once every target has a worker the picture is settled, whatever happens to the workers then."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    bench.publisher.hear_discovery([])
    await bench.turn()
    assert bench.board.current is not None
    assert bench.board.current.settled
    assert bench.published() == ()


async def test_lost_worker_leaves_by_the_clock(bench: Bench) -> None:
    """A worker that a reconnected discovery doesn't know goes after one lease, without another word."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    bench.publisher.lose_discovery()
    bench.publisher.hear_discovery([])
    await bench.turn()
    assert bench.published() == ("a:1",)
    wake = asyncio.Event()
    bench.board.join(wake)
    bench.clock.now += 0.0625
    async with asyncio.timeout(5):
        await wake.wait()
    assert bench.published() == ()


async def test_bad_picture_is_refused_and_the_last_good_stays(bench: Bench) -> None:
    """What doesn't add up is not published; its reason is kept until a good picture comes."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    good = bench.board.current
    bench.builder.dangling = True
    bench.publisher.hear_discovery([])
    await bench.turn()
    assert bench.board.current is good
    assert "'gone'" in bench.publisher.refused
    bench.builder.dangling = False
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    assert bench.publisher.refused == ""


async def test_unknown_alias_is_refused(bench: Bench) -> None:
    """An endpoint whose alias isn't there leaves the last good picture, and says which."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    lost = Endpoint(name=EndpointName("x"), targets=(Target(AliasName("m", "champion"), 1),))
    change = EndpointChange(lost.name, lost)
    bench.publisher.hear_registry(CatalogUpdate(changes=(change,), synced=True))
    await bench.turn()
    assert (
        bench.publisher.refused == "endpoints/x names models/m/aliases/champion, which is not there"
    )


async def test_a_revocation_waits_for_no_endpoint(bench: Bench) -> None:
    """While an endpoint can't be routed the policy is published with the last good routes."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    bench.publisher.hear_policy(PolicyUpdate(changes=(), synced=True, restart=True))
    await bench.turn()
    good = bench.board.current
    assert good is not None
    lost = Endpoint(name=EndpointName("x"), targets=(Target(AliasName("m", "champion"), 1),))
    change = EndpointChange(lost.name, lost)
    bench.publisher.hear_registry(CatalogUpdate(changes=(change,), synced=True))
    await bench.turn()
    assert bench.board.current is good
    revocation = RevocationChange("projects/p/keys/k", revoked=True)
    bench.publisher.hear_policy(PolicyUpdate(changes=(revocation,), synced=True))
    await bench.turn()
    now = bench.board.current
    assert now is not good
    assert now is not None
    assert now.topology is good.topology
    assert "champion" in bench.publisher.refused


async def test_what_comes_faster_than_it_is_published_is_published_together(bench: Bench) -> None:
    """Changes that stream in while publications take long don't wait in line, one publication each."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    bench.publisher.hear_policy(PolicyUpdate(changes=(), synced=True, restart=True))
    await bench.turn()

    def take_long() -> None:
        bench.clock.now += 0.05

    bench.builder.takes = take_long
    before = bench.builder.built
    for number in range(200):
        change = RevocationChange(f"projects/p/keys/k{number}", revoked=True)
        bench.publisher.hear_policy(PolicyUpdate(changes=(change,), synced=True))
        await bench.turn()
    assert 0 < bench.builder.built - before < 100


async def test_publish_time_is_that_of_the_snapshot(bench: Bench) -> None:
    """The same snapshot published again keeps its time."""
    bench.publisher.hear_registry(SYNCED)
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    bench.clock.now += 10
    bench.publisher.hear_discovery([WORKER])
    await bench.turn()
    assert bench.board.current is not None
    assert bench.board.current.time == 100.0
