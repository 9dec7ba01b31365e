"""What a request's parameters ask for beside the inference itself; names that mean nothing here are let pass."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.domain.contents import shown
from services.worker.domain.sequence_part import SequencePart, read_part

_MOST_PRIORITY = 2**32 - 1
_MOST_TIMEOUT_US = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Parameters that have a meaning for every request."""

    priority: int = 0  # 1: first; 0: the version's default
    timeout: float | None = None  # seconds that it may wait; None: what the version says
    timing: bool = False  # the answer's parameters tell where its time went
    no_store: bool = False  # neither answered from the response cache nor kept in it
    sequence: SequencePart | None = None  # None: it stands by itself


PLAIN = RequestOptions()


@dataclass(slots=True)
class AnswerFacts:
    """How one answer came to be, for a caller that wants to know; filled in before it is delivered."""

    timing: bool = False  # whether times were asked for
    queue_ns: int = 0
    compute_ns: int = 0
    batch_rows: int = 0  # rows that were computed together
    cache_hit: bool = False

    def ran(self, waited: float, compute_ns: int, rows: int) -> None:
        """It waited so many seconds, then was computed with so many rows."""
        self.queue_ns = int(waited * 1e9)
        self.compute_ns = compute_ns
        self.batch_rows = rows

    def parameters(self) -> dict[str, bool | int]:
        """The answer's parameters."""
        said: dict[str, bool | int] = {}
        if self.cache_hit:
            said["cache_hit"] = True
        if self.timing:
            said["queue_us"] = self.queue_ns // 1000
            said["compute_us"] = self.compute_ns // 1000
            said["batch_size"] = self.batch_rows
        return said


def read_options(parameters: Mapping[str, object]) -> RequestOptions:
    """Options from parameters by name. Raises InvalidArgumentError with every one that is wrong."""
    if not parameters:
        return PLAIN
    reader = _Reader(parameters)
    priority = reader.whole("priority", _MOST_PRIORITY)
    timeout_us = reader.whole("timeout", _MOST_TIMEOUT_US)
    options = RequestOptions(
        priority=priority,
        timeout=timeout_us / 1e6 if timeout_us else None,
        timing=reader.flag("timing"),
        no_store=reader.flag("no_store"),
        sequence=read_part(parameters, reader.violations),
    )
    if reader.violations:
        raise InvalidArgumentError.of_fields(reader.violations)
    return PLAIN if options == PLAIN else options


class _Reader:
    """Collects what is wrong."""

    def __init__(self, parameters: Mapping[str, object]) -> None:
        self._parameters = parameters
        self.violations: list[FieldViolation] = []

    def whole(self, name: str, most: int) -> int:
        """A number from 0; absent: 0."""
        value = self._parameters.get(name, 0)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self._wrong(name, f"{shown(value)} given; allowed: a whole number, 0 to {most}")
        return 0

    def flag(self, name: str) -> bool:
        """True or false; absent: false."""
        value = self._parameters.get(name, False)
        if isinstance(value, bool):
            return value
        self._wrong(name, f"{shown(value)} given; allowed: true or false")
        return False

    def _wrong(self, name: str, text: str) -> None:
        self.violations.append(FieldViolation(f"parameters.{name}", text))
