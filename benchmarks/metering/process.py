"""A metering process of its own on a unix socket, with prices."""

from __future__ import annotations  # grpc's classes are generic in their stubs only

import asyncio
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import psutil
from inferplane.metering.v1 import (
    ledger_service_pb2,
    ledger_service_pb2_grpc,
    price_pb2,
    price_service_pb2,
    price_service_pb2_grpc,
)

_PRICES = {
    price_pb2.PRICE_UNIT_INPUT_TOKEN: "0.0000005",
    price_pb2.PRICE_UNIT_CACHED_TOKEN: "0.0000001",
    price_pb2.PRICE_UNIT_OUTPUT_TOKEN: "0.0000015",
    price_pb2.PRICE_UNIT_COMPUTE_SECOND: "0.0002",
}


class MeteringProcess:
    """Started on entry, ended on exit; its files lie in a folder."""

    def __init__(self, folder: Path, store_url: str = "") -> None:
        self._folder = folder
        self._store_url = store_url
        self._address = f"unix:{folder}/metering.sock"
        self.database = folder / "metering" / "metering.db"
        self.channel: grpc.aio.Channel
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        environment = os.environ | {
            "INFERPLANE_METERING_ADDRESS": self._address,
            "INFERPLANE_STATE_DIR": str(self._folder),
            "INFERPLANE_STORE_URL": self._store_url,
            "INFERPLANE_LOG_LEVEL": "warning",
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.metering", env=environment
        )
        largest = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.aio.insecure_channel(self._address, options=largest)
        async with asyncio.timeout(60):
            await self.channel.channel_ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.channel.close()
        self._process.terminate()
        await self._process.wait()

    def cpu_seconds(self) -> float:
        """CPU time that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    async def prices(self) -> None:
        """Set a price for each unit that is charged."""
        stub = price_service_pb2_grpc.PriceServiceStub(self.channel)
        for unit, amount in _PRICES.items():
            price = price_pb2.Price(unit=unit, amount=amount)
            price.valid_from.seconds = 1
            await stub.CreatePrice(price_service_pb2.CreatePriceRequest(price=price))

    async def verify(self) -> str:
        """What a verification says."""
        stub = ledger_service_pb2_grpc.LedgerServiceStub(self.channel)
        began = asyncio.get_running_loop().time()
        found = await stub.VerifyLedger(ledger_service_pb2.VerifyLedgerRequest())
        seconds = asyncio.get_running_loop().time() - began
        problems = "" if found.ok else f": {found.problems[0]}"
        return (
            f"{'all adds up' if found.ok else 'NOT RIGHT'}{problems}, {found.rows} rows and"
            f" {found.postings} postings in {seconds:.1f} s"
        )
