"""Where others reach this worker: as its settings say, or as it finds: part of its composition root."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace

import structlog

from services.rpc import address as addresses
from services.rpc import peer_addresses
from services.rpc.address import Address
from services.rpc.errors import FailedPreconditionError, UnavailableError
from services.worker.settings import WorkerSettings

_log = structlog.get_logger("services.worker")

_ANYWHERE = ("0.0.0.0", "::")
_AGAIN_SECONDS = 0.5
_SECONDS = 30.0  # for the registry's name to be found


async def reached_at(config: WorkerSettings, bound: str) -> str:
    """The address that the edge calls, of a worker that listens at `bound`.

    Raises FailedPreconditionError if it must be set, UnavailableError if the registry's name is not found in time.
    """
    listened = addresses.parse(bound)
    if config.advertised_address:
        told = addresses.parse(config.advertised_address)
        return str(told if told.path or told.port else replace(told, port=listened.port))
    if listened.host not in _ANYWHERE:
        return bound
    return str(replace(listened, host=await _own_host(config.registry_address)))


def beside(address: str, metrics: str) -> str:
    """Where metrics are read that are served on every interface: on the host of `address`."""
    if not metrics:
        return metrics
    served = addresses.parse(metrics)
    host = addresses.parse(address).host
    return str(replace(served, host=host)) if served.host in _ANYWHERE and host else metrics


async def _own_host(registry: str) -> str:
    """The address of the interface by which the registry is reached."""
    peers = [peer for peer in addresses.parse_peers(registry) if peer.path is None]
    if not peers:
        raise FailedPreconditionError(
            "this worker listens on every interface and reaches the registry by a socket of this"
            " machine: set INFERPLANE_ADVERTISED_ADDRESS to where the edge reaches it",
            reason="NO_ADDRESS",
        )
    try:
        async with asyncio.timeout(_SECONDS):
            while (found := await _tried(peers)) is None:  # noqa: ASYNC110 - names tell nobody that they are there
                await asyncio.sleep(_AGAIN_SECONDS)
    except TimeoutError as error:
        raise UnavailableError(
            f"{registry} was not found, so this worker does not know where it is reached itself;"
            " INFERPLANE_ADVERTISED_ADDRESS tells it",
            reason="NO_ADDRESS",
        ) from error
    _log.info("reached at", host=found)
    return found


async def _tried(peers: Sequence[Address]) -> str | None:
    for peer in peers:
        try:
            for place in await peer_addresses.look_up(peer.host, peer.port):
                return _towards(place)
        except OSError as error:
            _log.info("looking for the registry", peer=str(peer), reason=str(error))
    return None


def _towards(place: Address) -> str:
    """This machine's address on the way there; nothing is sent. Raises OSError."""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((place.host, place.port or 1))
        return str(probe.getsockname()[0])
