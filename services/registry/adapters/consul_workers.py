"""Live workers as Consul has them; the registry keeps no leases then."""

from collections.abc import Callable, Sequence

import structlog
from inferplane.discovery.v1 import worker_pb2

from services.registry.domain.worker import Worker
from services.registry.ports.live_workers import LiveWorker
from services.rpc.clock import Clock
from services.rpc.consul import Consul
from services.rpc.consul_roster import ConsulRoster
from services.rpc.consul_watch import ConsulWatch, Pace
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError
from services.rpc.names import WorkerName
from services.rpc.pulse import Pulse

_log = structlog.get_logger(__name__)


class ConsulWorkers:
    """The list as of Consul's last word. What changes at each beat is not in it: counters, calls in flight, engines."""

    def __init__(
        self, consul: Consul, clock: Clock, read: Callable[[worker_pb2.Worker], Worker]
    ) -> None:
        """Assign only.

        Args:
            consul: where workers register.
            clock: for the roster.
            read: the worker that a message describes. May raise InvalidArgumentError.
        """
        self._watch = ConsulWatch(consul, self, ConsulRoster(), clock, Pace())
        self._read = read
        self._workers: list[Worker] = []
        self._pulse = Pulse(0)  # a watcher begins at 0, and hears the first list when it is there

    def __len__(self) -> int:
        return len(self._workers)

    def live(self) -> list[LiveWorker]:
        """Live workers, ordered by name."""
        return [LiveWorker(worker, None) for worker in self._workers]

    def workers(self) -> list[Worker]:
        """Live workers without the time of their leases."""
        return list(self._workers)

    async def wait_beyond(self, generation: int) -> int:
        """Wait for something that routing needs to change; 0: for the first list. UnavailableError once closed."""
        return await self._pulse.wait_beyond(generation)

    def register(self, worker: Worker, ttl: float) -> LiveWorker:  # noqa: ARG002 - the port's
        """Refused: who is in two lists is in neither for sure."""
        raise _refusal(worker.name)

    def deregister(self, name: WorkerName) -> None:
        """Refused, as `register` is."""
        raise _refusal(name)

    def hear(self, workers: Sequence[worker_pb2.Worker]) -> None:
        """Take the complete list of live workers."""
        before = [worker.routing for worker in self._workers]
        read = [worker for one in workers if (worker := self._readable(one)) is not None]
        self._workers = sorted(read, key=lambda worker: worker.name)
        if not self._pulse.value or before != [worker.routing for worker in self._workers]:
            self._pulse.tell(self._pulse.value + 1)

    def lose(self) -> None:
        """Who was heard of last stays."""

    async def run(self) -> None:
        """Follow Consul until cancelled."""
        await self._watch.run()

    def close(self) -> None:
        """End all waiting."""
        self._pulse.close()

    def _readable(self, message: worker_pb2.Worker) -> Worker | None:
        try:
            return self._read(message)
        except InvalidArgumentError as error:
            _log.warning("a worker can't be read", worker=message.name, error=error.message)
            return None


def _refusal(name: WorkerName) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{name} must register with Consul: this registry runs with INFERPLANE_DISCOVERY=consul; set it on the"
        " worker too, with INFERPLANE_CONSUL_ADDRESS",
        reason="DISCOVERY_IN_CONSUL",
        metadata={"worker": str(name), "setting": "INFERPLANE_DISCOVERY", "value": "consul"},
    )
