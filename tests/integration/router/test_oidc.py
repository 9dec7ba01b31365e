"""Tokens of an OpenID Connect issuer, end to end: a real issuer, metering that reads its keys, Envoy that asks them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from services.metering import identity
from services.metering.adapters.database import Database
from services.metering.area import Surroundings
from services.metering.settings import MeteringSettings
from services.metering.settings import OidcIssuer as Trusted
from services.router.adapters.policy_watch import PolicyWatch
from services.rpc import channel
from services.rpc.server import RpcServer
from services.rpc.tcp_ports import free_port
from tests.integration.router import keys
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.router.keys import answer, bearer
from tests.integration.router.waiting import until
from tests.manual_clock import ManualClock
from tests.oidc_issuer import OidcIssuer

_LOOK_SECONDS = 60.0  # metering reads an issuer's keys so often
AUDIENCE = "our-inference"
CALLER: dict[str, Any] = {
    "groups": {"team": "research"},
    "inference_role": "caller",
    "models": ["digits"],
}


@dataclass(slots=True)
class World:
    """An edge that follows metering, which trusts an issuer."""

    edge: EdgeUnderTest
    issuer: OidcIssuer
    clock: ManualClock

    async def sign_in(self, user: str, audience: str = AUDIENCE, **claims: Any) -> str:
        """A token; claims are those of a caller, unless others are given."""
        return await self.issuer.sign_in(user, audience, **(claims or CALLER))

    async def becomes(self, token: str, wanted: str) -> None:
        """Wait until calls with the token end so."""

        async def ends_so() -> bool:
            return await answer(self.edge, token) == wanted

        await until(ends_so, seconds=60)


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    """Metering runs here, on a clock that is moved by hand."""
    issuer = await OidcIssuer.start(free_port())
    clock = ManualClock()
    clock.set_wall(datetime.now(UTC))
    address = f"unix:{folder}/metering.sock"
    trusted = Trusted(
        issuer=issuer.url,
        audiences=(AUDIENCE,),
        project_claim="groups.team",
        role_claim="inference_role",
        endpoints_claim="models",
    )
    settings = MeteringSettings(metering_address=address, state_dir=folder, oidc_issuers=(trusted,))
    (folder / "metering").mkdir(mode=0o700)
    async with Database.open(folder / "metering" / "metering.db") as database:
        around = Surroundings(settings, database, clock, CollectorRegistry(), folder / "metering")
        area = identity.build(around)
        await area.start()
        server = RpcServer(address=address, max_message_bytes=1 << 24)
        area.register(server.grpc)
        await server.start(area.services)
        edge = await keys.start(folder, None, metering_address=address)
        async with channel.connect(address) as metering, asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(area.run()),
                tasks.create_task(PolicyWatch(metering, edge.publisher).run()),
            ]
            world = World(edge, issuer, clock)
            await world.becomes(await world.sign_in("first"), "OK")
            yield world
            for task in running:
                task.cancel()
        await edge.stop()
        area.close()
        await server.stop(0)
    await issuer.stop()


async def test_claims_say_what_a_user_may(world: World) -> None:
    """Project, role and endpoints are those that the settings' claims name; a claim that is missing is no right."""
    token = await world.sign_in("ada")
    assert await answer(world.edge, token) == "OK"
    seen = world.edge.workers[0].headers
    assert (seen["x-inferplane-project"], seen["x-inferplane-key"]) == ("research", "ada")
    assert "authorization" not in seen
    assert await answer(world.edge, token, "other") == "PERMISSION_DENIED ENDPOINT_NOT_ALLOWED"
    everything = await world.sign_in("bob", **{**CALLER, "models": ["*"]})
    assert await answer(world.edge, everything, "other") == "OK"
    path = "/inferplane.registry.v1.EndpointService/ListEndpoints"
    listing: Any = world.edge.channel.unary_unary(path)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await listing(b"", metadata=bearer(everything))
    assert keys.reason(raised.value) == "ROLE_NOT_ALLOWED"
    for missing in CALLER:
        claims = {name: value for name, value in CALLER.items() if name != missing}
        refusal = await answer(world.edge, await world.sign_in("carl", **claims))
        assert refusal.startswith(("PERMISSION_DENIED ", "UNAUTHENTICATED ")), missing


async def test_a_project_that_is_no_id_is_not_let_in(world: World) -> None:
    """Names of projects are the same for tokens of others as for ours."""
    for project, is_let_in in (("my.own_team", True), ("team-", False), ("a..b", False)):
        token = await world.sign_in("ada", **{**CALLER, "groups": {"team": project}})
        assert (await answer(world.edge, token) == "OK") is is_let_in, project


async def test_tokens_for_others_and_of_others_are_refused(world: World) -> None:
    """Another audience, and an issuer that nobody trusts, let nobody in."""
    elsewhere = await world.sign_in("ada", audience="another-service")
    assert (await answer(world.edge, elsewhere)).startswith("UNAUTHENTICATED ")
    unknown = await OidcIssuer.start(free_port())
    try:
        token = await unknown.sign_in("ada", AUDIENCE, **CALLER)
        assert (await answer(world.edge, token)).startswith("UNAUTHENTICATED ")
    finally:
        await unknown.stop()


async def test_an_issuers_new_key_takes_the_place_of_the_old(world: World) -> None:
    """While an issuer is away its tokens are good; with a new key only what that signs is, once metering has looked."""
    old = await world.sign_in("ada")
    await world.issuer.stop()
    world.clock.advance(_LOOK_SECONDS)
    assert await answer(world.edge, old) == "OK"
    world.issuer = await OidcIssuer.start(world.issuer.port)
    new = await world.sign_in("ada")
    assert (await answer(world.edge, new)).startswith("UNAUTHENTICATED ")
    world.clock.advance(_LOOK_SECONDS)
    await world.becomes(new, "OK")
    assert (await answer(world.edge, old)).startswith("UNAUTHENTICATED ")
    await world.issuer.stop()
