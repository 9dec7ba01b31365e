"""Placements of versions on pools, and waiting until a placed version is READY there."""

import asyncio
from dataclasses import dataclass

import grpc
import tenacity
from inferplane.discovery.v1 import discovery_service_pb2, worker_pb2
from inferplane.registry.v1 import placement_pb2, placement_service_pb2

from services.cli.adapters.edge import CALL_SECONDS, Edge, pages
from services.cli.ports.report import Report
from services.rpc.errors import DeadlineExceededError, FailedPreconditionError, UnavailableError
from services.rpc.names import PlacementName, PoolName, VersionName

_READY = placement_pb2.LOAD_STATE_READY
_FAILED = placement_pb2.LOAD_STATE_FAILED
_PAGE = 1000


def state_word(state: int) -> str:
    """A load state as people read it: `ready`, `pulling` …"""
    name = placement_pb2.LoadState.Name(placement_pb2.LoadState.ValueType(state))
    return name.removeprefix("LOAD_STATE_").lower()


@dataclass(frozen=True, slots=True)
class LoadingState:
    """Where a version stands on one worker."""

    state: int  # LoadState
    reason: str

    def __str__(self) -> str:
        word = state_word(self.state)
        return f"{word}: {self.reason}" if self.reason else word


async def place(edge: Edge, version: VersionName, pool: str) -> bool:
    """Place the version on the pool; False if it was there already."""
    request = placement_service_pb2.CreatePlacementRequest(
        parent=str(PoolName(pool)), placement=placement_pb2.Placement(version=str(version))
    )
    try:
        await edge.placements.CreatePlacement(request, timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise
        return False
    return True


async def remove_placements(edge: Edge, version: VersionName, pool: str | None) -> list[str]:
    """Remove the version from the pool, or from every pool that has it; returns the pools."""
    if pool is None:
        there = await list_placements(edge)
        pools = [p.name.split("/")[1] for p in there if p.version == str(version)]
    else:
        pools = [pool]
    for each in pools:
        name = str(PlacementName(each, version))
        await edge.placements.DeletePlacement(
            placement_service_pb2.DeletePlacementRequest(name=name), timeout=CALL_SECONDS
        )
    return pools


async def list_placements(edge: Edge) -> list[placement_pb2.Placement]:
    """All placements on all pools, with their status."""

    def page(
        token: str,
    ) -> grpc.aio.UnaryUnaryCall[
        placement_service_pb2.ListPlacementsRequest, placement_service_pb2.ListPlacementsResponse
    ]:
        return edge.placements.ListPlacements(
            placement_service_pb2.ListPlacementsRequest(
                parent="pools/-", page_size=_PAGE, page_token=token
            ),
            timeout=CALL_SECONDS,
        )

    return await pages(page, lambda response: list(response.placements))


class Loading:
    """Follows a version on the workers of a pool and says each change."""

    def __init__(self, version: VersionName, pool: str, report: Report) -> None:
        """Nothing seen yet."""
        self._version = version
        self._pool = pool
        self._report = report
        self._seen: dict[str, LoadingState] = {}
        self._told_lonely = False
        self.writes_text = False  # it is a language model, as workers that have loaded it show

    def see(self, workers: list[worker_pb2.Worker]) -> bool:
        """Take what workers report; True once one is READY, FailedPreconditionError once all that report failed."""
        mine = [worker for worker in workers if worker.pool == self._pool and not worker.draining]
        if not mine and not self._told_lonely:
            self._told_lonely = True
            self._report.say(f"no worker of pool {self._pool} is live; waiting for one")
        states = {}
        for worker in mine:
            name = worker.name.removeprefix("workers/")
            for held in worker.versions:
                if held.version == str(self._version):
                    states[name] = LoadingState(held.state, held.reason)
                    self.writes_text = self.writes_text or held.HasField("engine")
        for name, state in states.items():
            before = self._seen.get(name)
            if before is None or before.state != state.state:
                # Reasons are told once, with the outcome.
                self._report.say(f"{self._version.short} on {name}: {state_word(state.state)}")
        self._seen = states
        found = [state.state for state in states.values()]
        if _READY in found:
            self._say_failures(states)
            return True
        if found and len(found) == len(mine) and all(state == _FAILED for state in found):
            self._fail(states)
        return False

    def _say_failures(self, states: dict[str, LoadingState]) -> None:
        for name, state in states.items():
            if state.reason:
                self._report.say(f"{self._version.short} on {name}: {state}")

    def _fail(self, states: dict[str, LoadingState]) -> None:
        reason = next(iter(states.values())).reason
        raise FailedPreconditionError(
            f"{self._version.short} can't be loaded on pool {self._pool}: {reason}\n"
            "Traffic is as it was. Workers try again with back-off;"
            f" to give up: inferplane undeploy {self._version.short}",
            reason="LOAD_FAILED",
            metadata={"version": str(self._version), "pool": self._pool, "load_error": reason},
        )

    def too_late(self, seconds: float) -> DeadlineExceededError | UnavailableError:
        """What to raise when the time is over."""
        if not self._seen:
            return UnavailableError(
                f"no live worker of pool {self._pool} took {self._version.short} up within"
                f" {seconds:g} s; traffic is as it was. To run one: inferplane worker --pool {self._pool}",
                reason="NO_WORKER",
                metadata={"pool": self._pool},
            )
        where = ", ".join(f"{name} {state}" for name, state in self._seen.items())
        return DeadlineExceededError(
            f"{self._version.short} was not ready within {seconds:g} s ({where});"
            " traffic is as it was"
        )


async def wait_until_ready(edge: Edge, loading: Loading, seconds: float) -> None:
    """Follow the workers until one is READY; outlives a restart of what is in between."""
    try:
        async with asyncio.timeout(seconds):
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(_passes),
                wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
                reraise=True,
            ):
                with attempt:
                    await _follow(edge, loading)
    except TimeoutError as error:
        raise loading.too_late(seconds) from error


async def _follow(edge: Edge, loading: Loading) -> None:
    stream = edge.discovery.WatchWorkers(discovery_service_pb2.WatchWorkersRequest())
    try:
        async for response in stream:
            if loading.see(list(response.workers)):
                return
    finally:
        stream.cancel()
    raise _StreamEndedError


class _StreamEndedError(Exception):
    """The watch ended though nothing was decided."""


def _passes(error: BaseException) -> bool:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
    return isinstance(error, _StreamEndedError)
