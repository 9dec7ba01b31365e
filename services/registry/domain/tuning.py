"""Tuning of a version: the threads, instances and batch size that measuring found to be fastest."""

import math
from dataclasses import dataclass
from datetime import datetime

from services.registry.domain.settings_rules import (
    MAX_BATCH_SIZE,
    MAX_CPUS,
    MAX_INSTANCES,
    MAX_THREADS,
)
from services.rpc.violations import Violations


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTuning:
    """What was measured, on one kind of machine."""

    intra_op_threads: int
    instances: int
    max_batch_size: int
    rows_per_second: float
    baseline_rows_per_second: float  # one instance, one thread, no batches
    machine_cpus: int
    measure_time: datetime


def check_tuning(tuning: VersionTuning) -> VersionTuning:
    """A tuning that a worker can run by. All violations at once."""
    violations = Violations()
    for field, value, most in (
        ("intra_op_threads", tuning.intra_op_threads, MAX_THREADS),
        ("instances", tuning.instances, MAX_INSTANCES),
        ("max_batch_size", tuning.max_batch_size, MAX_BATCH_SIZE),
        ("machine_cpus", tuning.machine_cpus, MAX_CPUS),
    ):
        violations.require(1 <= value <= most, f"tuning.{field}", f"{value}; allowed: 1 to {most}")
    for field, rate in (
        ("rows_per_second", tuning.rows_per_second),
        ("baseline_rows_per_second", tuning.baseline_rows_per_second),
    ):
        violations.require(
            math.isfinite(rate) and rate > 0,
            f"tuning.{field}",
            f"{rate:g}; allowed: a finite number greater than 0",
        )
    violations.raise_if_any()
    return tuning
