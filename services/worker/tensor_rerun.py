"""Computes requests that may crash it: `python -m services.worker.tensor_rerun`.

On stdin comes a JSON object: the order of a try (`adapters/probe_order.py`) and requests. Each line on stdout is a JSON
object: `{"begun": index}`, then `{"outputs": …}` or `{"refused": …}`; the last one that begun and has no answer was to
blame.
"""

import sys
from typing import Any

import orjson

from services.rpc.errors import InferplaneError
from services.worker.adapters import array_text, probe_order
from services.worker.adapters.onnx_session import OnnxSessionLoader
from services.worker.adapters.trial_process import Lines, bound
from services.worker.domain.load_state import LoadError


def main() -> None:
    """Load, then one request after the other."""
    lines = Lines.on_stdout()
    said: dict[str, Any] = orjson.loads(sys.stdin.buffer.read())
    order = probe_order.from_json(said["order"].encode())
    bound(order.seconds, order.memory_bytes)
    loader = OnnxSessionLoader(
        intra_op_threads=order.intra_op_threads, execution_providers=order.execution_providers
    )
    try:
        session = loader.load(order.spec, order.folder)
    except LoadError as error:
        lines.write({"error": str(error)})
        return
    for index, request in enumerate(said["requests"]):
        lines.write({"begun": index})
        try:
            outputs = session.run(array_text.read(request["feeds"]), request["outputs"])
        except InferplaneError as error:
            lines.write({"refused": error.message, "reason": error.reason})
        else:
            lines.write({"outputs": array_text.written(outputs)})


if __name__ == "__main__":
    main()
