"""Rules for the settings of a version that hold whatever its signature is: ranges, and what goes together."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from services.registry.domain.fields import check_range
from services.registry.domain.generation_rules import check_generation
from services.registry.domain.version_settings import (
    BatchAxis,
    PaddedInput,
    SequenceSettings,
    TrimmedOutput,
    VersionSettings,
)
from services.rpc.names import shown
from services.rpc.violations import Violations

T = TypeVar("T")

MAX_BATCH_SIZE = 65_536  # rows
MAX_PREFERRED_SIZES = 64
MAX_QUEUE_DELAY_US = 60_000_000
MAX_QUEUE_ROWS = 1_000_000_000
MAX_BYTES = 1 << 50
MAX_QUEUE_TIMEOUT_US = 3_600_000_000  # an hour, as an endpoint's longest timeout
MAX_PRIORITY_LEVELS = 100
MAX_THREADS = 1024
MAX_INSTANCES = 256
MAX_CPUS = 4096
MAX_PROVIDERS = 16
MAX_TENSORS = 256  # padded inputs, trimmed outputs, states
MAX_AXIS = 63
MAX_TTL_MS = 30 * 24 * 3_600_000
MAX_IDLE_MS = 24 * 3_600_000
_PROVIDER = re.compile(r"[A-Za-z][A-Za-z0-9]{0,47}ExecutionProvider")
_RANGES = (
    ("max_batch_size", MAX_BATCH_SIZE),
    ("max_queue_delay_us", MAX_QUEUE_DELAY_US),
    ("max_queue_rows", MAX_QUEUE_ROWS),
    ("max_queue_bytes", MAX_BYTES),
    ("queue_timeout_us", MAX_QUEUE_TIMEOUT_US),
    ("priority_levels", MAX_PRIORITY_LEVELS),
    ("instances", MAX_INSTANCES),
    ("intra_op_threads", MAX_THREADS),
)


def check_settings(violations: Violations, settings: VersionSettings) -> VersionSettings:
    """Settings within their ranges that don't contradict each other."""
    if settings.generation is not None:
        check_generation(violations, settings.generation)
    for field, most in _RANGES:
        check_range(violations, f"settings.{field}", getattr(settings, field), most)
    check_range(
        violations,
        "settings.default_priority",
        settings.default_priority,
        max(settings.priority_levels, 0),
    )
    _check_preferred(violations, settings)
    _check_padded(violations, settings.padded_inputs)
    _check_trimmed(violations, settings)
    _check_cpus(violations, settings.cpus)
    _check_providers(violations, settings.execution_providers)
    _check_cache(violations, settings)
    if settings.sequence is not None:
        _check_sequence(violations, settings.sequence)
    if settings.batch_axis is BatchAxis.NONE:
        _check_unbatched(violations, settings)
    return settings


def _check_preferred(violations: Violations, settings: VersionSettings) -> None:
    field, sizes = "settings.preferred_batch_sizes", settings.preferred_batch_sizes
    # A size that is itself out of range bounds nothing.
    most = settings.max_batch_size if settings.max_batch_size > 0 else MAX_BATCH_SIZE
    _check_count(violations, field, sizes, MAX_PREFERRED_SIZES)
    for index, size in enumerate(sizes):
        violations.require(
            1 <= size <= most, f"{field}[{index}]", f"{size} rows; allowed: 1 to {most}"
        )
    for index, (one, next_one) in enumerate(pairwise(sizes), 1):
        violations.require(
            one < next_one,
            f"{field}[{index}]",
            f"{next_one} follows {one}; allowed: sizes in ascending order",
        )


def _check_padded(violations: Violations, padded: Sequence[PaddedInput]) -> None:
    field = "settings.padded_inputs"
    _check_count(violations, field, padded, MAX_TENSORS)
    _check_once(violations, field, padded, lambda one: f"axis {one.axis} of {shown(one.name)}")
    for index, one in enumerate(padded):
        _check_axis(violations, f"{field}[{index}].axis", one.axis)
        _check_name(violations, f"{field}[{index}].name", one.name)
        violations.require(
            math.isfinite(one.pad_value),
            f"{field}[{index}].pad_value",
            f"{one.pad_value:g}; allowed: a finite number",
        )
        violations.require(
            not (one.mask and one.pad_value),
            f"{field}[{index}].pad_value",
            f"{one.pad_value:g} of a mask; allowed: 0, which masks are padded with",
        )


def _check_trimmed(violations: Violations, settings: VersionSettings) -> None:
    field, trimmed = "settings.trimmed_outputs", settings.trimmed_outputs
    padded = {(one.name, one.axis) for one in settings.padded_inputs}
    _check_count(violations, field, trimmed, MAX_TENSORS)
    _check_once(violations, field, trimmed, lambda one: f"axis {one.axis} of {shown(one.name)}")
    for index, one in enumerate(trimmed):
        _check_axis(violations, f"{field}[{index}].axis", one.axis)
        _check_name(violations, f"{field}[{index}].name", one.name)
        _check_source(violations, f"{field}[{index}]", one, padded)


def _check_source(
    violations: Violations, field: str, trimmed: TrimmedOutput, padded: set[tuple[str, int]]
) -> None:
    if (trimmed.input, trimmed.input_axis) in padded:
        return
    axes = [axis for name, axis in padded if name == trimmed.input]
    if axes:
        listed = ", ".join(str(axis) for axis in sorted(axes))
        violations.add(
            f"{field}.input_axis",
            f"axis {trimmed.input_axis} of {shown(trimmed.input)} is not padded; allowed: {listed}",
        )
        return
    listed = ", ".join(sorted({shown(name) for name, _ in padded})) or "none is declared"
    violations.add(
        f"{field}.input",
        f"{shown(trimmed.input)} is no padded input; allowed: one of padded_inputs ({listed})",
    )


def _check_cpus(violations: Violations, cpus: Sequence[int]) -> None:
    _check_count(violations, "settings.cpus", cpus, MAX_CPUS)
    _check_once(violations, "settings.cpus", cpus, lambda cpu: f"CPU {cpu}")
    for index, cpu in enumerate(cpus):
        check_range(violations, f"settings.cpus[{index}]", cpu, MAX_CPUS - 1)


def _check_providers(violations: Violations, providers: Sequence[str]) -> None:
    field = "settings.execution_providers"
    violations.require(
        len(providers) <= MAX_PROVIDERS and len(set(providers)) == len(providers),
        field,
        f"{len(providers)} names; allowed: at most {MAX_PROVIDERS} different ones",
    )
    for index, provider in enumerate(providers):
        violations.require(
            _PROVIDER.fullmatch(provider) is not None,
            f"{field}[{index}]",
            f"{shown(provider)}; allowed: a name such as CUDAExecutionProvider",
        )


def _check_cache(violations: Violations, settings: VersionSettings) -> None:
    cache, field = settings.response_cache, "settings.response_cache"
    if cache is None:
        return
    violations.require(
        1 <= cache.max_bytes <= MAX_BYTES,
        f"{field}.max_bytes",
        f"{cache.max_bytes}; allowed: 1 to {MAX_BYTES}",
    )
    check_range(violations, f"{field}.ttl_ms", cache.ttl_ms, MAX_TTL_MS)
    violations.require(
        settings.sequence is None,
        field,
        "is set together with sequence, whose answers depend on more than the request;"
        " allowed: one of both",
    )


def _check_sequence(violations: Violations, sequence: SequenceSettings) -> None:
    field = "settings.sequence"
    check_range(violations, f"{field}.idle_timeout_ms", sequence.idle_timeout_ms, MAX_IDLE_MS)
    check_range(violations, f"{field}.max_bytes", sequence.max_bytes, MAX_BYTES)
    states = f"{field}.states"
    _check_count(violations, states, sequence.states, MAX_TENSORS)
    for index, state in enumerate(sequence.states):
        _check_name(violations, f"{states}[{index}].input", state.input)
        _check_name(violations, f"{states}[{index}].output", state.output)
    _check_once(violations, states, sequence.states, lambda state: f"input {shown(state.input)}")
    _check_once(violations, states, sequence.states, lambda state: f"output {shown(state.output)}")


def _check_unbatched(violations: Violations, settings: VersionSettings) -> None:
    """A version whose requests are computed alone has no settings of batches."""
    with_none = "with batch_axis BATCH_AXIS_NONE"
    violations.require(
        settings.max_batch_size <= 1,
        "settings.max_batch_size",
        f"{settings.max_batch_size} {with_none}; allowed: 0 or 1",
    )
    for field in ("preferred_batch_sizes", "padded_inputs", "trimmed_outputs"):
        count = len(getattr(settings, field))
        violations.require(
            count == 0, f"settings.{field}", f"{count} entries {with_none}; allowed: none"
        )


def _check_count(violations: Violations, field: str, items: Sequence[object], most: int) -> None:
    violations.require(len(items) <= most, field, f"{len(items)} entries; allowed: at most {most}")


def _check_once(
    violations: Violations, field: str, items: Sequence[T], described: Callable[[T], str]
) -> None:
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        what = described(item)
        if what in first:
            violations.add(
                f"{field}[{index}]", f"{what} is {field}[{first[what]}] already; allowed: once"
            )
        first.setdefault(what, index)


def _check_axis(violations: Violations, field: str, axis: int) -> None:
    violations.require(
        1 <= axis <= MAX_AXIS, field, f"{axis}; allowed: 1 to {MAX_AXIS} (axis 0 counts rows)"
    )


def _check_name(violations: Violations, field: str, name: str) -> None:
    violations.require(bool(name), field, "is empty; allowed: a name in the model's signature")
