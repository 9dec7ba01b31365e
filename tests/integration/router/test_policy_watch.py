"""Following metering's policy: in parts, resumed, begun anew, and with facts that this router does not know."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from inferplane.metering.v1 import limits_pb2
from inferplane.metering.v1 import policy_service_pb2 as pb
from inferplane.metering.v1.policy_service_pb2_grpc import (
    PolicyServiceServicer,
    add_PolicyServiceServicer_to_server,
)

from services.router.adapters.policy_watch import PolicyWatch
from services.router.domain.policy import (
    OTHERS,
    Issuer,
    Limits,
    Policy,
    PolicyBook,
    PolicyUpdate,
    SigningKey,
)
from services.rpc import channel
from services.rpc.errors import OutOfRangeError
from services.rpc.server import RpcServer
from tests.integration.router.waiting import until


@dataclass(slots=True)
class Metering(PolicyServiceServicer):
    """Says what it is told to; a revision from before it began is one that it doesn't know."""

    begins_at: int = 1
    asked: list[int] = field(default_factory=list)
    says: "asyncio.Queue[pb.WatchPolicyResponse | None]" = field(default_factory=asyncio.Queue)

    async def WatchPolicy(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.WatchPolicyResponse]:
        self.asked.append(request.after_revision)
        if 0 < request.after_revision < self.begins_at:
            raise OutOfRangeError("no longer kept", reason="REVISION_UNAVAILABLE")
        while (message := await self.says.get()) is not None:
            yield message


@dataclass(slots=True)
class Sink:
    """What the publisher does with what it hears."""

    book: PolicyBook = field(default_factory=PolicyBook)
    connected: bool = False

    def hear_policy(self, update: PolicyUpdate) -> None:
        self.connected = True
        self.book.apply(update)

    def lose_metering(self) -> None:
        self.connected = False


@dataclass(slots=True)
class World:
    """Both, connected."""

    metering: Metering
    sink: Sink

    def say(self, *changes: pb.PolicyChange, revision: int = 1, synced: bool = True) -> None:
        message = pb.WatchPolicyResponse(changes=changes, revision=revision, synced=synced)
        self.metering.says.put_nowait(message)

    async def knows(self, policy: Policy) -> None:
        await until(lambda: self.sink.book.current == policy, seconds=60)


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    """A watch of a metering that has said nothing yet."""
    metering, sink = Metering(), Sink()
    server = RpcServer(address=f"unix:{folder}/metering.sock", max_message_bytes=1 << 20)
    add_PolicyServiceServicer_to_server(metering, server.grpc)
    address = await server.start(["inferplane.metering.v1.PolicyService"])
    async with channel.connect(address) as connected:
        watch = asyncio.create_task(PolicyWatch(connected, sink).run())
        yield World(metering, sink)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    await server.stop(0)


def limits(name: str, rate: float, *, removed: bool = False) -> pb.PolicyChange:
    of = pb.SubjectLimits(name=name)
    if not removed:
        of.limits.CopyFrom(limits_pb2.Limits(requests_per_second=rate, burst=2, shadow=True))
    return pb.PolicyChange(subject_limits=of, removed=removed)


def revoked(name: str, *, removed: bool = False) -> pb.PolicyChange:
    return pb.PolicyChange(revocation=pb.Revocation(name=name), removed=removed)


async def test_every_kind_of_fact(world: World) -> None:
    """In parts; nothing is known before the last of them. A fact that is new to this router is left out."""
    key = pb.PolicyChange(signing_key=pb.SigningKey(kid="k", jwk="{}"))
    issuer = pb.Issuer(
        issuer="https://i",
        jwks="{}",
        audiences=["a", "b"],
        project_claim="p",
        role_claim="r",
        endpoints_claim="e.f",
    )
    world.say(key, limits("projects/p", 0.5), revision=0, synced=False)
    await until(lambda: world.sink.connected, seconds=60)
    assert world.sink.book.current is None
    world.say(pb.PolicyChange(issuer=issuer), revoked("projects/p/keys/x"), pb.PolicyChange())
    expected = Issuer(
        issuer="https://i",
        jwks="{}",
        audiences=("a", "b"),
        project_claim="p",
        role_claim="r",
        endpoints_claim="e.f",
    )
    shadow = Limits(requests_per_second=0.5, burst=2, shadow=True)
    await world.knows(
        Policy(
            signing_keys=(SigningKey("k", "{}"),),
            issuers=(expected,),
            revoked_keys={OTHERS: ("x",)},
            limits={OTHERS: (("projects/p", shadow),)},
        )
    )
    gone = pb.PolicyChange(issuer=pb.Issuer(issuer="https://i"), removed=True)
    world.say(gone, limits("projects/p", 0, removed=True), revision=2)
    await world.knows(Policy(signing_keys=(SigningKey("k", "{}"),), revoked_keys={OTHERS: ("x",)}))


async def test_a_watch_that_ended_is_resumed(world: World) -> None:
    """After the last revision that was complete; what is known stays meanwhile."""
    world.say(revoked("projects/p"), revision=7)
    await world.knows(Policy(disabled_projects=("p",)))
    world.metering.says.put_nowait(None)
    await until(lambda: world.metering.asked == [0, 7], seconds=60)
    assert world.sink.book.current == Policy(disabled_projects=("p",))
    world.say(revoked("projects/q"), revision=8)
    await world.knows(Policy(disabled_projects=("p", "q")))


async def test_a_revision_that_is_not_kept_begins_anew(world: World) -> None:
    """All is asked for, and replaces what was known once it is complete."""
    world.say(revoked("projects/p"), revision=7)
    await world.knows(Policy(disabled_projects=("p",)))
    world.metering.begins_at = 100
    world.metering.says.put_nowait(None)
    await until(lambda: world.metering.asked == [0, 7, 0], seconds=60)
    assert world.sink.book.current == Policy(disabled_projects=("p",))
    world.say(revoked("projects/new"), revision=101)
    await world.knows(Policy(disabled_projects=("new",)))
