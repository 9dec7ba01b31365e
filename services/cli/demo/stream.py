"""A steady stream of calls that goes on while traffic is moved, counting who answered."""

import asyncio
from collections import Counter
from contextlib import suppress

import grpc
from inference import open_inference_pb2_grpc as oip_grpc

from services.cli.adapters import access
from services.cli.demo import calls, digits
from services.cli.demo.judge import Judge

_IN_FLIGHT = 4
_SECONDS = 10.0


class CallStream:
    """Calls `digits` one image after another, `_IN_FLIGHT` at a time, until stopped."""

    def __init__(self, address: str, judge: Judge) -> None:
        """Nothing is sent before `start`."""
        self._address = address
        self._judge = judge
        self._tasks: list[asyncio.Task[None]] = []
        self._answered = asyncio.Condition()
        self.versions: Counter[str] = Counter()  # answers since `reset`, by version
        self.failed = 0
        self.last_error = ""

    def start(self) -> None:
        """Begin to call."""
        self._tasks = [asyncio.create_task(self._call(n)) for n in range(_IN_FLIGHT)]

    async def stop(self) -> None:
        """Send nothing more."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    def reset(self) -> None:
        """Count from here."""
        self.versions.clear()

    async def wait_for(self, answers: int) -> Counter[str]:
        """Wait until so many calls were answered since `reset`, and return them by version."""
        async with self._answered:
            await self._answered.wait_for(lambda: self.versions.total() + self.failed >= answers)
        return Counter(self.versions)

    async def _call(self, number: int) -> None:
        images = digits.load().held_out_images
        async with access.open_channel(self._address) as channel:
            stub = oip_grpc.GRPCInferenceServiceStub(channel)
            while True:
                number = (number + _IN_FLIGHT) % len(images)
                feeds = {"image": images[number : number + 1]}
                try:
                    response = await stub.ModelInfer(
                        calls.request("digits", feeds), timeout=_SECONDS
                    )
                except grpc.aio.AioRpcError as error:
                    self.failed += 1
                    self.last_error = f"{error.code().name}: {error.details()}"
                else:
                    got = calls.answer(response)
                    self._judge.check("digits", got.version, feeds, got.outputs)
                    self.versions[got.version] += 1
                async with self._answered:
                    self._answered.notify_all()
