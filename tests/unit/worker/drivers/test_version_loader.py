"""How a version's instances are planned here."""

import os

import pytest

from services.worker.domain.assignment import RunSettings
from services.worker.domain.execution import Execution
from services.worker.domain.instance_plan import Instance
from services.worker.domain.load_state import LoadError
from services.worker.drivers import version_loader

CPUS = sorted(os.sched_getaffinity(0))
EXECUTION = Execution(max_batch_size=4, instances=2, intra_op_threads=1)


def test_instances_share_the_cpus_that_settings_name() -> None:
    """As many instances as are in effect, each with its part."""
    plan = version_loader.plan(RunSettings(cpus=(CPUS[0],)), EXECUTION)
    assert plan == (Instance(1, (CPUS[0],)), Instance(1, (CPUS[0],)))


def test_cpus_that_are_not_here_are_a_failed_load() -> None:
    """The reason names the field, what was given, and those that the worker may use."""
    with pytest.raises(LoadError, match=r"cpus: \[99999\] given; allowed: those of this worker"):
        version_loader.plan(RunSettings(cpus=(CPUS[0], 99999)), EXECUTION)
