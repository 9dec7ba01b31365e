"""Rules about what refers to what: what is served can't go, and what can't serve is no target."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.registry.domain.catalog import Name, Record
from services.registry.domain.model import ModelVersion, VersionState
from services.rpc.errors import (
    AbortedError,
    FailedPreconditionError,
    FieldViolation,
    InferplaneError,
    NotFoundError,
)
from services.rpc.names import TargetName, VersionName
from services.rpc.violations import Violations

_LISTED = 20  # users that an error names


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A target with the alias followed."""

    field: str  # path in the request
    target: TargetName
    version_name: VersionName | None  # None: there is no such alias
    version: ModelVersion | None  # None: there is no such version
    placed: bool  # on at least one pool


def not_found(name: object) -> NotFoundError:
    """There is no resource of this name."""
    return NotFoundError(f"{name} does not exist", metadata={"resource": str(name)})


def check_etag(record: Record, given: str) -> None:
    """Refuse a change that was made from an older state; an empty etag asks for no check."""
    if given and given != record.etag:
        raise AbortedError(
            f"etag: {given!a} was given, but {record.name} has {record.etag!a} by now;"
            " read it again, then repeat the change",
            metadata={"resource": str(record.name), "given": given, "etag": record.etag},
        )


def refuse_while_used(name: Name, users: Iterable[Name]) -> None:
    """Refuse to delete what others need, naming them."""
    names = sorted({str(user) for user in users})
    if not names:
        return
    listed = ", ".join(names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    raise FailedPreconditionError(
        f"{name} is in use by {listed}{more}; delete or change those first",
        reason="IN_USE",
        metadata={"resource": str(name), "used_by": listed, "users": str(len(names))},
    )


def check_ready(field: str, version: ModelVersion) -> None:
    """Refuse a version that is not complete."""
    if version.state is not VersionState.READY:
        violation = FieldViolation(
            field, f"{version.name} is {version.state.value}; allowed: a READY version"
        )
        raise FailedPreconditionError(
            f"{field}: {violation.description}",
            reason="VERSION_NOT_READY",
            metadata={"resource": str(version.name), "state": version.state.value},
            violations=[violation],
        )


def check_targets(targets: Sequence[ResolvedTarget]) -> None:
    """Refuse a policy whose targets are missing, not READY, not placed, or the same version twice."""
    missing = Violations()
    for target in targets:
        if target.version is None:
            missing.add(target.field, f"{target.version_name or target.target} does not exist")
    _raise(missing, NotFoundError, "TARGET_NOT_FOUND")
    unready = Violations()
    for target in targets:
        version = target.version
        if version is None:
            continue
        if version.state is not VersionState.READY:
            unready.add(
                target.field,
                f"{version.name} is {version.state.value}; allowed: a READY version",
            )
        elif not target.placed:
            unready.add(
                target.field, f"{version.name} is on no pool; allowed: a version that is placed"
            )
    _raise(unready, FailedPreconditionError, "TARGET_NOT_SERVABLE")
    _check_distinct([t for t in targets if t.field != "mirror.target"])


def _check_distinct(targets: Sequence[ResolvedTarget]) -> None:
    first_use: dict[VersionName | None, ResolvedTarget] = {}
    twice = Violations()
    for target in targets:
        first = first_use.setdefault(target.version_name, target)
        if first is not target:
            twice.add(
                target.field,
                f"{target.target} is {target.version_name}, which {first.field}"
                f" ({first.target}) is too; allowed: every version once",
            )
    _raise(twice, FailedPreconditionError, "TARGETS_NOT_DISTINCT")


def _raise(violations: Violations, kind: type[InferplaneError], reason: str) -> None:
    found = violations.found
    if found:
        message = "; ".join(f"{v.field}: {v.description}" for v in found)
        raise kind(message, reason=reason, metadata={"field": found[0].field}, violations=found)
