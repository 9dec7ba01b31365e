"""How a loaded version is run here: what its settings say, else what was measured, else the worker's defaults."""

from dataclasses import dataclass

from services.worker.domain.assignment import BatchAxis, Tuning, VersionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What is in effect for one version, as its placement's status tells it."""

    max_batch_size: int  # rows computed at once; 1: no batching
    instances: int  # sessions, each computing one batch at a time
    intra_op_threads: int  # of each session
    batching_off_reason: str = ""  # empty: requests share runs
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionDefaults:
    """What versions fall back to."""

    max_batch_size: int
    instances: int
    intra_op_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the check at load found that decides how a version is run."""

    batching_off_reason: str = ""
    warnings: tuple[str, ...] = ()
    tuning: Tuning | None = None


def max_rows_of(spec: VersionSpec, tuning: Tuning | None, default: int) -> int:
    """The most rows computed at once if rows are independent."""
    measured = tuning.max_batch_size if tuning is not None else 0
    return spec.settings.max_batch_size or measured or default


def execution_of(spec: VersionSpec, findings: Findings, defaults: ExecutionDefaults) -> Execution:
    """What is in effect. What the registry keeps of measuring comes before what was measured just now."""
    settings, tuning = spec.settings, spec.tuning or findings.tuning
    max_rows = max_rows_of(spec, tuning, defaults.max_batch_size)
    reason = findings.batching_off_reason or declared_off(spec) or ""
    if not reason and max_rows == 1:
        reason = "measuring found single rows fastest"
    return Execution(
        max_batch_size=1 if reason else max_rows,
        instances=settings.instances or (tuning.instances if tuning else 0) or defaults.instances,
        intra_op_threads=settings.intra_op_threads
        or (tuning.intra_op_threads if tuning else 0)
        or defaults.intra_op_threads,
        batching_off_reason=reason,
        warnings=findings.warnings,
    )


def declared_off(spec: VersionSpec) -> str | None:
    """Why the settings alone rule batches out; None: they don't."""
    if spec.settings.batch_axis is BatchAxis.NONE:
        return "settings say that no axis counts rows (batch_axis NONE)"
    if spec.settings.max_batch_size == 1:
        return "settings say max_batch_size 1"
    return None
