"""Two metering processes on one Postgres: one policy, one ledger, one set of leases, whoever of them is killed when."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import itertools
import json
import random
import signal
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import jwt
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2
from inferplane.metering.v1 import (
    api_key_pb2,
    api_key_service_pb2,
    budget_pb2,
    budget_service_pb2,
    budget_service_pb2_grpc,
    lease_service_pb2,
    lease_service_pb2_grpc,
)
from inferplane.metering.v1 import policy_service_pb2 as policy_pb

from services.metering.adapters.database import Database
from tests.contract.metering.shared_desks import Holder
from tests.integration.metering.metering_process import (
    SECONDS,
    MeteringStubs,
    connected,
    end,
    launch,
    serving,
)
from tests.integration.metering.test_identity_process import all_keys, make_key, revoke
from tests.integration.metering.test_ledger_process import (
    record,
    request_of,
    set_price,
    total,
    verified,
)
from tests.metering_postgres import target_of
from tests.postgres import PostgresServer

BUDGET = "projects/default/budgets/b"
AMOUNT = 60_000


@dataclass
class Pair:
    """Two processes on one database, with one folder for what is secret."""

    folder: Path
    url: str
    processes: dict[int, asyncio.subprocess.Process]
    stubs: list[MeteringStubs]

    async def start(self, number: int) -> None:
        self.processes[number] = await launch(
            self.place(number), state_dir=str(self.folder / "shared"), store_url=self.url
        )

    def place(self, number: int) -> Path:
        place = self.folder / str(number)
        place.mkdir(exist_ok=True)
        return place

    async def serves(self, number: int) -> None:
        await serving(self.processes[number], self.stubs[number])

    async def says(
        self, number: int, wanted: health_pb2.HealthCheckResponse.ServingStatus.ValueType
    ) -> None:
        """Wait until the process says so of itself."""
        watch = self.stubs[number].health.Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(SECONDS):
            async for told in watch:
                if told.status == wanted:
                    break
        watch.cancel()

    async def kill(self, number: int) -> None:
        await end(self.processes[number], signal.SIGKILL)

    async def somewhere(self, act: Callable[[MeteringStubs], Awaitable[int]]) -> int:
        """Call one after the other until it is answered."""
        async with asyncio.timeout(3 * SECONDS):
            for stubs in itertools.cycle(random.sample(self.stubs, 2)):
                try:
                    return await act(stubs)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    await asyncio.sleep(0.05)
        raise AssertionError


@asynccontextmanager
async def pair(folder: Path, url: str) -> AsyncIterator[Pair]:
    """Both, started at the same moment; at the end those that live are told to stop."""
    async with AsyncExitStack() as stack:
        both = Pair(folder, url, {}, [])
        for number in range(2):
            both.stubs.append(await stack.enter_async_context(connected(both.place(number))))
        try:
            await asyncio.gather(*(both.start(number) for number in range(2)))
            await asyncio.gather(*(both.serves(number) for number in range(2)))
            yield both
            for process in both.processes.values():
                if process.returncode is None:
                    code, said = await end(process, signal.SIGTERM)
                    assert code == 0, said
        finally:
            for process in both.processes.values():
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def heard(watch: AsyncIterable[policy_pb.WatchPolicyResponse], what: str) -> None:
    """Read news until something is said of it."""
    async with asyncio.timeout(SECONDS):
        async for news in watch:
            if what in str(news):
                return
    raise AssertionError(what)


async def read_out(
    watch: grpc.aio.UnaryStreamCall[policy_pb.WatchPolicyRequest, policy_pb.WatchPolicyResponse],
) -> None:
    """Read until the stream ends."""
    async with asyncio.timeout(SECONDS):
        while await watch.read() is not grpc.aio.EOF:
            pass


async def test_two_that_start_at_once_are_one(folder: Path, postgres_url: str) -> None:
    """One schema, signing key and admin; what is written at one is heard and counts at the other."""
    async with pair(folder, postgres_url) as both:
        first, second = both.stubs
        assert [key.role for key in await all_keys(first)] == [api_key_pb2.ROLE_ADMIN]
        watch = first.policy.WatchPolicy(policy_pb.WatchPolicyRequest())
        made = await make_key(second)
        await revoke(second, made.api_key.name)
        await heard(watch, made.api_key.name)
        # A reader that moves to the other process begins anew, as its revisions are others.
        async with asyncio.timeout(SECONDS):
            moved = second.policy.WatchPolicy(policy_pb.WatchPolicyRequest(after_revision=1))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await moved.read()
            assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
        rotate = api_key_service_pb2.RotateSigningKeyRequest(overlap=Duration(seconds=3600))
        rotated = await second.keys.RotateSigningKey(rotate)
        token = (await make_key(first)).token
        assert jwt.get_unverified_header(token)["kid"] == rotated.kid
        keys = await first.keys.GetJwks(api_key_service_pb2.GetJwksRequest())
        assert len(json.loads(keys.jwks)["keys"]) == 2
        await set_price(first, "0.5")
        await record(second, request_of(0, 2))
        await record(first, request_of(2, 2))
        for stubs in both.stubs:
            assert (await total(stubs)).charged == "6"
            assert (await verified(stubs)).ok


@pytest.mark.parametrize("victim", ["a process", "Postgres"])
async def test_kills_under_load_lose_nothing_count_nothing_twice_and_grant_no_more(
    folder: Path, own_postgres: PostgresServer, victim: str
) -> None:
    """Usage of 3 outboxes and 4 holders' exchanges go to both; one of them, or Postgres, is killed meanwhile."""
    rows, wanted = 50, 800
    half = asyncio.Event()
    async with pair(folder, own_postgres.url) as both:
        uid = await make_budget(both.stubs[0])

        async def send(source: str) -> None:
            sent = 0
            while sent < wanted:
                request = request_of(sent, min(rows, wanted - sent), source)
                request.batch.request_ids = ids(source, sent, rows)
                sent = await both.somewhere(partial(record, request=request))
                if sent >= wanted // 2:
                    half.set()

        holders = [Holder(f"w{n}", uid, drawn=random.Random(n)) for n in range(4)]
        loads = [asyncio.create_task(send(f"outbox-{n}")) for n in range(3)]
        loads += [asyncio.create_task(exchanges(both, holder)) for holder in holders]
        await half.wait()
        if victim == "Postgres":
            await asyncio.to_thread(own_postgres.kill)
            await asyncio.to_thread(own_postgres.start)
        else:
            await both.kill(0)
        await asyncio.gather(*loads)
        if victim == "a process":
            await both.start(0)
            await both.serves(0)
        assert sum(holder.granted for holder in holders) <= AMOUNT
        for stubs in both.stubs:
            found, sums = await verified(stubs), await total(stubs)
            assert (found.ok, found.rows) == (True, 3 * wanted), found.problems
            assert (sums.requests, sums.output_tokens) == (3 * wanted, 3 * 3 * wanted)
            budgets = budget_service_pb2_grpc.BudgetServiceStub(stubs.channel)
            answer = await budgets.GetBudget(budget_service_pb2.GetBudgetRequest(name=BUDGET))
            status = answer.budget.status
            assert int(status.used) + int(status.held) + int(status.unreported) <= AMOUNT


async def test_a_process_that_is_cut_off_does_not_serve(
    folder: Path, own_postgres: PostgresServer
) -> None:
    """1. Postgres is gone: it reports NOT_SERVING and ends watches; 2. it is back: both go on."""
    async with pair(folder, own_postgres.url) as both:
        watch = both.stubs[0].policy.WatchPolicy(policy_pb.WatchPolicyRequest())
        assert await watch.read()
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_out(watch)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await both.says(0, health_pb2.HealthCheckResponse.NOT_SERVING)
        await asyncio.to_thread(own_postgres.start)
        for number in range(2):
            await both.says(number, health_pb2.HealthCheckResponse.SERVING)
        made = await make_key(both.stubs[1])
        await revoke(both.stubs[1], made.api_key.name)
        await heard(
            both.stubs[0].policy.WatchPolicy(policy_pb.WatchPolicyRequest()), made.api_key.name
        )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://x/y", "allowed: postgresql://"),
        ("postgresql://m:secret@x/y", "INFERPLANE_STORE_PASSWORD_FILE"),
    ],
)
async def test_a_store_that_it_does_not_know_stops_it(folder: Path, url: str, said: str) -> None:
    """The variable is named, and a password is not repeated."""
    code, told = await end(await launch(folder, store_url=url), None)
    assert code == 1
    assert "INFERPLANE_STORE_URL" in told
    assert said in told
    assert "secret" not in told


def ids(source: str, first: int, rows: int) -> bytes:
    """Request ids that no other outbox has."""
    start = int(source.rpartition("-")[2]) * 10**9 + first
    return b"".join(number.to_bytes(16, "big") for number in range(start, start + rows))


async def make_budget(stubs: MeteringStubs) -> str:
    budgets = budget_service_pb2_grpc.BudgetServiceStub(stubs.channel)
    budget = budget_pb2.Budget(tokens=AMOUNT, window=budget_pb2.BUDGET_WINDOW_MONTH)
    request = budget_service_pb2.CreateBudgetRequest(
        parent="projects/default", budget_id="b", budget=budget
    )
    await budgets.CreateBudget(request)
    leases = lease_service_pb2_grpc.LeaseServiceStub(stubs.channel)
    subject = lease_service_pb2.BudgetSubject(project="default", key="k", endpoint="e")
    answer = await leases.ExchangeLeases(
        lease_service_pb2.ExchangeLeasesRequest(holder="asks", sequence=1, subjects=[subject])
    )
    return answer.subjects[0].budgets[0].uid


async def test_a_process_without_its_database_can_be_stopped(folder: Path) -> None:
    """It waits for Postgres as long as it takes, but not once it is told to end."""
    waiting = await launch(folder, store_url=f"postgresql://metering@/metering?host={folder}")
    assert waiting.stderr is not None
    async with asyncio.timeout(SECONDS):
        while b"waiting for the database" not in await waiting.stderr.readline():
            assert not waiting.stderr.at_eof()
    code, said = await end(waiting, signal.SIGTERM)
    assert code == 0, said


async def test_a_process_with_a_folder_of_its_own_does_not_start(
    folder: Path, postgres_url: str
) -> None:
    """It would make a signing key where the others don't find it: it ends, and says which setting is wrong."""
    async with pair(folder, postgres_url):
        alone = await launch(folder / "alone", store_url=postgres_url)
        code, said = await end(alone, None)
        assert code == 1
        assert "INFERPLANE_STATE_DIR" in said
        assert "Traceback" not in said
        assert not list((folder / "alone" / "metering").iterdir())


async def test_one_that_was_away_for_too_long_begins_again(folder: Path, postgres_url: str) -> None:
    """1. frozen, while keys are revoked; 2. that is forgotten; 3. thawed, it ends; 4. started again, it serves."""
    async with pair(folder, postgres_url) as both:
        first, _ = both.stubs
        made = [await make_key(first) for _ in range(2)]
        both.processes[1].send_signal(signal.SIGSTOP)
        for key in made:
            await revoke(first, key.api_key.name)
        async with Database.open(target_of(postgres_url)) as database:
            assert await database.forget_news(await database.newest_news())
        both.processes[1].send_signal(signal.SIGCONT)
        code, said = await end(both.processes[1], None)
        assert code == 1
        assert "must be started again" in said
        assert "Traceback" not in said
        await both.start(1)
        await both.serves(1)


async def exchanges(both: Pair, holder: Holder) -> None:
    """Ask again and again, now one and now the other process; an exchange that was not answered is not repeated."""
    for _ in range(30):
        said = holder.says(holder.drawn.randint(1, 400))
        (use,) = said.uses
        request = lease_service_pb2.ExchangeLeasesRequest(
            holder=said.holder,
            sequence=said.sequence,
            uses=[
                lease_service_pb2.BudgetUse(
                    uid=use.uid,
                    needed=use.needed,
                    wanted=use.wanted,
                    leases=[
                        lease_service_pb2.LeaseUse(
                            window_start=lease.window_start,
                            granted=lease.granted,
                            used=lease.used,
                            serial=lease.serial,
                        )
                        for lease in use.leases
                    ],
                )
            ],
        )
        stubs = holder.drawn.choice(both.stubs)
        try:
            answer = await lease_service_pb2_grpc.LeaseServiceStub(stubs.channel).ExchangeLeases(
                request
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(0.02)
            continue
        grant = answer.grants[0]
        if grant.granted and not holder.serial:
            holder.serial = holder.sequence
        holder.granted, holder.window = grant.granted, grant.window_start
        holder.works()
