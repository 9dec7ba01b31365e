"""The error tree: every error that a caller can see, with its kind and machine-readable reason.

Pure: no gRPC here. `interceptor.py` turns these into statuses with `ErrorInfo`, `BadRequest` and `RetryInfo`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

DOMAIN = "inferplane"


class Kind(Enum):
    """What sort of failure it is; names are those of the canonical status codes (google.rpc.Code)."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    UNAVAILABLE = "UNAVAILABLE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that breaks a rule."""

    field: str  # path, for example `inputs[0].shape`
    description: str  # what was given and what is allowed


class InferplaneError(Exception):
    """Root of the tree. Subclasses fix `kind`; `reason` is UPPER_SNAKE_CASE and stable."""

    kind: ClassVar[Kind] = Kind.INTERNAL
    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
    ) -> None:
        """Describe one failure.

        Args:
            message: for a person: what was wrong, what was given, what is allowed.
            reason: for a program; the class's default if None.
            metadata: every variable part of the message.
            violations: all fields that are wrong, not only the first.
            retry_after: seconds after which trying again makes sense; None: it doesn't.
        """
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after


class InvalidArgumentError(InferplaneError):
    """The request is wrong whatever the state of the system."""

    kind = Kind.INVALID_ARGUMENT
    default_reason = "INVALID_ARGUMENT"

    @classmethod
    def of_field(cls, field: str, description: str, **metadata: str) -> "InvalidArgumentError":
        """One field breaks a rule; `description` says what was given and what is allowed."""
        return cls.of_fields([FieldViolation(field, description)], **metadata)

    @classmethod
    def of_fields(
        cls, violations: Sequence[FieldViolation], **metadata: str
    ) -> "InvalidArgumentError":
        """Several fields break rules; all are reported at once."""
        message = "; ".join(f"{v.field}: {v.description}" for v in violations)
        details = {"field": violations[0].field, **metadata}
        return cls(message, reason="INVALID_FIELD", metadata=details, violations=violations)


class NotFoundError(InferplaneError):
    """What was named does not exist."""

    kind = Kind.NOT_FOUND
    default_reason = "NOT_FOUND"


class AlreadyExistsError(InferplaneError):
    """The name is taken by something else."""

    kind = Kind.ALREADY_EXISTS
    default_reason = "ALREADY_EXISTS"


class FailedPreconditionError(InferplaneError):
    """The state of the system forbids it until something else is done first."""

    kind = Kind.FAILED_PRECONDITION
    default_reason = "FAILED_PRECONDITION"


class AbortedError(InferplaneError):
    """Somebody else changed it meanwhile: read again, then try again."""

    kind = Kind.ABORTED
    default_reason = "ETAG_MISMATCH"


class OutOfRangeError(InferplaneError):
    """An offset or revision that is not there."""

    kind = Kind.OUT_OF_RANGE
    default_reason = "OUT_OF_RANGE"


class ResourceExhaustedError(InferplaneError):
    """A limit is reached: queue, size, quota."""

    kind = Kind.RESOURCE_EXHAUSTED
    default_reason = "RESOURCE_EXHAUSTED"


class DeadlineExceededError(InferplaneError):
    """The caller's deadline passed before there was an answer."""

    kind = Kind.DEADLINE_EXCEEDED
    default_reason = "DEADLINE_EXCEEDED"


class CancelledError(InferplaneError):
    """The caller went away."""

    kind = Kind.CANCELLED
    default_reason = "CANCELLED"


class UnavailableError(InferplaneError):
    """Not now; the same call may succeed on another host or later."""

    kind = Kind.UNAVAILABLE
    default_reason = "UNAVAILABLE"


class UnimplementedError(InferplaneError):
    """This server does not do that."""

    kind = Kind.UNIMPLEMENTED
    default_reason = "UNIMPLEMENTED"


class DataLossError(InferplaneError):
    """Bytes are not what their digest says."""

    kind = Kind.DATA_LOSS
    default_reason = "DIGEST_MISMATCH"


class UnauthenticatedError(InferplaneError):
    """Nobody knows who calls: no key, or none that is good."""

    kind = Kind.UNAUTHENTICATED
    default_reason = "UNAUTHENTICATED"


class PermissionDeniedError(InferplaneError):
    """It is known who calls, and that he may not do this."""

    kind = Kind.PERMISSION_DENIED
    default_reason = "PERMISSION_DENIED"


class InternalError(InferplaneError):
    """Our fault."""

    kind = Kind.INTERNAL
    default_reason = "INTERNAL"
