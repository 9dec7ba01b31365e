"""Tries one version in a process of its own: `python -m services.worker.tensor_probe`.

On stdin comes an order (`adapters/probe_order.py`). Each line on stdout is a JSON object:
`{"stage": …}` for what begins, then one `{"batchable": …, "reason": …, "steady": …}` or `{"error": …}`. A model that
crashes, never ends or takes all memory takes this process with it, and the last stage says where.
"""

import math
import os
import resource
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import BinaryIO

import orjson

from services.rpc.errors import InferplaneError, InvalidArgumentError
from services.worker.adapters import probe_order
from services.worker.adapters.onnx_files import check_graph, check_tree
from services.worker.adapters.onnx_graph import is_steady
from services.worker.adapters.onnx_session import OnnxSession, OnnxSessionLoader
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.domain import example
from services.worker.domain.contents import Array
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import Signature

_NICENESS = 5  # the worker's calls come first
_ROWS = 2
_CPU = ("CPUExecutionProvider",)


class Lines:
    """The pipe to the worker."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: Mapping[str, object]) -> None:
        """One line, at once."""
        self._out.write(orjson.dumps(line) + b"\n")
        self._out.flush()


def main() -> None:
    """Read the order, try, tell."""
    # Only lines go to stdout: whatever a library prints goes to stderr.
    lines = Lines(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    order = probe_order.from_json(sys.stdin.buffer.read())
    _bound(order)
    try:
        lines.write(_examine(order, lines))
    except LoadError as error:
        lines.write({"error": str(error)})
    except MemoryError:
        lines.write({"error": f"it needs more than the {order.memory_bytes} bytes it may have"})


def _bound(order: ProbeOrder) -> None:
    os.nice(_NICENESS)
    # Should the worker die meanwhile, nobody else ends this process.
    signal.alarm(math.ceil(order.seconds) + 1)
    if order.memory_bytes and sys.platform == "linux":  # elsewhere the kernel has no such bound
        resource.setrlimit(resource.RLIMIT_AS, (order.memory_bytes, order.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _examine(order: ProbeOrder, lines: Lines) -> Mapping[str, object]:
    lines.write({"stage": "checking its files"})
    check_tree(order.spec, order.folder)
    model = check_graph(order.spec, order.folder)
    steady = _only_cpu(order) and order.spec.signature.has_fixed_rows and is_steady(model)
    del model
    lines.write({"stage": "loading"})
    loader = OnnxSessionLoader(
        intra_op_threads=order.intra_op_threads, execution_providers=order.execution_providers
    )
    session = loader.load(order.spec, order.folder)
    lines.write({"stage": "answering its example"})
    signature = order.spec.signature
    example.check_answer(signature, partial(_run, signature, session))
    lines.write({"stage": "comparing a batch with single runs"})
    reason = _batching_problem(signature, session)
    return {"batchable": reason is None, "reason": reason or "", "steady": steady}


def _only_cpu(order: ProbeOrder) -> bool:
    """Elsewhere a run's thread waits for a device, which its own time does not show."""
    return (order.spec.settings.execution_providers or order.execution_providers) == _CPU


def _batching_problem(signature: Signature, session: OnnxSession) -> str | None:
    """Why requests must not share a run; None: they may."""
    if not signature.inputs or not signature.has_free_rows:
        return "not every input and output has a free first dimension"
    try:
        try:
            return _difference(signature, session, example.distinct_rows(signature, _ROWS))
        except InvalidArgumentError:  # as with the example: maybe of a zero
            return _difference(signature, session, example.distinct_rows(signature, _ROWS, least=1))
    except InferplaneError as error:
        return f"the example with {_ROWS} rows failed: {error.message}"


def _difference(
    signature: Signature, session: OnnxSession, feeds: Mapping[str, Array]
) -> str | None:
    """How a batch of these rows differs from its rows alone; None: it doesn't."""
    batched = _run(signature, session, feeds)
    singles = [
        _run(signature, session, {name: array[n : n + 1] for name, array in feeds.items()})
        for n in range(_ROWS)
    ]
    return example.wrong_output(signature, batched) or example.batch_difference(batched, singles)


def _run(
    signature: Signature, session: OnnxSession, feeds: Mapping[str, Array]
) -> Mapping[str, Array]:
    return session.run(feeds, [spec.name for spec in signature.outputs])


if __name__ == "__main__":
    main()
