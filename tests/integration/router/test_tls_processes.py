"""A whole mesh on TCP: registry, router, Envoy and worker as on machines of their own, each with a certificate."""

from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.registry.v1 import endpoint_service_pb2, endpoint_service_pb2_grpc

from services.cli.adapters import ca
from services.cli.adapters.envoy_secrets import TRANSPORT_SOCKET
from services.rpc import channel
from services.rpc.peer_kind import PeerKind
from services.rpc.tcp_ports import free_port
from services.rpc.tls import Security, TlsFiles
from tests.envoy_process import EnvoyProcess
from tests.integration.registry.client import Client
from tests.integration.router.echo_worker import EchoWorker
from tests.integration.router.edge import V1
from tests.integration.router.load import callers
from tests.integration.router.test_processes import Caller, Mesh
from tests.integration.router.waiting import until
from tests.mesh_certificates import MeshCertificates


@dataclass(slots=True)
class TlsMesh(Mesh):
    """Nothing but the edge itself is plain."""

    certificates: MeshCertificates = field(kw_only=True)
    ports: dict[str, int] = field(default_factory=dict)

    def address(self, service: str) -> str:
        return f"127.0.0.1:{self.ports.setdefault(service, free_port())}"

    def further_variables(self, service: str) -> dict[str, str]:
        own = self.certificates.issue(service, PeerKind.SERVICE)
        return {"tls_dir": str(own), "edge_tls_dir": str(self.certificates.folder / "edge")}

    def security(self, name: str, kind: PeerKind) -> Security:
        """Of a certificate that is made now."""
        return Security(TlsFiles(self.certificates.issue(name, kind)))

    async def start(self) -> None:
        edge = self.certificates.issue("edge", PeerKind.EDGE)
        self.registry = await self.start_process("registry")
        self.router = await self.start_process("router")
        self.envoy = await EnvoyProcess.start(
            self.folder,
            self.address("router"),
            router_tls=(edge / TRANSPORT_SOCKET).read_text(),
        )
        self.client = Client(self.address("registry"), self.security("peer", PeerKind.SERVICE))
        await self.client.channel.channel_ready()

    async def serve(self) -> None:
        """One version on one worker."""
        await self.client.place(await self.client.push("digits@1"))
        worker = EchoWorker("one", "127.0.0.1:0", security=self.security("one", PeerKind.WORKER))
        self.workers.append(await worker.start(str(V1)))
        self.keep_lease(worker, (V1,))
        await self.put_endpoint(v1=1)
        await self.envoy.ready()


async def test_every_hop_is_tls_and_certificates_change_meanwhile(folder: Path) -> None:
    """Calls and management pass, and go on when all certificates and the authority's key are replaced."""
    certificates = MeshCertificates.begin(folder)
    mesh = TlsMesh(folder, f"127.0.0.1:{free_port()}", certificates=certificates)
    await mesh.start()
    try:
        await mesh.serve()
        async with channel.connect(mesh.edge) as edge:
            caller = Caller(GRPCInferenceServiceStub(edge))
            await until(caller.is_served, seconds=60)
            endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(edge)
            async with callers(caller, 2) as outcome:
                await outcome.more(20)
                certificates.authority.renew(ca.now())
                await outcome.more(20)
                listed = await endpoints.ListEndpoints(
                    endpoint_service_pb2.ListEndpointsRequest(), timeout=60
                )
                assert [one.name for one in listed.endpoints] == ["endpoints/digits"]
            assert outcome.failures == {}
        # The router begins anew, and Envoy finds it with the certificate that came meanwhile.
        mesh.router.kill()
        await mesh.router.wait()
        mesh.router = await mesh.start_process("router")
        await until(lambda: _is_in_sync(mesh), seconds=60)
        worker = mesh.security("stranger", PeerKind.WORKER)
        async with channel.connect(mesh.address("registry"), security=worker) as direct:
            stub = endpoint_service_pb2_grpc.EndpointServiceStub(direct)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stub.ListEndpoints(endpoint_service_pb2.ListEndpointsRequest(), timeout=60)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        async with channel.connect(mesh.address("router"), security=worker) as direct:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await mesh.status_over(direct)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
    finally:
        await mesh.stop()


async def _is_in_sync(mesh: TlsMesh) -> bool:
    own = mesh.security("peer", PeerKind.SERVICE)
    async with channel.connect(mesh.address("router"), security=own) as direct:
        try:
            status = await mesh.status_over(direct)
        except grpc.aio.AioRpcError:  # a router that starts on a busy machine
            return False
    return any(envoy.in_sync for envoy in status.envoys)
