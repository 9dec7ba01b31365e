"""Identity in the process: first start, restarts, kills, what watchers hear, and what callers are refused."""

import asyncio
import signal
import stat
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from inferplane.metering.v1 import api_key_pb2, api_key_service_pb2, project_service_pb2
from inferplane.metering.v1 import policy_service_pb2 as policy_pb
from prometheus_client import CollectorRegistry

from services.metering.__main__ import serve
from services.metering.settings import MeteringSettings
from services.rpc.errors import FailedPreconditionError
from services.rpc.settings import load
from tests.integration.metering.metering_process import (
    SECONDS,
    MeteringStubs,
    connected,
    end,
    launch,
    running,
    serving,
)
from tests.metering_keys import KeyMint

CALLER = api_key_pb2.ApiKey(role=api_key_pb2.ROLE_CALLER, endpoints=["chat"])
DEFAULT = "projects/default"


async def make_key(stubs: MeteringStubs) -> api_key_service_pb2.CreateApiKeyResponse:
    return await stubs.keys.CreateApiKey(
        api_key_service_pb2.CreateApiKeyRequest(parent=DEFAULT, api_key=CALLER)
    )


async def revoke(stubs: MeteringStubs, name: str) -> None:
    await stubs.keys.RevokeApiKey(api_key_service_pb2.RevokeApiKeyRequest(name=name))


async def all_keys(stubs: MeteringStubs) -> list[api_key_pb2.ApiKey]:
    found: list[api_key_pb2.ApiKey] = []
    token = ""
    while True:
        page = await stubs.keys.ListApiKeys(
            api_key_service_pb2.ListApiKeysRequest(
                parent="projects/-", show_ended=True, page_size=7, page_token=token
            )
        )
        found += page.api_keys
        token = page.next_page_token
        if not token:
            return found


async def claims(stubs: MeteringStubs, token: str) -> dict[str, Any]:
    """The token's claims, verified by the published keys."""
    answer = await stubs.keys.GetJwks(api_key_service_pb2.GetJwksRequest())
    kid = jwt.get_unverified_header(token)["kid"]
    verified: dict[str, Any] = jwt.decode(
        token, jwt.PyJWKSet.from_json(answer.jwks)[kid], ["EdDSA"], audience="inferplane", leeway=60
    )
    return verified


async def snapshot(stubs: MeteringStubs) -> list[policy_pb.PolicyChange]:
    watch = stubs.policy.WatchPolicy(policy_pb.WatchPolicyRequest())
    changes: list[policy_pb.PolicyChange] = []
    async with asyncio.timeout(SECONDS):
        async for response in watch:
            changes += response.changes
            if response.synced:
                break
    watch.cancel()
    return changes


def admin_token(folder: Path) -> str:
    return (folder / "admin.key").read_text().strip()


async def test_a_first_start_a_second_process_a_watcher_and_a_restart(folder: Path) -> None:
    """One admin is made and kept, nobody shares the folder, and a watcher hears of all, of the stop too."""
    async with running(folder) as (process, stubs):
        token = admin_token(folder)
        assert stat.S_IMODE((folder / "admin.key").stat().st_mode) == 0o600
        (admin,) = await all_keys(stubs)
        assert admin.role == api_key_pb2.ROLE_ADMIN
        assert (await claims(stubs, token))["sub"] == admin.name
        second = await launch(folder, metering_address=f"unix:{folder}/other.sock")
        code, said = await end(second, None)
        assert code == 1
        assert f"in use by another metering (process {process.pid})" in said
        made = await make_key(stubs)
        watch = stubs.policy.WatchPolicy(policy_pb.WatchPolicyRequest())
        async with asyncio.timeout(SECONDS):
            first = await watch.read()
            await revoke(stubs, made.api_key.name)
            news = await watch.read()
            assert isinstance(first, policy_pb.WatchPolicyResponse)
            assert isinstance(news, policy_pb.WatchPolicyResponse)
            assert [change.WhichOneof("fact") for change in first.changes] == ["signing_key"]
            assert [change.revocation.name for change in news.changes] == [made.api_key.name]
            process.send_signal(signal.SIGTERM)
            with pytest.raises(grpc.aio.AioRpcError) as stopped:
                await watch.read()
        assert stopped.value.code() is grpc.StatusCode.UNAVAILABLE
    async with running(folder) as (_, stubs):
        again = stubs.policy.WatchPolicy(policy_pb.WatchPolicyRequest(after_revision=news.revision))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await again.read()
        assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
        facts = {change.WhichOneof("fact") for change in await snapshot(stubs)}
        assert facts == {"signing_key", "revocation"}
        assert admin_token(folder) == token
        assert {key.name for key in await all_keys(stubs)} == {admin.name, made.api_key.name}


async def test_a_watcher_that_does_not_read_holds_up_nobody(metering: MeteringStubs) -> None:
    """Writers go on, another watcher hears at once, and the sleeper gets it all when it wakes."""
    stubs = metering
    sleeper = stubs.policy.WatchPolicy(policy_pb.WatchPolicyRequest())
    made = [(await make_key(stubs)).api_key.name for _ in range(40)]
    for name in made:
        await revoke(stubs, name)
    awake = {change.revocation.name for change in await snapshot(stubs)} - {""}
    heard: set[str] = set()
    async with asyncio.timeout(SECONDS):
        while not heard >= set(made):
            response = await sleeper.read()
            assert isinstance(response, policy_pb.WatchPolicyResponse)
            heard |= {change.revocation.name for change in response.changes} - {""}
    assert awake == heard == set(made)
    sleeper.cancel()


class Acknowledged(list[tuple[str, str]]):
    """What callers were told: (made, token) or (revoked, name of a key)."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = asyncio.Event()

    def note(self, *facts: tuple[str, str]) -> None:
        self.extend(facts)
        self._grown.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(self) < count:
                self._grown.clear()
                await self._grown.wait()


async def work_until_killed(stubs: MeteringStubs, acknowledged: Acknowledged) -> None:
    """Make, revoke and rotate, noting what was acknowledged, until the connection is gone."""
    try:
        while True:
            made = await make_key(stubs)
            acknowledged.note(("made", made.token))
            await revoke(stubs, made.api_key.name)
            acknowledged.note(("revoked", made.api_key.name))
            old = await make_key(stubs)
            rotated = await stubs.keys.RotateApiKey(
                api_key_service_pb2.RotateApiKeyRequest(
                    name=old.api_key.name, overlap=Duration(seconds=0)
                )
            )
            acknowledged.note(("revoked", old.api_key.name), ("made", rotated.token))
            await stubs.keys.RotateSigningKey(api_key_service_pb2.RotateSigningKeyRequest())
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            raise


def there(folder: Path, pattern: str) -> bool:
    return any(folder.glob(pattern))


async def killed_at_first_starts(folder: Path) -> None:
    """Kill the very first start once there is a signing key, and the next once there is the admin's file."""
    for stage in ("metering/signing/*.pem", "admin.key"):
        process = await launch(folder)
        async with asyncio.timeout(SECONDS):
            while not there(folder, stage):  # noqa: ASYNC110 - nobody but the disk can tell
                await asyncio.sleep(0.001)
        await end(process, signal.SIGKILL)


async def killed_at_work(folder: Path, acknowledged: Acknowledged, answers: int) -> None:
    """Kill a process after so many answers."""
    process = await launch(folder)
    async with connected(folder) as stubs:
        await serving(process, stubs)
        working = asyncio.create_task(work_until_killed(stubs, acknowledged))
        await acknowledged.until(len(acknowledged) + answers)
        await end(process, signal.SIGKILL)
        await working


async def test_a_kill_between_any_two_writes_loses_nothing_acknowledged(folder: Path) -> None:
    """A half-done first start is made good: one admin, whose token is in the file; keys and revocations hold."""
    acknowledged = Acknowledged()
    await killed_at_first_starts(folder)
    for answers in (5, 11):  # each time in another call of the round
        await killed_at_work(folder, acknowledged, answers)
    async with running(folder) as (_, stubs):
        stored = {key.name: key for key in await all_keys(stubs)}
        admins = [key.name for key in stored.values() if key.role == api_key_pb2.ROLE_ADMIN]
        assert admins == [(await claims(stubs, admin_token(folder)))["sub"]]
        revocations = {change.revocation.name for change in await snapshot(stubs)}
        for what, said in acknowledged:
            if what == "made":
                assert (await claims(stubs, said))["sub"] in stored
            else:
                assert stored[said].HasField("revoke_time")
                assert said in revocations
        made = await make_key(stubs)
        kid = jwt.get_unverified_header(made.token)["kid"]
        assert KeyMint.of_folder(folder).kid == kid


async def test_plain_tcp_is_refused(folder: Path) -> None:
    """Whoever reached it could make keys, and on this machine others may be at home too."""
    settings = load(MeteringSettings, state_dir=folder, metering_address="127.0.0.1:0")
    with pytest.raises(FailedPreconditionError, match="INFERPLANE_TLS_DIR"):
        await serve(settings, asyncio.Event(), CollectorRegistry())
    assert not (folder / "admin.key").exists()


def violations(error: grpc.aio.AioRpcError) -> list[str]:
    status = rpc_status.from_call(error)
    assert status is not None
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            return [violation.field for violation in bad.field_violations]
    return []


async def test_what_callers_are_refused(metering: MeteringStubs) -> None:
    """The fields are named, all at once."""
    keys = api_key_service_pb2
    stubs = metering
    calls: list[tuple[Any, list[str]]] = [
        (
            stubs.keys.CreateApiKey(keys.CreateApiKeyRequest(parent="p", api_key=CALLER)),
            ["parent"],
        ),
        (
            stubs.keys.CreateApiKey(
                keys.CreateApiKeyRequest(
                    parent=DEFAULT, api_key=api_key_pb2.ApiKey(name=f"{DEFAULT}/keys/mine")
                )
            ),
            ["api_key.name"],
        ),
        (
            stubs.keys.CreateApiKey(
                keys.CreateApiKeyRequest(
                    parent=DEFAULT,
                    api_key=api_key_pb2.ApiKey(label="\n"),
                    lifetime=Duration(seconds=-1),
                )
            ),
            ["lifetime", "api_key.label", "api_key.role"],
        ),
        (
            stubs.keys.CreateApiKey(
                keys.CreateApiKeyRequest(
                    parent=DEFAULT,
                    api_key=api_key_pb2.ApiKey(role=17, endpoints=["*"]),  # type: ignore[arg-type] # a role that a newer client may know
                )
            ),
            ["api_key.role"],
        ),
        (
            stubs.keys.ListApiKeys(
                keys.ListApiKeysRequest(parent=DEFAULT, page_token="x", page_size=1)
            ),
            ["page_token"],
        ),
        (
            stubs.keys.RotateSigningKey(
                keys.RotateSigningKeyRequest(overlap=Duration(seconds=10**11))
            ),
            ["overlap"],
        ),
        (
            stubs.projects.CreateProject(project_service_pb2.CreateProjectRequest()),
            ["project.name"],
        ),
    ]
    for call, fields in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violations(caught.value) == fields
