"""The versions on this worker: starts and releases their runners as assignments change, finds the one a call is for."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from services.rpc.names import VersionName
from services.worker.domain.assignment import Assignment
from services.worker.domain.load_state import SERVES, SETTLED
from services.worker.domain.routing import (
    Asked,
    Candidate,
    check_routed,
    choose,
    is_language_model,
    is_no_language_model,
    not_ready,
)
from services.worker.drivers.open_streams import OpenStreams
from services.worker.drivers.runner_parts import RunnerParts
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.served_version import ServedVersion
from services.worker.drivers.version_runner import VersionRunner
from services.worker.ports.discovery import VersionReport

_log = structlog.get_logger(__name__)


class Roster:
    """One runner for each version that is here; `run` owns their tasks."""

    def __init__(self, parts: RunnerParts) -> None:
        self.epoch = 0  # grows whenever `find` may give another answer than before
        self._told = parts.changed
        self._watching: list[Callable[[], None]] = []
        self._parts = replace(parts, changed=self._note_change)
        self._runners: dict[str, VersionRunner] = {}  # by resource name
        self._wanted: dict[VersionName, Assignment] = {}
        self._changed = asyncio.Event()
        self._starting: set[VersionName] | None = None  # assigned first; None: nothing is known yet
        self._settled = asyncio.Event()

    @property
    def streams(self) -> OpenStreams:
        """Streams of requests that are open here."""
        return self._parts.streams

    def assign(self, wanted: Mapping[VersionName, Assignment]) -> None:
        """From now on exactly these versions are to be here."""
        self._wanted = dict(wanted)
        if self._starting is None:
            self._starting = set(wanted)
        self._settle()
        self._changed.set()

    async def settled(self) -> None:
        """Return once each version that was assigned first is loaded, has failed, or is not assigned any more."""
        await self._settled.wait()

    async def run(self) -> None:
        """Bring what is here to what is wanted, again after each change, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._release_unwanted()
                for assignment in self._wanted.values():
                    self._start(assignment, tasks)

    def reports(self) -> list[VersionReport]:
        """All versions as of now, ordered by name."""
        return [self._runners[name].report() for name in sorted(self._runners)]

    def find(self, asked: Asked) -> ServedVersion:
        """The version of tensors that a call is for.

        Raises InvalidArgumentError, NotFoundError, UnavailableError as `domain.routing` says, FailedPreconditionError
        if it is a language model.
        """
        served = self.find_any(asked)
        if isinstance(served, ServedText):
            raise is_language_model(asked)
        return served

    def find_text(self, asked: Asked) -> ServedText:
        """The language model that a call is for; raises as `find` does, the other way round."""
        served = self.find_any(asked)
        if isinstance(served, ServedVersion):
            raise is_no_language_model(asked)
        return served

    def find_any(self, asked: Asked) -> ServedVersion | ServedText:
        """The version that a call is for, of either kind. Raises as `domain.routing` says."""
        if asked.retried:
            self._parts.flights.look()
        if asked.routed_version is None:
            name = str(choose(asked, self._candidates()))
        else:
            name = asked.routed_version
            check_routed(asked, name.rpartition("/")[2])
        runner = self._runners.get(name)
        if runner is None or runner.served is None or runner.state not in SERVES:
            raise not_ready(name)
        return runner.served

    def find_all(self, asked: Asked) -> list[ServedVersion | ServedText]:
        """The versions that a question is about: the routed one, or all that serve of the model, or of all models.

        Raises as `find` does if there is none of that name.
        """
        if asked.routed_version is not None:
            return [self.find_any(asked)]
        found = [
            runner.served
            for _, runner in sorted(self._runners.items())
            if runner.served is not None
            and runner.state in SERVES
            and asked.model_name in ("", runner.spec.name.model)
            and asked.model_version in ("", runner.spec.name.version)
        ]
        return found if found or not asked.model_name else [self.find_any(asked)]

    def watch(self, told: Callable[[], None]) -> None:
        """Tell of each new epoch, so that nobody holds on to a version that is gone."""
        self._watching.append(told)

    def _note_change(self) -> None:
        self._settle()
        self._turn()
        self._told()

    def _settle(self) -> None:
        """One that has failed once is settled, though it is tried again."""
        if self._starting is None:
            return
        self._starting = {name for name in self._starting if self._is_coming(name)}
        if not self._starting:
            self._settled.set()

    def _is_coming(self, name: VersionName) -> bool:
        runner = self._runners.get(str(name))
        return name in self._wanted and (runner is None or runner.state not in SETTLED)

    def _turn(self) -> None:
        self.epoch += 1
        for told in self._watching:
            told()

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(runner.spec.name, runner.spec.created_ns, runner.state in SERVES)
            for runner in self._runners.values()
        ]

    def _release_unwanted(self) -> None:
        for runner in self._runners.values():
            wanted = self._wanted.get(runner.spec.name)
            if wanted is None or not runner.accepts(wanted.spec):
                runner.release()

    def _start(self, assignment: Assignment, tasks: asyncio.TaskGroup) -> None:
        name = str(assignment.spec.name)
        runner = self._runners.get(name)
        if runner is None:
            runner = VersionRunner(assignment, self._parts)
            self._runners[name] = runner
            self._turn()
            task = tasks.create_task(runner.run(), name=name)
            task.add_done_callback(lambda _: self._forget(name))
        elif runner.accepts(assignment.spec) and runner.assignment != assignment:
            runner.reassign(assignment)

    def _forget(self, name: str) -> None:
        del self._runners[name]
        self._turn()
        # The same version may be wanted again by now, or with other settings.
        self._changed.set()
