"""One row of the table: what fails, what calls may see of it, and how it is made to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.failures.book import Book, Promise
from benchmarks.failures.traffic import Traffic

_BEFORE = 0.6  # seconds' worth of calls; those after the row before were answered too
_AFTER = 2.5

M = TypeVar("M")
Act = Callable[[M, Traffic], None]  # breaks something, and returns when all is as it was


@dataclass(frozen=True, slots=True)
class Failure(Generic[M]):
    """A failure of a mesh that is run in some way."""

    name: str
    promise: Promise
    act: Act[M]

    def run(self, mesh: M, traffic: Traffic, book: Book) -> None:
        """Break it under load, with calls before and after."""
        traffic.answered(round(_BEFORE * traffic.rate))
        with book.row(self.name, self.promise):
            self.act(mesh, traffic)
            traffic.answered(round(_AFTER * traffic.rate))
