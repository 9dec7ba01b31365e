"""Reads what `status` shows, through the edge: endpoints, placements, workers, the router's view, and rates."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import grpc
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.metering.v1 import usage_report_service_pb2
from inferplane.registry.v1 import placement_pb2
from inferplane.router.v1 import router_service_pb2

from services.cli.adapters.certificate_watch import ending_certificates
from services.cli.adapters.deployment import list_placements
from services.cli.adapters.edge import Edge, to_error
from services.cli.adapters.terminal import as_dict
from services.cli.adapters.traffic import list_endpoints
from services.cli.adapters.usage import Question, Selection, query
from services.cli.domain import failures
from services.cli.domain.rates import Rate, RateWindow, Totals
from services.rpc.errors import PermissionDeniedError, UnauthenticatedError

T = TypeVar("T")
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Status:
    """One look at the mesh; what could not be read is empty, and `problems` says why."""

    router: router_service_pb2.GetStatusResponse
    placements: list[placement_pb2.Placement]
    workers: list[worker_pb2.Worker]
    rates: dict[str, Rate]  # by version's resource name
    problems: list[str]
    mirror_percents: dict[str, float]  # by endpoint's resource name; only of those with a mirror
    today: usage_report_service_pb2.QueryUsageResponse | None = None  # None: metering can't be read

    def as_dict(self) -> dict[str, Any]:
        """The look as JSON."""
        router = as_dict(self.router)
        return {
            "endpoints": [self._with_mirror(one) for one in router.pop("endpoints")],
            "placements": [as_dict(placement) for placement in self.placements],
            "workers": [as_dict(worker) for worker in self.workers],
            "router": router,
            "rates": {
                version: {
                    "calls_per_second": rate.calls_per_second,
                    "errors_per_second": rate.errors_per_second,
                    "mean_ms": rate.mean_ms,
                }
                for version, rate in sorted(self.rates.items())
            },
            "usage_today": None if self.today is None else as_dict(self.today),
            "problems": self.problems,
        }

    def _with_mirror(self, endpoint: dict[str, Any]) -> dict[str, Any]:
        return {**endpoint, "mirror_percent": self.mirror_percents.get(endpoint["name"], 0.0)}


class StatusReader:
    """Looks again and again, and derives rates from what workers have counted between looks."""

    def __init__(self, edge: Edge) -> None:
        """Nothing is read yet."""
        self._edge = edge
        self._window = RateWindow()
        self._problems: list[str] = []

    async def read(self) -> Status:
        """One look; raises only if no edge is at the address."""
        self._problems = ending_certificates()
        edge = self._edge
        status = router_service_pb2.GetStatusResponse()
        workers = discovery_service_pb2.ListWorkersResponse()
        router, listed, placements, declared, today = await asyncio.gather(
            self._part("router", edge.router.GetStatus(_STATUS, timeout=_SECONDS), status),
            self._part("workers", edge.discovery.ListWorkers(_WORKERS, timeout=_SECONDS), workers),
            self._part("placements", list_placements(edge), []),
            self._part("endpoints", list_endpoints(edge), []),
            self._part("metering", _usage_today(edge), None),
        )
        self._problems += router_problems(router)
        self._window.add(time.monotonic(), _sample(listed.workers))
        return Status(
            router=router,
            placements=placements,
            workers=list(listed.workers),
            rates=self._window.rates(),
            problems=self._problems,
            mirror_percents={e.name: e.mirror.percent for e in declared if e.HasField("mirror")},
            today=today,
        )

    async def _part(self, what: str, work: Awaitable[T], absent: T) -> T:
        try:
            return await work
        except grpc.aio.AioRpcError as error:
            failure = to_error(error, self._edge.address)
            if failure.reason in (failures.NOT_LISTENING, failures.NO_EDGE, failures.NOT_TRUSTED):
                raise failure from error
            if isinstance(failure, UnauthenticatedError | PermissionDeniedError):
                raise failure from error  # said once, and not for each part
            self._problems.append(f"{what} can't be read: {failure.message}")
            return absent


def router_problems(router: router_service_pb2.GetStatusResponse) -> list[str]:
    """Routers that say nothing, and those that don't say the same."""
    problems = [
        f"router {one.address} does not answer: {one.problem}"
        for one in router.routers
        if one.problem
    ]
    published = [one for one in router.routers if not one.problem]
    if len({one.snapshot_version for one in published}) > 1:
        said = ", ".join(
            f"{one.address} {one.snapshot_version or 'nothing yet'}" for one in published
        )
        problems.append(
            f"the routers don't publish the same ({said}); after a change that takes a moment,"
            " and is a fault if it stays"
        )
    return problems


async def _usage_today(edge: Edge) -> usage_report_service_pb2.QueryUsageResponse:
    """What was used since midnight (UTC), by all."""
    midnight = datetime.combine(datetime.now(UTC).date(), datetime.min.time(), UTC)
    return await query(edge, Question(selection=Selection(since=midnight), by=()))


_STATUS = router_service_pb2.GetStatusRequest()
_WORKERS = discovery_service_pb2.ListWorkersRequest()


def _sample(workers: Any) -> dict[tuple[str, str], Totals]:
    sample = {}
    for worker in workers:
        for held in worker.versions:
            if not held.HasField("counters"):
                continue  # where discovery doesn't carry them there are no rates
            counted = held.counters
            sample[worker.name, held.version] = Totals(
                counted.succeeded, counted.failed + counted.rejected, counted.duration_us
            )
    return sample
