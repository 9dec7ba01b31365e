"""The worker beside the real registry: pushed, placed, served, seen in the placement's status, restarted."""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
from inferplane.discovery.v1 import discovery_service_pb2 as discovery
from inferplane.discovery.v1 import discovery_service_pb2_grpc
from inferplane.registry.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    model_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    placement_pb2,
    placement_service_pb2,
    placement_service_pb2_grpc,
)

from services.rpc import channel, settings
from tests.integration.worker.oip_client import Client, output
from tests.integration.worker.worker_process import running
from tests.models import good

V1, V2 = "models/affine/versions/1", "models/affine/versions/2"
X = np.ones((1, 4), np.float32)
READY = placement_pb2.LOAD_STATE_READY


@asynccontextmanager
async def registry_process(folder: Path, address: str) -> AsyncIterator[grpc.aio.Channel]:
    environment = settings.environment_for_children(
        registry_address=address, state_dir=str(folder / "registry"), log_level="warning"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.registry"), env=environment, cwd=os.fspath(folder)
    )
    try:
        async with channel.connect(address) as connected:
            async with asyncio.timeout(100):
                await connected.channel_ready()
            yield connected
    finally:
        process.terminate()
        await process.wait()


async def push(registry: grpc.aio.Channel, name: str, graph: bytes) -> None:
    """Create, upload, finish and place a version."""
    models = model_service_pb2_grpc.ModelServiceStub(registry)
    parent, _, version = name.partition("/versions/")
    file = model_pb2.ArtifactFile(
        path="model.onnx", size_bytes=len(graph), sha256=hashlib.sha256(graph).hexdigest()
    )
    await models.CreateModelVersion(
        model_service_pb2.CreateModelVersionRequest(
            parent=parent,
            version_id=version,
            model_version=model_pb2.ModelVersion(format=model_pb2.FORMAT_ONNX, files=[file]),
        )
    )
    start = artifact_service_pb2.UploadArtifactRequest.Start(name=name, path="model.onnx")
    request = artifact_service_pb2.UploadArtifactRequest
    await artifact_service_pb2_grpc.ArtifactServiceStub(registry).UploadArtifact(
        iter([request(start=start), request(chunk=graph)])
    )
    await models.FinishModelVersion(model_service_pb2.FinishModelVersionRequest(name=name))
    await placement_service_pb2_grpc.PlacementServiceStub(registry).CreatePlacement(
        placement_service_pb2.CreatePlacementRequest(
            parent="pools/default", placement=placement_pb2.Placement(version=name)
        )
    )


async def until_ready(registry: grpc.aio.Channel, *versions: str) -> None:
    """Watch discovery until one worker has all of them READY."""
    stub = discovery_service_pb2_grpc.DiscoveryServiceStub(registry)
    async with asyncio.timeout(100):
        async for response in stub.WatchWorkers(discovery.WatchWorkersRequest()):
            for worker in response.workers:
                if {v.version for v in worker.versions if v.state == READY} >= set(versions):
                    return


async def test_from_push_to_answer(folder: Path) -> None:
    """A pushed version is served, and counted in its placement's status."""
    address = f"unix:{folder}/registry.sock"
    async with registry_process(folder, address) as registry:
        await push(registry, V1, good.affine(1.0))
        async with running(folder, address) as worker:
            await until_ready(registry, V1)
            placements = placement_service_pb2_grpc.PlacementServiceStub(registry)
            placed = await placements.GetPlacement(
                placement_service_pb2.GetPlacementRequest(name="pools/default/placements/affine@1")
            )
            assert placed.placement.status.ready_workers == 1
            (status,) = placed.placement.status.workers
            assert status.execution.max_batch_size == 32
            assert status.execution.instances > 0
            assert status.execution.intra_op_threads > 0
            assert status.execution.batching_off_reason == ""
            client = Client(worker.channel)
            assert (output(await client.infer("affine", x=X)) == X).all()


async def test_a_worker_outlives_its_registry(folder: Path) -> None:
    """It answers while the registry is down and takes up what is pushed to the next one."""
    address = f"unix:{folder}/registry.sock"
    async with registry_process(folder, address) as registry:
        await push(registry, V1, good.affine(1.0))
    async with running(folder, address) as worker:
        async with registry_process(folder, address) as registry:
            await until_ready(registry, V1)
        client = Client(worker.channel)
        assert (output(await client.infer("affine", x=X)) == X).all()
        async with registry_process(folder, address) as registry:
            await push(registry, V2, good.affine(2.0))
            await until_ready(registry, V1, V2)
        assert (output(await client.infer("affine", x=X)) == 2 * X).all()
        assert worker.is_alive
