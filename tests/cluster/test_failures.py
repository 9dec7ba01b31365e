"""The failure table on the compose cluster: all rows one after the other under one load, and at the end its accounts.

INFERPLANE_TEST_FAILURE_ROUNDS (1) says how often all rows are done. What was seen is printed, and kept in
the file that INFERPLANE_TEST_FAILURE_REPORT names.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from benchmarks.failures.accounts import audit, open_project
from benchmarks.failures.book import Book, show, write
from benchmarks.failures.calls import FACTOR, TENSOR_ENDPOINT, TEXT_ENDPOINT, Kind
from benchmarks.failures.traffic import Traffic
from tests.cluster.failing_cluster import FailingCluster
from tests.cluster.failing_rows import ROWS, Row, name_next
from tests.models import good
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

_RATES = {Kind.TENSOR: 90.0, Kind.STREAM: 4.0, Kind.OPENAI: 4.0}
_ENOUGH = 99.9  # of a hundred calls
_LEAST = 500  # calls, for accounts to say something
_ROUNDS = int(os.environ.get("INFERPLANE_TEST_FAILURE_ROUNDS", "1"))
_REPORT = os.environ.get("INFERPLANE_TEST_FAILURE_REPORT", "")
_ONCE = "upgrade"  # rows that can't be done again


@dataclass(frozen=True, slots=True)
class Trial:
    """The cluster under load, and what was seen so far."""

    cluster: FailingCluster
    token: str = field(repr=False)  # the load's key
    traffic: Traffic
    book: Book


@pytest.fixture(scope="module")
def trial(failing: FailingCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """The load's models beside the demo's; calls flow as long as the tests of this module run."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "affine.onnx").write_bytes(good.affine(FACTOR))
    write_tiny(folder / "tiny.gguf", Tiny(context=1024))
    for name, file in ((TENSOR_ENDPOINT, "affine.onnx"), (TEXT_ENDPOINT, "tiny.gguf")):
        failing.cli("models", "push", name, str(folder / file))
        failing.cli("deploy", f"{name}@1")
    name_next()
    token = open_project(failing.cli)
    traffic = Traffic(failing.address, token, _RATES)
    book = Book(traffic)
    with traffic.flowing():
        yield Trial(failing, token, traffic, book)
    rows = [*book.rows, book.total()]
    show(rows, "Failures in the compose cluster")
    if _REPORT:
        write(rows, Path(_REPORT))


def _rows() -> list[Row]:
    again = [row for row in ROWS if not row.name.startswith(_ONCE)]
    return [*again * (_ROUNDS - 1), *ROWS]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.name)
def test_what_fails_is_seen_as_promised(trial: Trial, row: Row) -> None:
    """Calls see of it what the table says, and afterwards all is as it was."""
    row.run(trial.cluster, trial.traffic, trial.book)
    assert trial.book.rows[-1].broken == []


def test_nearly_all_calls_were_answered(trial: Trial) -> None:
    """99.9 % over the whole run, with whatever failed in it."""
    trial.traffic.answered()
    assert len(trial.traffic.outcomes) >= _LEAST
    assert trial.book.total().availability >= _ENOUGH


def test_nothing_was_started_again_by_itself(trial: Trial) -> None:
    """Each container ran on through all of it, but for those that were killed: once for each time."""
    found = {one.name: one.restarts for one in trial.cluster.containers() if one.restarts}
    beyond = {name: n for name, n in found.items() if n > trial.cluster.crashes[name]}
    assert beyond == {}


def test_each_request_was_counted_once(trial: Trial) -> None:
    """None lost, none counted twice, each as it was delivered, and the ledger adds up."""
    trial.traffic.answered()
    assert len(trial.traffic.outcomes) >= _LEAST
    trial.traffic.stop()
    found = audit(trial.cluster.cli, trial.token, trial.traffic.outcomes)
    print(found.told())
    if _REPORT:
        Path(_REPORT).with_suffix(".accounts.json").write_text(f"{asdict(found)}\n")
    assert found.ok, found
