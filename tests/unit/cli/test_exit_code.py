"""Exit codes: every kind of failure has the documented one."""

import pytest

from services.cli.domain.exit_code import (
    ExitCode,
    StartError,
    StatusError,
    UsageError,
    exit_code_of,
    status_of,
    status_of_http,
)
from services.rpc import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (errors.NotFoundError("x"), ExitCode.NOT_FOUND),
        (errors.UnavailableError("x"), ExitCode.UNAVAILABLE),
        (errors.DeadlineExceededError("x"), ExitCode.UNAVAILABLE),
        (errors.InvalidArgumentError("x"), ExitCode.REFUSED),
        (errors.FailedPreconditionError("x"), ExitCode.REFUSED),
        (errors.AbortedError("x"), ExitCode.REFUSED),
        (errors.AlreadyExistsError("x"), ExitCode.REFUSED),
        (errors.ResourceExhaustedError("x"), ExitCode.REFUSED),
        (StatusError("PERMISSION_DENIED", "x"), ExitCode.REFUSED),
        (errors.DataLossError("x"), ExitCode.FAILED),
        (errors.InternalError("x"), ExitCode.FAILED),
        (StatusError("UNKNOWN", "x"), ExitCode.FAILED),
        (StartError("x"), ExitCode.FAILED),
    ],
)
def test_exit_code_of(error: errors.InferplaneError, code: ExitCode) -> None:
    """The code that a script sees."""
    assert exit_code_of(error) is code


@pytest.mark.parametrize(
    ("http", "status"),
    [
        (400, "INVALID_ARGUMENT"),
        (404, "NOT_FOUND"),
        (413, "RESOURCE_EXHAUSTED"),
        (418, "INVALID_ARGUMENT"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (599, "INTERNAL"),
    ],
)
def test_status_of_http(http: int, status: str) -> None:
    """An HTTP status as a canonical one."""
    assert status_of_http(http) == status


def test_status_of() -> None:
    """The status that JSON errors tell."""
    assert status_of(errors.AbortedError("x")) == "ABORTED"
    assert status_of(StatusError("PERMISSION_DENIED", "x")) == "PERMISSION_DENIED"
    assert status_of(UsageError("x")) == "INVALID_ARGUMENT"
