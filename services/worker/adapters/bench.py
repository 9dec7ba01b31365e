"""Measures layouts of a loaded model: threads that compute batches one after the other, as instances do under load."""

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.rpc.errors import InferplaneError
from services.worker.domain import varied_inputs
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.contents import Array
from services.worker.domain.load_state import LoadError
from services.worker.domain.tuning import Layout, Measured
from services.worker.domain.varied_inputs import Variation
from services.worker.ports.session import Session, SessionLoader

Feeds = Mapping[str, Array]

# Of free dimensions beyond the first, where the model accepts it: a sentence, not a word.
_LONG = 32


@dataclass(slots=True)
class _Lane:
    """What one thread has computed."""

    runs: int = 0
    seconds: float = 0.0
    error: InferplaneError | None = None


@dataclass(slots=True)
class Bench:
    """One version in this process."""

    spec: VersionSpec
    folder: Path
    loader: SessionLoader
    variation: Variation
    _sessions: dict[int, list[Session]] = field(default_factory=dict)  # by threads of each

    @property
    def outputs(self) -> Sequence[str]:
        """All of them."""
        return [spec.name for spec in self.spec.signature.outputs]

    def lengthen(self) -> None:
        """Measure on longer rows, if they are accepted."""
        longer = varied_inputs.with_length(self.variation, _LONG)
        with suppress(InferplaneError):
            feeds = varied_inputs.rows_of(self.spec.signature, longer, 0)
            self._provide(1, 1)[0].run(feeds, self.outputs)
            self.variation = longer

    def measure(self, layout: Layout, seconds: float) -> Measured | None:
        """What it reaches in about so many seconds, at least one run each; None: it cannot be run."""
        try:
            sessions = self._provide(layout.intra_op_threads, layout.instances)
        except LoadError:  # memory is short
            return None
        feeds = [
            varied_inputs.rows_of(
                self.spec.signature,
                self.variation,
                number * layout.max_batch_size,
                layout.max_batch_size,
            )
            for number in range(layout.instances)
        ]
        lanes = [_Lane() for _ in sessions]
        began, ended = self._compute(lanes, sessions, feeds, seconds)
        runs = sum(lane.runs for lane in lanes)
        if any(lane.error for lane in lanes) or not runs:
            return None
        return Measured(
            rows_per_second=runs * layout.max_batch_size / (ended - began),
            run_seconds=sum(lane.seconds for lane in lanes) / runs,
        )

    def _compute(
        self,
        lanes: Sequence[_Lane],
        sessions: Sequence[Session],
        feeds: Sequence[Feeds],
        seconds: float,
    ) -> tuple[float, float]:
        """When all began, and when the last had ended."""
        ready = threading.Barrier(len(lanes) + 1)
        threads = [
            threading.Thread(target=self._work, args=(lane, session, given, seconds, ready))
            for lane, session, given in zip(lanes, sessions, feeds, strict=True)
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        began = time.monotonic()
        for thread in threads:
            thread.join()
        return began, time.monotonic()

    def _work(
        self,
        lane: _Lane,
        session: Session,
        feeds: Feeds,
        seconds: float,
        ready: threading.Barrier,
    ) -> None:
        outputs, clock = self.outputs, time.monotonic
        try:
            session.run(feeds, outputs)  # the first run of a shape is slow
        except InferplaneError as error:
            lane.error = error
        finally:
            ready.wait()
        if lane.error is not None:
            return
        begin = now = clock()
        try:
            while now - begin < seconds or not lane.runs:
                session.run(feeds, outputs)
                lane.runs += 1
                now = clock()
        except InferplaneError as error:
            lane.error = error
        lane.seconds = now - begin

    def _provide(self, threads: int, instances: int) -> list[Session]:
        """Sessions of so many threads; of one thread, one session serves all instances, as it does in the worker."""
        for other in [known for known in self._sessions if known not in (1, threads)]:
            del self._sessions[other]  # its memory is needed
        held = self._sessions.setdefault(threads, [])
        needed = 1 if threads == 1 else instances
        settings = dataclasses.replace(self.spec.settings, intra_op_threads=threads)
        spec = dataclasses.replace(self.spec, settings=settings)
        while len(held) < needed:
            held.append(self.loader.load(spec, self.folder))
        return held[:1] * instances if threads == 1 else held[:instances]
