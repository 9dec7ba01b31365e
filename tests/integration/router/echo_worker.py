"""A small real worker: answers the Open Inference Protocol with what it was told by the edge."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.api import httpbody_pb2
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)
from inferplane.oip.v1 import rest_service_pb2 as rest
from inferplane.oip.v1.rest_service_pb2_grpc import (
    RestInferenceServiceServicer,
    add_RestInferenceServiceServicer_to_server,
)

from services.rpc import peers
from services.rpc.errors import InferplaneError
from services.rpc.peer_kind import PeerKind
from services.rpc.server import RpcServer
from services.rpc.tls import PLAIN, Security

MAX_MESSAGE_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class EchoWorker:
    """Answers with its own name and the headers it saw; `fail` and `delay` make it misbehave."""

    name: str
    address: str
    server: RpcServer = field(init=False)
    calls: Counter[str] = field(default_factory=Counter)  # version header → calls
    fail: Callable[[], InferplaneError | None] = lambda: None
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)  # of the last call
    hold: asyncio.Event | None = None  # calls wait for it
    security: Security = PLAIN

    async def start(self, *versions: str) -> "EchoWorker":
        self.server = RpcServer(
            address=self.address,
            max_message_bytes=MAX_MESSAGE_BYTES,
            security=self.security,
            guard=peers.guard(self.address, self.security, {PeerKind.EDGE}),
        )
        # The repository's methods, which are the registry's, stay as the generated classes have them.
        by_grpc, by_rest = _Oip(self), _Rest(self)  # type: ignore[abstract] # see above
        add_GRPCInferenceServiceServicer_to_server(by_grpc, self.server.grpc)
        add_RestInferenceServiceServicer_to_server(by_rest, self.server.grpc)
        self.address = await self.server.start(
            ["inference.GRPCInferenceService", "inferplane.oip.v1.RestInferenceService"]
        )
        await self.server.set_health("", serving=True)
        for version in versions:
            await self.server.set_health(version, serving=True)
        return self

    async def stop(self) -> None:
        await self.server.stop(0)

    async def note(self, context: Any) -> dict[str, str]:
        """Record a call and behave as told."""
        headers = {
            key: value if isinstance(value, str) else value.decode()
            for key, value in context.invocation_metadata()
        }
        self.headers = headers
        self.calls[headers.get("x-inferplane-version", "")] += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        error = self.fail()
        if error is not None:
            raise error
        return headers


class _Oip(GRPCInferenceServiceServicer):
    def __init__(self, worker: EchoWorker) -> None:
        self._worker = worker

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return oip.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return oip.ServerReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return oip.ServerMetadataResponse(name=self._worker.name)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        await self._worker.note(context)
        return oip.ModelMetadataResponse(name=request.name)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        await self._worker.note(context)
        return oip.ModelReadyResponse(ready=True)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        headers = await self._worker.note(context)
        version = headers.get("x-inferplane-version", "")
        return oip.ModelStatisticsResponse(
            model_stats=[oip.ModelStatistics(name=request.name, version=version)]
        )

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        headers = await self._worker.note(context)
        response = oip.ModelInferResponse(
            model_name=request.model_name,
            model_version=headers.get("x-inferplane-version", ""),
            id=request.id,
        )
        response.parameters["worker"].string_param = self._worker.name
        response.parameters["endpoint"].string_param = headers.get("x-inferplane-endpoint", "")
        response.parameters["bytes"].int64_param = sum(map(len, request.raw_input_contents))
        return response

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:
        headers = await self._worker.note(context)
        async for request in requests:
            response = oip.ModelInferResponse(model_name=request.model_name, id=request.id)
            response.model_version = headers.get("x-inferplane-version", "")
            response.parameters["worker"].string_param = self._worker.name
            response.parameters["endpoint"].string_param = headers.get("x-inferplane-endpoint", "")
            yield oip.ModelStreamInferResponse(infer_response=response)


class _Rest(RestInferenceServiceServicer):
    def __init__(self, worker: EchoWorker) -> None:
        self._worker = worker

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return _json({"live": True})

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return _json({"ready": True})

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return _json({"name": self._worker.name})

    async def ModelReady(self, request: Any, context: Any) -> Any:
        await self._worker.note(context)
        return _json({"ready": True})

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        await self._worker.note(context)
        return _json({"name": request.model_name})

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        headers = await self._worker.note(context)
        version = headers.get("x-inferplane-version", "")
        return _json({"name": request.model_name, "version": version})

    async def ModelInfer(self, request: rest.ModelInferRequest, context: Any) -> Any:
        headers = await self._worker.note(context)
        await context.send_initial_metadata((("inference-header-content-length", "7"),))
        return httpbody_pb2.HttpBody(
            content_type="application/octet-stream",
            data=json.dumps(
                {
                    "endpoint": headers.get("x-inferplane-endpoint", ""),
                    "version": headers.get("x-inferplane-version", ""),
                    "pinned": request.model_version,
                    "json_bytes": headers.get("inference-header-content-length", ""),
                    "size": len(request.http_body.data),
                    "type": request.http_body.content_type,
                }
            ).encode()
            + b"\n\0\xff",
        )


def _json(content: dict[str, Any]) -> Any:
    return httpbody_pb2.HttpBody(content_type="application/json", data=json.dumps(content).encode())
