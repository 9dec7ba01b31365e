"""A version's statistics in the words of Triton's extension: the same for its message and its JSON."""

from typing import Any

from services.worker.domain.counters import Outcome
from services.worker.domain.routing import Asked
from services.worker.domain.statistics import Span, VersionStatistics
from services.worker.drivers.roster import Roster
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.served_version import ServedVersion

_NS_PER_MS = 1_000_000


def answer(roster: Roster, asked: Asked) -> list[dict[str, Any]]:
    """Statistics of all versions that are asked for. Raises as `Roster.find` does."""
    return [
        report(asked.model_name or served.spec.name.model, served)
        for served in roster.find_all(asked)
    ]


def report(name: str, served: ServedVersion | ServedText) -> dict[str, Any]:
    """Fields of `ModelStatistics`; `name` is how the caller calls the model."""
    of = served.statistics
    return {
        "name": name,
        "version": served.spec.name.version,
        "last_inference": of.last_ns // _NS_PER_MS,
        "inference_count": of.rows,
        "execution_count": of.runs,
        "inference_stats": {
            "success": _span(of.outcomes[Outcome.SUCCEEDED]),
            "fail": _span(of.failures()),
            "queue": _span(of.queue),
            "compute_input": _span(of.compute_input),
            "compute_infer": _span(of.compute_infer),
            "compute_output": _span(of.compute_output),
            "cache_hit": _span(of.cache_hit),
            "cache_miss": _span(of.cache_miss),
        },
        "response_stats": {},  # of models that give several responses to a request
        "batch_stats": _sizes(of),
        "memory_usage": [],
    }


def _span(span: Span) -> dict[str, int]:
    return {"count": span.count, "ns": span.ns}


def _sizes(of: VersionStatistics) -> list[dict[str, Any]]:
    return [
        {
            "batch_size": rows,
            "compute_input": {"count": size.count, "ns": size.input_ns},
            "compute_infer": {"count": size.count, "ns": size.infer_ns},
            "compute_output": {"count": size.count, "ns": size.output_ns},
        }
        for rows, size in sorted(of.sizes.items())
    ]
