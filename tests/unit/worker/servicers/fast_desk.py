"""ModelInfer of the front without sockets: a version with a real batcher, a roster of it, calls that a test reads."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from inference import open_inference_pb2 as oip

from services.rpc.errors import InferplaneError, InvalidArgumentError, NotFoundError
from services.rpc.names import VersionName
from services.worker.domain.assignment import RunSettings, VersionSpec
from services.worker.domain.batch import BatchLimits, BatchQueue
from services.worker.domain.call_head import CallHead, Headers
from services.worker.domain.contents import Array
from services.worker.domain.grpc_message import PREFIX_BYTES
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.routing import Asked
from services.worker.domain.signature import Signature, spec_of
from services.worker.domain.statistics import VersionStatistics
from services.worker.drivers.batcher import Batcher, Model
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.traffic import Traffic
from services.worker.drivers.version_meter import VersionMeter
from services.worker.servicers.answer_source import AnswerSource
from services.worker.servicers.fast_inference import FastInference

SIGNATURE = Signature(
    (spec_of("x", "FP32", (-1, 3)), spec_of("k", "INT64", (-1,))),
    (spec_of("y", "FP32", (-1, 3)), spec_of("n", "INT64", (-1,)), spec_of("s", "BYTES", (-1, 2))),
)
MODEL = "m"
HEAD = CallHead(b"/inference.GRPCInferenceService/ModelInfer", None, None, "")


class Doubling:
    """y = 2 · x, n = k + 1, s = n as text; refuses a negative k."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        x, k = feeds["x"], feeds["k"]
        if (k < 0).any():
            raise InvalidArgumentError("the model refused these inputs: negative")
        text = np.array([[str(n), "é" * (int(n) % 3)] for n in k], object).reshape(len(k), 2)
        answers = {"y": 2 * x, "n": k + 1, "s": text}
        return {name: answers[name] for name in outputs}


@dataclass(eq=False)
class Asking:
    """Call of `ports.call`: keeps what it was told."""

    head: CallHead = HEAD
    headers: Headers = ()
    request_id: bytes | None = None
    arrived: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    on_gone: Callable[[InferplaneError], None] | None = None
    told: list[bytes | InferplaneError] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def reply(self, message: bytes, initial: Headers = (), trailing: Headers = ()) -> None:
        assert not initial
        assert not trailing
        self._tell(message)

    def reply_framed(self, framed: bytes) -> None:
        assert framed[:PREFIX_BYTES] == b"\0" + (len(framed) - PREFIX_BYTES).to_bytes(4, "big")
        self._tell(framed[PREFIX_BYTES:])

    def fail(self, error: InferplaneError) -> None:
        self._tell(error)

    def _tell(self, what: bytes | InferplaneError) -> None:
        self.told.append(what)
        self.ended.set()

    def start(self, initial: Headers = ()) -> None:
        raise AssertionError("no stream")

    def write(self, message: bytes) -> None:
        raise AssertionError("no stream")

    def finish(self, trailers: Headers) -> None:
        raise AssertionError("no stream")

    @property
    def end(self) -> object:
        """The answer's bytes, or kind, reason and text of the error."""
        assert len(self.told) == 1, self.told
        (told,) = self.told
        if isinstance(told, InferplaneError):
            return (told.kind, told.reason, told.message, told.violations)
        return told


async def all_ended(calls: Sequence[Asking]) -> None:
    """Wait until each was told its end."""
    async with asyncio.timeout(30):
        for call in calls:
            await call.ended.wait()


@dataclass
class Shelf:
    """Roster of one version; its epoch may change with each look."""

    served: ServedVersion
    restless: bool = False
    moves: int = 0
    lookups: int = 0

    @property
    def epoch(self) -> int:
        self.moves += self.restless
        return self.moves

    def watch(self, told: Callable[[], None]) -> None:
        self.told = told

    def find(self, asked: Asked) -> ServedVersion:
        self.lookups += 1
        if asked.model_name != MODEL or asked.model_version not in ("", "1"):
            raise NotFoundError(f"{asked.model_name!r} {asked.model_version!r} does not exist here")
        return self.served


@dataclass
class Suspicion:
    """Suspects that take no request."""

    is_alert: bool = False

    def takes(self, request: InferRequest) -> bool:
        return False


@dataclass
class Desk:
    """FastInference, and what it works with."""

    inference: FastInference
    shelf: Shelf
    queue: BatchQueue
    statistics: VersionStatistics
    suspicion: Suspicion

    async def answers(self, messages: Sequence[bytes]) -> list[object]:
        """How calls with these messages end that come together."""
        calls = [Asking() for _ in messages]
        for call, message in zip(calls, messages, strict=True):
            self.inference.begin(call, message)
        await all_ended(calls)
        self.check_idle()
        return [call.end for call in calls]

    def check_idle(self) -> None:
        """Nothing is left of any call."""
        self.queue.check()
        assert len(self.queue) == 0
        assert self.shelf.served.traffic.in_flight == 0


@asynccontextmanager
async def desk(
    *, restless: bool = False, max_rows: int = 8, batched: bool = True, limit: int = 1 << 20
) -> AsyncIterator[Desk]:
    """One that answers; restless: nothing is remembered from one call to the next."""
    spec = VersionSpec(
        name=VersionName(MODEL, "1"),
        digest="",
        files=(),
        signature=SIGNATURE,
        settings=RunSettings(),
    )
    statistics = VersionStatistics()
    limits = BatchLimits(max_rows=max_rows, max_queued_rows=64, max_queued_bytes=1 << 20)
    queue = BatchQueue(limits)
    model = Model(
        sessions=[Doubling()], signature=SIGNATURE, batched=batched, steady=True, max_rows=max_rows
    )
    batcher = Batcher(queue, model, VersionMeter(statistics))
    suspicion = Suspicion()
    served = ServedVersion(spec, batcher, batcher, statistics, Traffic(), suspicion)  # type: ignore[arg-type] # two of its words
    shelf = Shelf(served, restless)
    # The roster is a process's worth of parts; of it only these two are asked.
    source = AnswerSource(shelf, lambda: True, "0", limit)  # type: ignore[arg-type]
    running = asyncio.create_task(batcher.run())
    await asyncio.sleep(0)
    try:
        yield Desk(FastInference(source), shelf, queue, statistics, suspicion)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def request(rows: int = 1, *, ident: str = "", k: int = 0) -> oip.ModelInferRequest:
    """One with raw data, inputs in the model's order."""
    made = oip.ModelInferRequest(model_name=MODEL, id=ident)
    made.inputs.add(name="x", datatype="FP32", shape=[rows, 3])
    made.inputs.add(name="k", datatype="INT64", shape=[rows])
    x = np.arange(3 * rows, dtype=np.float32) + k
    made.raw_input_contents.extend([x.tobytes(), np.full(rows, k, np.int64).tobytes()])
    return made
