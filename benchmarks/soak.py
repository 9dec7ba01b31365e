"""Tagged rows through the batcher: mixed sizes, lengths, cancels and timeouts over several instances.

Run as `python -m benchmarks.soak`: 200,000 requests of 0 to 6 rows and 1 to 40 cells, from three tenants with three
priorities, over four instances of a model in ONNX Runtime. Every fifth caller leaves around the median latency,
others have timeouts and deadlines that pass. Each row carries a tag that no other row has; each answer is compared
with what its own tags give. The batcher's sums are checked throughout. A wrong, missing or second answer ends it.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.run_sums import RunSums
from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.adapters.onnx_runtime import ERRORS, onnxruntime
from services.worker.domain.assignment import PaddedInput, RunSettings, TrimmedOutput
from services.worker.domain.batch import Answer, BatchLimits, BatchQueue, Waiting
from services.worker.domain.contents import Array
from services.worker.domain.infer_request import InferRequest
from services.worker.domain.queue_rules import QueueRules
from services.worker.domain.ragged import Padding
from services.worker.domain.request_options import RequestOptions
from services.worker.domain.signature import Signature, spec_of
from services.worker.drivers.batcher import Batcher, Model
from tests.models.build import model, tensor

REQUESTS = 200_000
INSTANCES = 4
IN_FLIGHT = 160
_MAX_ROWS = 4
_REFUSED = -1  # a tag that the model refuses
_SHAPE = ("n", "length")
_I = TensorProto.INT64

SIGNATURE = Signature(
    (spec_of("tags", "INT64", (-1, -1)), spec_of("mask", "INT64", (-1, -1))),
    (spec_of("each", "INT64", (-1, -1)), spec_of("sum", "INT64", (-1,))),
)
SETTINGS = RunSettings(
    padded_inputs=(PaddedInput("tags", 1, pad_value=5), PaddedInput("mask", 1, mask=True)),
    trimmed_outputs=(TrimmedOutput("each", 1, "tags", 1),),
    priority_levels=3,
)


LIMITS = BatchLimits(
    max_rows=_MAX_ROWS,
    max_queued_rows=900,
    max_queued_bytes=1 << 20,
    max_delay=0.0005,
    preferred=(3,),
    levels=SETTINGS.priority_levels,
    instances=INSTANCES,
)


def graph() -> bytes:
    """`each` = tags + 1, `sum` = the tags that the mask shows; tags below 0 are refused."""
    nodes = [
        helper.make_node("Add", ["tags", "one"], ["more"]),
        # An index out of range is refused: 0 for tags from 0, beyond the table for others.
        helper.make_node("Less", ["tags", "zero"], ["is_low"]),
        helper.make_node("Cast", ["is_low"], ["low"], to=_I),
        helper.make_node("Mul", ["low", "far"], ["index"]),
        helper.make_node("Gather", ["table", "index"], ["zeros"]),
        helper.make_node("Add", ["more", "zeros"], ["each"]),
        helper.make_node("Mul", ["tags", "mask"], ["shown"]),
        helper.make_node("ReduceSum", ["shown", "axis"], ["sum"], keepdims=0),
    ]
    constants = {"one": [1], "zero": [0], "far": [1000], "table": [0], "axis": [1]}
    return model(
        nodes,
        [tensor("tags", _I, _SHAPE), tensor("mask", _I, _SHAPE)],
        [tensor("each", _I, _SHAPE), tensor("sum", _I, ("n",))],
        [numpy_helper.from_array(np.array(v, np.int64), name) for name, v in constants.items()],
    )


class TagSession:
    """The runtime's session as a port."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(graph(), options, ["CPUExecutionProvider"])

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute."""
        try:
            arrays = self._session.run(list(outputs), dict(feeds))
        except ERRORS as error:
            raise InvalidArgumentError("refused") from error
        return dict(zip(outputs, arrays, strict=True))


class WrongAnswerError(Exception):
    """An answer that is not the caller's own."""


@dataclass(slots=True, eq=False)
class _Asked:
    """One caller."""

    request: InferRequest
    refused: bool
    began: float
    ended: bool = False
    waiting: Waiting | None = None


class Soak:
    """So many requests, some of them in flight at once; the same seed asks the same."""

    def __init__(self, requests: int, *, seed: int = 7, leave_every: int = 5) -> None:
        """Make the batcher; nothing is asked yet. Of so many callers one leaves around the median latency."""
        self.requests = requests
        self.outcomes: Counter[str] = Counter()
        self.meter = RunSums()
        self._leave_every = leave_every
        self._random = random.Random(seed)
        self._latency = 0.005  # about the median
        self._begun = self._open = 0
        self._done = asyncio.Event()
        self._wrong: WrongAnswerError | None = None
        session, padding = TagSession(), Padding.of(SIGNATURE, SETTINGS)
        self.queue = BatchQueue(LIMITS, padding)
        computing = Model(
            sessions=[session] * INSTANCES,
            signature=SIGNATURE,
            batched=True,
            padding=padding,
            max_rows=_MAX_ROWS,
        )
        rules = QueueRules.of(SETTINGS, _MAX_ROWS)
        self.batcher = Batcher(self.queue, computing, self.meter, rules=rules)

    async def run(self) -> None:
        """Until all have ended. Raises WrongAnswerError."""
        running = asyncio.create_task(self.batcher.run())
        waiting = asyncio.create_task(self._done.wait())
        self._go_on()
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()  # why it broke
        wrong = self._wrong
        running.cancel()
        waiting.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        if wrong is not None:
            raise wrong
        self.queue.check()
        if len(self.queue) or self._open or sum(self.outcomes.values()) != self.requests:
            raise WrongAnswerError(f"{self._open} of {self.requests} never ended")

    def _go_on(self) -> None:
        """Ask until enough are on their way."""
        while self._open < IN_FLIGHT and self._begun < self.requests:
            if not self._ask():
                break  # refused: come again later
        if self._begun == self.requests and not self._open:
            self._done.set()

    def _ask(self) -> bool:
        number, loop = self._begun, asyncio.get_running_loop()
        self._begun += 1
        self._open += 1
        asked = self._made(number)
        deadline = None
        if number % 17 == 0:
            deadline = asked.began + self._random.uniform(0, 2 * self._latency)
        try:
            asked.waiting = self.batcher.admit(
                asked.request, deadline, lambda answer: self._answered(asked, answer)
            )
        except InferplaneError as error:
            self._end(asked, error.reason)
            loop.call_later(self._latency, self._go_on)
            return False
        if number % self._leave_every == 0:
            loop.call_later(self._random.uniform(0, 2 * self._latency), self._leave, asked)
        if number % 997 == 0:
            self.queue.check()
        return True

    def _made(self, number: int) -> _Asked:
        chance = self._random
        rows, length = chance.randint(0, 6), chance.randint(1, 40)
        refused = bool(rows) and number % 101 == 0
        first = number * 1000
        tags = np.arange(first, first + rows * length, dtype=np.int64).reshape(rows, length)
        if refused:
            tags[rows // 2, length // 2] = _REFUSED
        shape = (rows, length - 1 if number % 211 == 0 and length > 2 else length)
        options = RequestOptions(
            priority=chance.randint(0, 3),
            timeout=chance.uniform(0, 3 * self._latency) if number % 11 == 0 else None,
        )
        feeds = {"tags": tags, "mask": np.ones(shape, np.int64)}
        refused = refused or shape[1] != length
        request = InferRequest(feeds, ("sum", "each"), options, tenant=("", "a", "b")[number % 3])
        return _Asked(request, refused, time.monotonic())

    def _answered(self, asked: _Asked, answer: Answer) -> None:
        self._latency += 0.01 * (time.monotonic() - asked.began - self._latency)
        if isinstance(answer, InferplaneError):
            self._end(asked, answer.reason)
            if asked.refused != (answer.reason == "INVALID_ARGUMENT") and not _is_late(answer):
                self._fail(asked, answer)
        else:
            self._end(asked, "answered")
            tags = asked.request.feeds["tags"]
            mask = asked.request.feeds["mask"]
            right = (
                {"each": tags + 1, "sum": (tags * mask).sum(axis=1)} if not asked.refused else {}
            )
            if not right or any(
                answer[name].shape != own.shape or (answer[name] != own).any()
                for name, own in right.items()
            ):
                self._fail(asked, answer)
        asyncio.get_running_loop().call_soon(self._go_on)

    def _leave(self, asked: _Asked) -> None:
        if asked.ended:
            return
        assert asked.waiting is not None
        self.batcher.leave(asked.waiting)
        self._end(asked, "left")
        self._go_on()

    def _end(self, asked: _Asked, how: str) -> None:
        if asked.ended:
            self._fail(asked, how)
        asked.ended = True
        self._open -= 1
        self.outcomes[how] += 1

    def _fail(self, asked: _Asked, got: Any) -> None:
        if self._wrong is None and not self._done.is_set():
            self._wrong = WrongAnswerError(f"{asked} got {got}")
            self._done.set()


def _is_late(error: InferplaneError) -> bool:
    return error.reason in ("DEADLINE_EXCEEDED", "QUEUE_TIMEOUT")


def main() -> None:
    """Print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--leave-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    soak = Soak(given.requests, seed=given.seed, leave_every=given.leave_every)
    started = time.monotonic()
    asyncio.run(soak.run())
    seconds = time.monotonic() - started
    print(f"{given.requests} requests in {seconds:.1f} s, each ended once, every answer right:")
    for how, count in soak.outcomes.most_common():
        print(f"{count:10,} {how}")
    meter = soak.meter
    print(
        f"{meter.runs:10,} runs of {meter.rows / meter.runs:.1f} rows,"
        f" {meter.padded / max(1, meter.cells):.1%} padding"
    )


if __name__ == "__main__":
    main()
