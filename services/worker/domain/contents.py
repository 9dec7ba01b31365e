"""The data of one tensor as a client may send it, and how it becomes an array."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from services.rpc.errors import FieldViolation
from services.worker.domain.datatype import Datatype

Array = np.ndarray[Any, np.dtype[Any]]


class ContentsError(Exception):
    """One field's data breaks a rule; the request reader collects these."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(description)
        self.violation = FieldViolation(field, description)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the data must be; checked against the signature before any data is read."""

    datatype: Datatype
    shape: tuple[int, ...]
    count: int  # elements: product of the shape


class Contents(Protocol):
    """One tensor's data in some form; `array` raises ContentsError and allocates nothing before lengths agree."""

    def array(self, wanted: Wanted) -> Array:
        """The data in the wanted shape; may be a read-only view of what arrived."""
        ...


def shown(value: object) -> str:
    """A refused value as messages show it: cut after 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"
