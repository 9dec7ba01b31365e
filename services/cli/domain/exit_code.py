"""Exit codes of the command line, and which failure ends with which."""

from enum import IntEnum

from services.rpc.errors import InferplaneError, Kind


class ExitCode(IntEnum):
    """What a script can tell from the process's exit code."""

    OK = 0
    FAILED = 1  # none of the below
    USAGE = 2  # the command line itself is wrong
    NOT_FOUND = 3
    UNAVAILABLE = 4  # nothing listens, no worker can answer, or the time is over
    REFUSED = 5  # invalid, a precondition does not hold, a limit is reached, or not allowed
    INTERRUPTED = 130  # Ctrl-C


_OF_STATUS = {
    "INVALID_ARGUMENT": ExitCode.REFUSED,
    "ALREADY_EXISTS": ExitCode.REFUSED,
    "FAILED_PRECONDITION": ExitCode.REFUSED,
    "ABORTED": ExitCode.REFUSED,
    "OUT_OF_RANGE": ExitCode.REFUSED,
    "RESOURCE_EXHAUSTED": ExitCode.REFUSED,
    "PERMISSION_DENIED": ExitCode.REFUSED,
    "UNAUTHENTICATED": ExitCode.REFUSED,
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "UNAVAILABLE": ExitCode.UNAVAILABLE,
    "DEADLINE_EXCEEDED": ExitCode.UNAVAILABLE,
}

_OF_HTTP = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    412: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class UsageError(InferplaneError):
    """What was typed can't be meant: nothing was asked of any server."""

    default_reason = "USAGE"


class StartError(InferplaneError):
    """`up` can't start, or did not come to answer; the text tells why and what to do."""

    kind = Kind.FAILED_PRECONDITION
    default_reason = "START_FAILED"


class StatusError(InferplaneError):
    """A server's answer with a status that our own error tree does not raise."""

    def __init__(self, status: str, message: str) -> None:
        """`status` is a canonical status name, for example PERMISSION_DENIED."""
        super().__init__(message, reason=status)
        self.status = status


def status_of(error: InferplaneError) -> str:
    """The canonical status name of a failure."""
    if isinstance(error, UsageError):
        return "INVALID_ARGUMENT"
    return error.status if isinstance(error, StatusError) else error.kind.name


def status_of_http(code: int) -> str:
    """The canonical status name that an HTTP status stands for."""
    return _OF_HTTP.get(code, "INTERNAL" if code >= 500 else "INVALID_ARGUMENT")


def exit_code_of(error: InferplaneError) -> ExitCode:
    """The exit code that a failure ends the command with."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if isinstance(error, StartError):
        return ExitCode.FAILED
    return _OF_STATUS.get(status_of(error), ExitCode.FAILED)
