"""One mesh for all failures, on disks and with a clock of its own where that can be, under one steady load."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.failures.book import Book, show
from benchmarks.failures.failure import Failure
from benchmarks.failures.traffic import Traffic
from benchmarks.failures.up_machine import Machine
from benchmarks.failures.up_machine import machine as made_machine
from benchmarks.failures.up_mesh import UpMesh, up

# They take minutes of a machine that does little else: `.ci/run` asks for them.
collect_ignore = [] if os.environ.get("INFERPLANE_TEST_FAILURES") else ["test_up.py"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The mesh under load, and what was seen so far."""

    mesh: UpMesh
    traffic: Traffic
    book: Book

    def endure(self, failure: Failure[UpMesh]) -> None:
        """Break it; no call ends otherwise than promised."""
        failure.run(self.mesh, self.traffic, self.book)
        assert self.book.rows[-1].broken == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failures")


@pytest.fixture(scope="module")
def machine(folder: Path) -> Iterator[Machine]:
    with made_machine(folder) as made:
        yield made


@pytest.fixture(scope="module")
def trial(machine: Machine, folder: Path) -> Iterator[Trial]:
    """The load flows as long as the tests of the module run; what it saw is printed at the end."""
    with up(folder) as mesh:
        traffic = Traffic(mesh.address, mesh.token)
        book = Book(traffic)
        with traffic.flowing():
            yield Trial(mesh, traffic, book)
        show([*book.rows, book.total()], "Failures on `up`")
