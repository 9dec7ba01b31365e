"""Where a worker says that it is reached."""

import asyncio

import pytest

from services.rpc.completion import done_before
from services.rpc.errors import FailedPreconditionError, UnavailableError
from services.rpc.settings import SettingsError, load
from services.worker import reach
from services.worker.reach import beside, reached_at
from services.worker.settings import WorkerSettings


@pytest.mark.parametrize(
    ("told", "bound", "reached"),
    [
        pytest.param("", "unix:/run/w.sock", "unix:/run/w.sock", id="a socket"),
        pytest.param("", "127.0.0.1:85", "127.0.0.1:85", id="where it listens"),
        pytest.param("", "0.0.0.0:85", "127.0.0.1:85", id="by the way to the registry"),
        pytest.param("10.0.0.9:1085", "0.0.0.0:85", "10.0.0.9:1085", id="as it is told"),
        pytest.param("10.0.0.9:0", "0.0.0.0:85", "10.0.0.9:85", id="the port listened on"),
    ],
)
async def test_where_it_is_reached(told: str, bound: str, reached: str) -> None:
    """What it is told counts, then where it listens, then the interface towards the registry."""
    config = load(WorkerSettings, advertised_address=told, registry_address="127.0.0.1:81")
    assert await reached_at(config, bound) == reached


async def test_what_it_cannot_find_out_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a way to the registry that tells an address the worker does not start, and names the setting."""
    config = load(WorkerSettings, registry_address="unix:/run/registry.sock")
    with pytest.raises(FailedPreconditionError, match="INFERPLANE_ADVERTISED_ADDRESS"):
        await reached_at(config, "0.0.0.0:85")
    monkeypatch.setattr(reach, "_SECONDS", 0.01)
    config = load(WorkerSettings, registry_address="registry.invalid:81")
    with pytest.raises(UnavailableError, match="INFERPLANE_ADVERTISED_ADDRESS"):
        await reached_at(config, "0.0.0.0:85")


async def test_it_looks_no_longer_than_it_is_to_run() -> None:
    """Asked to stop while the registry's name is not found, a worker looks for it no more."""
    config = load(WorkerSettings, registry_address="registry.invalid:81")
    stop = asyncio.Event()
    looking = asyncio.create_task(reached_at(config, "0.0.0.0:85"))
    asyncio.get_running_loop().call_soon(stop.set)
    assert not await done_before(stop, looking)
    assert looking.cancelled()


def test_a_name_is_not_advertised() -> None:
    """Envoy would refuse every host of the version for it."""
    with pytest.raises(SettingsError, match="worker-1:85' is a name"):
        load(WorkerSettings, advertised_address="worker-1:85")


@pytest.mark.parametrize(
    ("address", "metrics", "read_at"),
    [
        ("10.0.0.9:85", "0.0.0.0:91", "10.0.0.9:91"),
        ("10.0.0.9:85", "127.0.0.1:91", "127.0.0.1:91"),
        ("unix:/run/w.sock", "127.0.0.1:91", "127.0.0.1:91"),
        ("10.0.0.9:85", "", ""),
    ],
)
def test_where_metrics_are_read(address: str, metrics: str, read_at: str) -> None:
    """Metrics on every interface are read where the worker is reached."""
    assert beside(address, metrics) == read_at
