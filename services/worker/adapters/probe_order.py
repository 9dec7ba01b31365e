"""What a probe process is told on its standard input: one JSON object.

Read by hand, as both sides are the same release: what checks types would take longer to import than most models to try.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from services.rpc.names import VersionName
from services.worker.domain.assignment import (
    ArtifactFile,
    BatchAxis,
    CacheLimits,
    GenerationSettings,
    OversizePolicy,
    PaddedInput,
    RunSettings,
    SequenceLimits,
    SequenceState,
    TrimmedOutput,
    Tuning,
    VersionSpec,
)
from services.worker.domain.signature import Signature, TensorSpec, spec_of
from services.worker.llm.domain.engine_settings import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOrder:
    """Which version to try, where, and within what."""

    spec: VersionSpec
    folder: Path
    intra_op_threads: int
    execution_providers: tuple[str, ...]
    max_batch_size: int  # of versions that don't say
    memory_bytes: int  # of address space; 0: no bound
    seconds: float  # for all of a try
    tune_seconds: float  # of these at most, for measuring; 0: nothing is measured


def to_json(order: ProbeOrder) -> bytes:
    """The order as the probe reads it."""
    spec = order.spec
    return orjson.dumps(
        {
            "model": spec.name.model,
            "version": spec.name.version,
            "digest": spec.digest,
            "files": [dataclasses.asdict(file) for file in spec.files],
            "inputs": _specs_out(spec.signature.inputs),
            "outputs": _specs_out(spec.signature.outputs),
            "settings": dataclasses.asdict(spec.settings),
            "tuning": spec.tuning and dataclasses.asdict(spec.tuning),
            "folder": str(order.folder),
            "intra_op_threads": order.intra_op_threads,
            "execution_providers": order.execution_providers,
            "max_batch_size": order.max_batch_size,
            "memory_bytes": order.memory_bytes,
            "seconds": order.seconds,
            "tune_seconds": order.tune_seconds,
        }
    )


def from_json(text: bytes) -> ProbeOrder:
    """The order that `to_json` wrote."""
    said = orjson.loads(text)
    spec = VersionSpec(
        name=VersionName(said["model"], said["version"]),
        digest=said["digest"],
        files=tuple(ArtifactFile(**file) for file in said["files"]),
        signature=Signature(_specs_in(said["inputs"]), _specs_in(said["outputs"])),
        settings=_settings_in(said["settings"]),
        tuning=Tuning(**said["tuning"]) if said["tuning"] else None,
    )
    return ProbeOrder(
        spec=spec,
        folder=Path(said["folder"]),
        intra_op_threads=said["intra_op_threads"],
        execution_providers=tuple(said["execution_providers"]),
        max_batch_size=said["max_batch_size"],
        memory_bytes=said["memory_bytes"],
        seconds=said["seconds"],
        tune_seconds=said["tune_seconds"],
    )


def _settings_in(said: Mapping[str, Any]) -> RunSettings:
    """What `dataclasses.asdict` made of them; other fields are numbers and texts."""
    cache, sequence, generation = said["response_cache"], said["sequence"], said["generation"]
    changed = {
        "preferred_batch_sizes": tuple(said["preferred_batch_sizes"]),
        "oversize_policy": OversizePolicy(said["oversize_policy"]),
        "batch_axis": BatchAxis(said["batch_axis"]),
        "padded_inputs": tuple(PaddedInput(**one) for one in said["padded_inputs"]),
        "trimmed_outputs": tuple(TrimmedOutput(**one) for one in said["trimmed_outputs"]),
        "cpus": tuple(said["cpus"]),
        "execution_providers": tuple(said["execution_providers"]),
        "response_cache": CacheLimits(**cache) if cache else None,
        "sequence": _sequence_in(sequence) if sequence else None,
        "generation": GenerationSettings(**{**generation, "target": Target(generation["target"])}),
    }
    return RunSettings(**{**said, **changed})


def _sequence_in(said: Mapping[str, Any]) -> SequenceLimits:
    states = tuple(SequenceState(**state) for state in said["states"])
    return SequenceLimits(**{**said, "states": states})


def _specs_out(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    return [{"name": s.name, "datatype": s.datatype.name, "shape": s.shape} for s in specs]


def _specs_in(specs: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(spec_of(s["name"], s["datatype"], tuple(s["shape"])) for s in specs)
