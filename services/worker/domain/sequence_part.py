"""Which sequence a request belongs to, by Triton's parameters `sequence_id`, `sequence_start` and `sequence_end`."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.rpc.errors import FieldViolation
from services.worker.domain.contents import shown

SequenceId = int | str  # 5 and "5" are two sequences, as in Triton

_MOST = 2**64 - 1
_LONGEST = 128  # bytes of a text


@dataclass(frozen=True, slots=True)
class SequencePart:
    """One request of a sequence."""

    id: SequenceId
    starts: bool = False
    ends: bool = False


def read_part(
    parameters: Mapping[str, object], violations: list[FieldViolation]
) -> SequencePart | None:
    """The part, or None without an id (absent, 0 or empty); what is wrong is added to `violations`."""
    given = parameters.get("sequence_id", 0)
    starts = _flag(parameters, "sequence_start", violations)
    ends = _flag(parameters, "sequence_end", violations)
    if not _is_id(given):
        violations.append(
            FieldViolation(
                "parameters.sequence_id",
                f"{shown(given)} given; allowed: a whole number, 0 to {_MOST},"
                f" or a text of at most {_LONGEST} bytes",
            )
        )
        return None
    assert isinstance(given, int | str)
    return SequencePart(given, starts, ends) if given else None


def _is_id(given: object) -> bool:
    if isinstance(given, str):
        return len(given.encode("utf-8", "surrogatepass")) <= _LONGEST
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= _MOST


def _flag(parameters: Mapping[str, object], name: str, violations: list[FieldViolation]) -> bool:
    value = parameters.get(name, False)
    if isinstance(value, bool):
        return value
    text = f"{shown(value)} given; allowed: true or false"
    violations.append(FieldViolation(f"parameters.{name}", text))
    return False
