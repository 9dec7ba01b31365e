"""An edge with an endpoint of a language model, and one of a tensor model beside it."""

from pathlib import Path
from typing import Any

from services.router.domain.catalog import CatalogUpdate, VersionChange
from services.router.domain.topology import Endpoint, Target
from services.rpc.names import EndpointName
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest
from tests.text_worker import VERSION, TextWorker

ENDPOINT = EndpointName("chat")


async def start(folder: Path, worker: TextWorker, **settings: Any) -> EdgeUnderTest:
    """Both endpoints, synced; `settings` are the edge's."""
    edge = await EdgeUnderTest.start(folder, **settings)
    change = VersionChange(VERSION, stateful=False, language=True)
    edge.publisher.hear_registry(CatalogUpdate(changes=(change,), synced=True))
    edge.set_endpoint(Endpoint(name=ENDPOINT, targets=(Target(VERSION, 1),)))
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    echo = await edge.add_worker("echo", V1)
    edge.set_workers({worker.address: {VERSION}, echo.address: {V1}})
    await edge.in_sync()
    return edge
