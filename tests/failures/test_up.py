"""Rows of the failure table on a whole `up`, one after the other under one load, and at the end its accounts.

Rows that other tests prove are in `python -m benchmarks.failures` too, with these; which is where: tests/README.md.
"""

import pytest

from benchmarks.failures.accounts import audit
from benchmarks.failures.up_machine import Machine
from benchmarks.failures.up_machine_rows import clock_failures, disk_failures
from benchmarks.failures.up_rows import FAILURES
from tests.failures.conftest import Trial

_HERE = (
    "artifact: one bit is another",
    "worker's cache: spoilt; kill -9",
)
_DISKS, _CLOCKS = 4, 2  # rows
_LEAST = 500  # calls, for accounts to say something


@pytest.mark.parametrize("name", _HERE)
def test_what_fails_is_seen_as_promised(trial: Trial, name: str) -> None:
    """Calls see of it what the table says, and afterwards all is as it was."""
    (failure,) = (one for one in FAILURES if one.name == name)
    trial.endure(failure)


@pytest.mark.parametrize("number", range(_DISKS))
def test_full_disks(trial: Trial, machine: Machine, number: int) -> None:
    """What needs the disk is refused and says so, all else goes on, and with room again it works."""
    if machine.disks is None:
        pytest.skip("only root may mount small disks")
    trial.endure(disk_failures(machine.disks)[number])


@pytest.mark.parametrize("number", range(_CLOCKS))
def test_clocks_that_jump(trial: Trial, machine: Machine, number: int) -> None:
    """Wall clocks a day ahead and back: no call fails, no lease ends, nothing is started again."""
    if machine.clock is None:
        pytest.skip("clocks can't be made to jump here: no Linux, or no C compiler")
    trial.endure(clock_failures(machine.clock)[number])


def test_each_request_was_counted_once(trial: Trial) -> None:
    """After all of it: none lost, none counted twice, each as it was delivered, and the ledger adds up."""
    trial.traffic.answered()
    assert len(trial.traffic.outcomes) >= _LEAST
    trial.traffic.stop()
    found = audit(trial.mesh.mesh.cli, trial.mesh.token, trial.traffic.outcomes, trial.mesh.rows)
    print(found.told())
    assert found.ok, found
