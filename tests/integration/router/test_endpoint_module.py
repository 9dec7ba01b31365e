"""The edge with and without our module: the same answers, whoever reads the endpoint."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.dynamic_modules.v3.dynamic_modules_pb2 import (
    DynamicModuleFilter,
)
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf.wrappers_pb2 import StringValue
from inference import open_inference_pb2 as oip

from services.native_library import EDGE
from services.router.domain.policy import Policy
from services.router.domain.snapshot import Kind, Resource
from services.router.domain.topology import Endpoint, Target, Topology
from services.router.ports.feeds import Builder
from services.router.resources import endpoint_module, methods, wire
from services.router.resources.edge import ROUTE_STATE
from tests.integration.router.edge import DIGITS, V1, EdgeUnderTest

needs_module = pytest.mark.skipif(EDGE.find() is None, reason="the edge's module is not built")
_READERS = {"envoy.filters.http.grpc_field_extraction", "envoy.filters.http.set_filter_state"}


class ModuleAlone:
    """A builder whose listener has no other filter that reads endpoints."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    def build(self, topology: Topology, policy: Policy | None) -> list[Resource]:
        return [
            _without_readers(resource) if resource.kind is Kind.LISTENER else resource
            for resource in self._builder.build(topology, policy)
        ]


def _without_readers(resource: Resource) -> Resource:
    listener = Listener.FromString(resource.body)
    packed = listener.filter_chains[0].filters[0].typed_config
    manager = HttpConnectionManager()
    packed.Unpack(manager)
    kept = [one for one in manager.http_filters if not _reads(one)]
    del manager.http_filters[:]
    manager.http_filters.extend(kept)
    packed.Pack(manager)
    body = wire.serialized(listener)
    return Resource.of(Kind.LISTENER, resource.name, body, resource.references)


def _reads(filter_: Any) -> bool:
    name = filter_.name
    return name in _READERS or any(
        reader.encode() in filter_.typed_config.value for reader in _READERS
    )


async def _with_a_worker(edge: EdgeUnderTest) -> None:
    worker = await edge.add_worker("one", V1)
    edge.set_endpoint(Endpoint(name=DIGITS, targets=(Target(V1, 1),)))
    edge.set_workers({worker.address: {V1}})
    await edge.in_sync()


@needs_module
async def test_the_module_alone_is_enough(folder: Path) -> None:
    """Without any other filter that reads endpoints, calls of every size reach the version they name."""
    edge = await EdgeUnderTest.start(folder, ModuleAlone)
    try:
        await _with_a_worker(edge)
        for size in (0, 100, 1 << 20, 30 << 20):
            fields = {"raw_input_contents": [bytes(size)]}
            answer = await edge.infer(version="1", fields=fields)
            assert answer.model_version == str(V1)
        answers = await asyncio.gather(*[edge.infer() for _ in range(200)])
        assert {answer.model_version for answer in answers} == {str(V1)}
    finally:
        await edge.stop()


@pytest.mark.parametrize("has_module", [pytest.param(True, marks=needs_module), False])
async def test_answers_are_the_same_with_and_without_it(folder: Path, has_module: bool) -> None:
    """A call that is right, one for an endpoint that is none, an odd name and a compressed message end alike."""
    edge = await EdgeUnderTest.start(folder, has_module=has_module)
    try:
        await _with_a_worker(edge)
        assert (await edge.infer(version="1")).model_version == str(V1)
        assert await _error(edge, "missing") == (
            grpc.StatusCode.NOT_FOUND,
            "endpoint 'missing' does not exist",
        )
        assert (await _error(edge, "a b"))[0] is grpc.StatusCode.NOT_FOUND
        assert (await _error(edge, ""))[0] is grpc.StatusCode.NOT_FOUND
        compressed = {"compression": grpc.Compression.Gzip, "fields": {"id": "x" * 1000}}
        assert (await _error(edge, "digits", **compressed))[0] is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await edge.stop()


async def _error(edge: EdgeUnderTest, name: str, **how: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await edge.infer(name, **how)
    return raised.value.code(), raised.value.details() or ""


def test_the_module_is_told_the_numbers_of_the_fields() -> None:
    """Each method's line has its path and where its message names endpoint and version; the keys come last."""
    told = DynamicModuleFilter()
    endpoint_module.filter_()["typed_config"].Unpack(told)
    text = StringValue()
    told.filter_config.Unpack(text)
    lines = text.value.splitlines()
    fields = oip.ModelInferRequest.DESCRIPTOR.fields_by_name
    numbers = [fields[name].number for name in ("model_name", "model_version")]
    assert "/inference.GRPCInferenceService/ModelInfer {} {}".format(*numbers) in lines
    assert len(lines) == len(methods.OF_ENDPOINT) + 3
    assert lines[-1] == ROUTE_STATE
