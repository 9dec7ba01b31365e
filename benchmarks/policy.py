"""What many keys cost metering and who follows its policy: start, memory, a snapshot, a revocation beside sleepers.

Run: .venv/bin/python -m benchmarks.policy [--keys 100000] [--sleepers 20] [--revocations 500]

Keys with limits are put into a database; a metering process starts on it. Sleepers open a watch and read nothing more
than the first response. Then keys are revoked one after another, and each time it is measured how long it takes until
the caller has his answer, and until a watcher that reads has heard.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import psutil
from inferplane.metering.v1 import api_key_service_pb2
from inferplane.metering.v1 import policy_service_pb2 as pb

from services.metering.adapters.database import Database
from services.metering.adapters.sql_identity import SqlIdentityStore
from services.metering.domain.api_key import ApiKey, Role
from services.metering.domain.limits import Limits
from services.metering.ports.identity_store import IdentityTransaction
from services.rpc.clock import SystemClock
from services.rpc.names import KeyName
from tests.integration.metering.metering_process import MeteringStubs, running

_AT_ONCE = 10_000  # keys in one write


def key_id(name: str) -> str:
    """The same for the same name, and spread as ids that are drawn are."""
    return blake2b(name.encode(), digest_size=16).hexdigest()


def _keys(kid: str, first: int, count: int) -> list[ApiKey]:
    now = SystemClock().now()
    return [
        ApiKey(
            name=KeyName("default", f"{number:032x}"),
            kid=kid,
            role=Role.CALLER,
            endpoints=("*",),
            create_time=now,
            expire_time=now.replace(microsecond=0) + timedelta(days=90),
            limits=Limits(requests_per_second=10.0 + number % 7),
        )
        for number in range(first, first + count)
    ]


async def put_keys(store: SqlIdentityStore, keys: list[ApiKey]) -> None:
    """Put keys into a store, many in each write."""
    for first in range(0, len(keys), _AT_ONCE):

        async def work(transaction: IdentityTransaction, first: int = first) -> None:
            for key in keys[first : first + _AT_ONCE]:
                await transaction.put_key(key)

        await store.write(work)


async def _fill(folder: Path, count: int) -> None:
    """Put keys into the database of a metering that doesn't run."""
    async with Database.open(folder / "metering" / "metering.db") as database:
        store = SqlIdentityStore(database)
        (signing,) = await store.read(lambda view: view.signing_keys())
        await put_keys(store, _keys(signing.kid, 0, count))


async def _snapshot(stubs: MeteringStubs) -> tuple[float, int, int, "pb.WatchPolicyResponse"]:
    """Seconds, responses, facts and the last response of a watch from the beginning."""
    began, responses, facts = time.perf_counter(), 0, 0
    watch = stubs.policy.WatchPolicy(pb.WatchPolicyRequest())
    async for response in watch:
        responses += 1
        facts += len(response.changes)
        if response.synced:
            watch.cancel()
            return time.perf_counter() - began, responses, facts, response
    raise AssertionError("the watch ended")


async def _revoke(stubs: MeteringStubs, after: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds until the caller has his answer, and until a watcher has heard, for each of some keys."""
    answered, heard = [], []
    watch = stubs.policy.WatchPolicy(pb.WatchPolicyRequest(after_revision=after))
    await watch.read()
    for number in range(count):
        name = str(KeyName("default", f"{number:032x}"))
        began = time.perf_counter()
        call = stubs.keys.RevokeApiKey(api_key_service_pb2.RevokeApiKeyRequest(name=name))
        news = await watch.read()
        heard.append(time.perf_counter() - began)
        await call
        answered.append(time.perf_counter() - began)
        assert isinstance(news, pb.WatchPolicyResponse)
        assert name in [change.revocation.name for change in news.changes]
    watch.cancel()
    return answered, heard


def _shown(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"p50 {1000 * statistics.median(ordered):.1f} ms, p99"
        f" {1000 * ordered[int(0.99 * len(ordered))]:.1f} ms, most {1000 * ordered[-1]:.1f} ms"
    )


async def _measure(folder: Path, options: argparse.Namespace) -> None:
    async with running(folder) as (process, _):
        empty = psutil.Process(process.pid).memory_info().rss
    await _fill(folder, options.keys)
    began = time.perf_counter()
    async with running(folder) as (process, stubs):
        print(
            f"started on {options.keys} keys with limits after {time.perf_counter() - began:.1f} s"
        )
        resident = psutil.Process(process.pid)
        full = resident.memory_info().rss
        seconds, responses, facts, last = await _snapshot(stubs)
        print(f"snapshot: {facts} facts in {responses} responses, {seconds:.2f} s")
        sleepers = [
            stubs.policy.WatchPolicy(pb.WatchPolicyRequest()) for _ in range(options.sleepers)
        ]
        for sleeper in sleepers:
            await sleeper.read()
        answered, heard = await _revoke(stubs, last.revision, options.revocations)
        print(f"{options.revocations} revocations beside {options.sleepers} sleepers")
        print(f"  answered: {_shown(answered)}")
        print(f"  heard:    {_shown(heard)}")
        end = resident.memory_info().rss
        mib = 1024 * 1024
        print(
            f"resident: {empty // mib} MiB without keys, {full // mib} with, {end // mib} at the end:"
            f" {(end - empty) / max(1, options.keys):.0f} bytes a key"
        )
        for sleeper in sleepers:
            sleeper.cancel()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--sleepers", type=int, default=20)
    parser.add_argument("--revocations", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ip-") as name:
        asyncio.run(_measure(Path(name), options))


if __name__ == "__main__":
    main()
