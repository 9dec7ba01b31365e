"""Tries one version in a process of its own: `python -m services.worker.tensor_probe`.

On stdin comes an order (`adapters/probe_order.py`). Each line on stdout is a JSON object: `{"stage": …}` for what
begins, then one `{"report": …}` or `{"error": …}`. A model that crashes, never ends or takes all memory takes this
process with it, and the last stage says where.
"""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from services.rpc.errors import InferplaneError
from services.worker.adapters import probe_order
from services.worker.adapters.bench import Bench
from services.worker.adapters.onnx_files import check_graph, check_tree
from services.worker.adapters.onnx_graph import is_steady
from services.worker.adapters.onnx_session import OnnxSession, OnnxSessionLoader
from services.worker.adapters.probe_order import ProbeOrder
from services.worker.adapters.trial_process import Lines, bound
from services.worker.domain import example, varied_inputs
from services.worker.domain.assignment import BatchAxis, Tuning
from services.worker.domain.batch_check import BatchCheck, CheckBounds, Verdict
from services.worker.domain.contents import Array
from services.worker.domain.execution import declared_off, max_rows_of
from services.worker.domain.load_state import LoadError
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature
from services.worker.domain.tuning import Room, Search
from services.worker.ports.session import ProbeReport

_CHECK_SHARE = 0.25  # of the time for all of a try, before the check makes no larger batches
_TUNED_TIMES = 4  # so much larger batches than the worker's default are measured
_MEASUREMENTS = 25  # that the time for measuring is shared out to
_CPU = ("CPUExecutionProvider",)


def main() -> None:
    """Read the order, try, tell."""
    lines = Lines.on_stdout()
    order = probe_order.from_json(sys.stdin.buffer.read())
    bound(order.seconds, order.memory_bytes)
    try:
        lines.write({"report": asdict(examine(order, lines))})
    except LoadError as error:
        lines.write({"error": str(error)})
    except MemoryError:
        lines.write({"error": f"it needs more than the {order.memory_bytes} bytes it may have"})


def examine(order: ProbeOrder, lines: Lines) -> ProbeReport:
    """Try the version here. Raises LoadError."""
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
    lies = example.check_answer(signature, partial(_run, signature, session))
    lines.write({"stage": "comparing batches with single runs"})
    verdict, max_rows = _verdict(order, session)
    if order.spec.settings.batch_axis is BatchAxis.FIRST:
        for reason in filter(None, (verdict.off_reason, verdict.padding_reason)):
            raise LoadError(f"settings say that the first axis counts rows, but {reason}")
    tuning = None
    warnings = list(_once((*lies, *verdict.warnings)))
    if order.tune_seconds:
        lines.write({"stage": "measuring threads, instances and batches"})
        tuning = _tuning(order, loader, session, max(verdict.sizes, default=1))
        if tuning is None:
            warnings.append("it could not be measured: no layout that settings allow was computed")
    elif not verdict.off_reason and max(verdict.sizes) < max_rows:
        warnings.append(
            f"batches of more than {max(verdict.sizes)} rows were not compared with single runs:"
            f" no time within {_CHECK_SHARE:.0%} of INFERPLANE_LOAD_TIMEOUT_SECONDS"
        )
    return ProbeReport(
        batchable=not verdict.off_reason,
        batching_reason=verdict.off_reason,
        steady=steady,
        padding_reason=verdict.padding_reason,
        warnings=tuple(warnings),
        tuning=tuning,
    )


def _only_cpu(order: ProbeOrder) -> bool:
    """Elsewhere a run's thread waits for a device, which its own time does not show."""
    return (order.spec.settings.execution_providers or order.execution_providers) == _CPU


def _verdict(order: ProbeOrder, session: OnnxSession) -> tuple[Verdict, int]:
    """What the check found, and how many rows a batch may have."""
    spec = order.spec
    max_rows = max_rows_of(spec, spec.tuning, order.max_batch_size)
    if order.tune_seconds and not spec.settings.max_batch_size:
        max_rows *= _TUNED_TIMES  # what is measured is compared before
    if declared := declared_off(spec):
        return Verdict(off_reason=declared), max_rows
    bounds = CheckBounds(
        max_rows=max_rows,
        seconds=_CHECK_SHARE * order.seconds,
        clock=time.monotonic,
    )
    check = BatchCheck(spec.signature, partial(_run, spec.signature, session), bounds)
    padding = Padding.of(spec.signature, spec.settings)
    return check.verdict(spec.settings.padded_inputs, padding), max_rows


def _tuning(
    order: ProbeOrder, loader: OnnxSessionLoader, session: OnnxSession, most_rows: int
) -> Tuning | None:
    """The fastest layout found in the time for it; None: none could be measured."""
    spec = order.spec
    run = partial(_run, spec.signature, session)
    try:
        variation = varied_inputs.settle(spec.signature, run, spec.settings.padded_inputs)
    except InferplaneError:
        return None
    bench = Bench(spec, order.folder, loader, variation)
    bench.lengthen()
    search = Search(Room(cpus=_cpus(order), most_rows=most_rows, settings=spec.settings))
    end = time.monotonic() + order.tune_seconds
    while time.monotonic() < end and (layout := search.next()):
        search.note(layout, bench.measure(layout, order.tune_seconds / _MEASUREMENTS))
    return search.best()


def _cpus(order: ProbeOrder) -> int:
    """CPUs that the version may use; from now on this process uses no others."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    wanted = allowed.intersection(order.spec.settings.cpus) or allowed
    os.sched_setaffinity(0, wanted)
    return len(wanted)


def _once(lies: tuple[str, ...]) -> tuple[str, ...]:
    """The first of each output."""
    return tuple({lie.split(" has shape ")[0]: lie for lie in reversed(lies)}.values())[::-1]


def _run(
    signature: Signature, session: OnnxSession, feeds: Mapping[str, Array]
) -> Mapping[str, Array]:
    return session.run(feeds, [spec.name for spec in signature.outputs])


if __name__ == "__main__":
    main()
