"""Feeds a sink with the workers that Consul has."""

from collections.abc import Sequence

import structlog
from inferplane.discovery.v1 import worker_pb2

from services.router.adapters.discovery_watch import read_worker
from services.router.domain.topology import Worker
from services.router.ports.feeds import WorkerSink
from services.rpc import address as addresses
from services.rpc.errors import InvalidArgumentError

_log = structlog.get_logger(__name__)


class ConsulFeed:
    """Hears workers as messages, tells them as the router knows them. What can't be read is nobody to route to."""

    def __init__(self, sink: WorkerSink) -> None:
        self._sink = sink

    def hear(self, workers: Sequence[worker_pb2.Worker]) -> None:
        self._sink.hear_discovery([read for one in workers if (read := _read(one)) is not None])

    def lose(self) -> None:
        self._sink.lose_discovery()


def _read(message: worker_pb2.Worker) -> Worker | None:
    try:
        addresses.parse(message.address)
        return read_worker(message)
    except InvalidArgumentError as error:
        _log.warning("a worker can't be read", worker=message.name, error=error.message)
        return None
