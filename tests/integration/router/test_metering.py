"""The edge and the real metering: keys are made, limited, rotated and revoked through the edge, and hold there."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from inferplane.metering.v1 import (
    api_key_pb2,
    api_key_service_pb2,
    limits_pb2,
    project_pb2,
    project_service_pb2,
)
from inferplane.metering.v1.api_key_service_pb2_grpc import ApiKeyServiceStub
from inferplane.metering.v1.project_service_pb2_grpc import ProjectServiceStub

from services.router.adapters.policy_watch import PolicyWatch
from services.rpc import channel
from tests.integration.metering import metering_process
from tests.integration.router import keys
from tests.integration.router.edge import EdgeUnderTest
from tests.integration.router.keys import REVOKED, answer, bearer
from tests.integration.router.waiting import until

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Metered:
    """An edge that follows a metering process, and calls of its admin through the edge."""

    edge: EdgeUnderTest
    admin: str

    @property
    def keys(self) -> Any:
        return ApiKeyServiceStub(self.edge.channel)

    @property
    def projects(self) -> Any:
        return ProjectServiceStub(self.edge.channel)

    async def key(self, **fields: Any) -> tuple[api_key_pb2.ApiKey, str]:
        """A key for `digits`, and its token."""
        fields = {"role": api_key_pb2.ROLE_CALLER, "endpoints": ["digits"], **fields}
        request = api_key_service_pb2.CreateApiKeyRequest(
            parent="projects/default", api_key=api_key_pb2.ApiKey(**fields)
        )
        made = await self.keys.CreateApiKey(request, metadata=bearer(self.admin), timeout=_SECONDS)
        return made.api_key, made.token

    async def becomes(self, token: str, expected: str, name: str = "digits") -> None:
        """Wait until calls with this token end so."""

        async def does() -> bool:
            return await answer(self.edge, token, name) == expected

        await until(does, seconds=_SECONDS)


@asynccontextmanager
async def edge_of(folder: Path) -> AsyncIterator[EdgeUnderTest]:
    """An edge that follows whatever metering serves in the folder."""
    address = metering_process.address_of(folder)
    edge = await keys.start(folder, None, metering_address=address)
    async with channel.connect(address) as metering:
        following = asyncio.create_task(PolicyWatch(metering, edge.publisher).run())
        try:
            yield edge
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await edge.stop()


async def read(path: Path) -> str:
    return (await asyncio.to_thread(path.read_text)).strip()


async def test_what_the_admin_does_holds_at_the_edge(folder: Path) -> None:
    """With one metering, since starting it takes longest: a key's life, roles, signing keys, limits."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(metering_process.running(folder))
        edge = await stack.enter_async_context(edge_of(folder))
        metered = Metered(edge, await read(folder / "admin.key"))
        await metered.becomes(metered.admin, "OK")
        await _a_key_s_life(metered)
        await _callers_manage_nothing(metered)
        await _signing_keys_are_rotated(metered)
        await _limits_hold(metered)


async def _a_key_s_life(metered: Metered) -> None:
    """Good for its endpoint alone, rotated with an overlap, revoked."""
    key, token = await metered.key()
    await metered.becomes(token, "OK")
    assert await answer(metered.edge, token, "other") == "PERMISSION_DENIED ENDPOINT_NOT_ALLOWED"
    heard = metered.edge.workers[0].headers
    assert f"projects/{heard['x-inferplane-project']}/keys/{heard['x-inferplane-key']}" == key.name
    request = api_key_service_pb2.RotateApiKeyRequest(name=key.name, overlap=Duration(seconds=3600))
    rotated = await metered.keys.RotateApiKey(request, metadata=bearer(metered.admin))
    assert [await answer(metered.edge, one) for one in (token, rotated.token)] == ["OK", "OK"]
    revoke = api_key_service_pb2.RevokeApiKeyRequest(name=key.name)
    await metered.keys.RevokeApiKey(revoke, metadata=bearer(metered.admin))
    await metered.becomes(token, REVOKED)
    assert await answer(metered.edge, rotated.token) == "OK"


async def _callers_manage_nothing(metered: Metered) -> None:
    """A caller's key makes no keys, nor does a viewer's or a deployer's."""
    for role in (api_key_pb2.ROLE_CALLER, api_key_pb2.ROLE_VIEWER, api_key_pb2.ROLE_DEPLOYER):
        _, token = await metered.key(role=role)
        await metered.becomes(token, "OK")
        other = Metered(metered.edge, token)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await other.key(role=api_key_pb2.ROLE_ADMIN)
        assert keys.reason(raised.value) == "ROLE_NOT_ALLOWED"


async def _signing_keys_are_rotated(metered: Metered) -> None:
    """Old and new tokens are good while both signing keys hold."""
    _, old = await metered.key()
    await metered.becomes(old, "OK")
    request = api_key_service_pb2.RotateSigningKeyRequest(overlap=Duration(seconds=3600))
    await metered.keys.RotateSigningKey(request, metadata=bearer(metered.admin))
    _, new = await metered.key()
    await metered.becomes(new, "OK")
    assert await answer(metered.edge, old) == "OK"


async def _limits_hold(metered: Metered) -> None:
    """A project's hold for its keys from the moment they are set."""
    _, token = await metered.key()
    await metered.becomes(token, "OK")
    project = project_pb2.Project(
        name="projects/default", limits=limits_pb2.Limits(requests_per_second=0.001, burst=2)
    )
    request = project_service_pb2.UpdateProjectRequest(
        project=project, update_mask=FieldMask(paths=["limits"])
    )
    await metered.projects.UpdateProject(request, metadata=bearer(metered.admin))
    await metered.becomes(token, "RESOURCE_EXHAUSTED REQUESTS_PER_SECOND")


async def test_metering_is_killed(folder: Path) -> None:
    """Known keys go on, revoked ones stay out; with metering back, new ones come in."""
    async with edge_of(folder) as edge, metering_process.connected(folder) as stubs:
        process = await metering_process.launch(folder)
        await metering_process.serving(process, stubs)
        made = Metered(edge, await read(folder / "admin.key"))
        await made.becomes(made.admin, "OK")
        _, token = await made.key()
        gone, revoked = await made.key()
        await made.keys.RevokeApiKey(
            api_key_service_pb2.RevokeApiKeyRequest(name=gone.name), metadata=bearer(made.admin)
        )
        await made.becomes(revoked, REVOKED)
        await made.becomes(token, "OK")
        await metering_process.end(process, signal.SIGKILL)
        await until(lambda: not edge.publisher.metering_connected, seconds=_SECONDS)
        assert await answer(edge, token) == "OK"
        assert await answer(edge, revoked) == REVOKED
        process = await metering_process.launch(folder)
        await metering_process.serving(process, stubs)
        await until(lambda: edge.publisher.metering_connected, seconds=_SECONDS)
        _, new = await made.key()
        await made.becomes(new, "OK")
        assert await answer(edge, revoked) == REVOKED
        await metering_process.end(process, signal.SIGTERM)
