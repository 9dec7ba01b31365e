"""The router's parts in this process, a real Envoy before them, and calls through it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from envoy.service.discovery.v3.ads_pb2_grpc import (
    add_AggregatedDiscoveryServiceServicer_to_server,
)
from inference import open_inference_pb2 as oip
from inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from inferplane.router.v1.router_service_pb2_grpc import add_RouterServiceServicer_to_server

from services.native_library import EDGE
from services.router.domain.catalog import CatalogUpdate, EndpointChange
from services.router.domain.snapshot import Kind
from services.router.domain.topology import Endpoint, Worker
from services.router.drivers.board import Board
from services.router.drivers.publisher import Publisher
from services.router.drivers.roster import Roster
from services.router.ports.feeds import Builder
from services.router.resources.build import ResourceBuilder
from services.router.resources.edge import Edge
from services.router.servicers import edge_services
from services.router.servicers.ads import AdsServicer
from services.router.servicers.router_service import RouterServicer
from services.rpc import channel
from services.rpc.names import EndpointName, VersionName
from services.rpc.server import RpcServer
from services.rpc.tcp_ports import free_port
from services.rpc.tls import PLAIN, Security
from tests.envoy_process import EnvoyProcess
from tests.integration.router.echo_worker import EchoWorker
from tests.integration.router.waiting import until

V1, V2 = VersionName("digits", "1"), VersionName("digits", "2")
DIGITS = EndpointName("digits")


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


@dataclass(slots=True)
class EdgeUnderTest:
    """Router and Envoy; `set_endpoint` and `set_workers` say what registry and discovery would."""

    folder: Path
    settings: Edge
    board: Board = field(default_factory=Board)
    clock: SystemClock = field(default_factory=SystemClock)
    roster: Roster = field(init=False)
    publisher: Publisher = field(init=False)
    server: RpcServer = field(init=False)
    envoy: EnvoyProcess = field(init=False)
    channel: grpc.aio.Channel = field(init=False)
    stub: Any = field(init=False)
    workers: list[EchoWorker] = field(default_factory=list)
    publishing: asyncio.Task[None] = field(init=False)

    @classmethod
    async def start(
        cls,
        folder: Path,
        wrap: Callable[[Builder], Builder] = lambda builder: builder,
        threads: int = 1,
        zone: str = "",
        **settings: Any,
    ) -> "EdgeUnderTest":
        router = f"unix:{folder}/router.sock"
        edge = Edge(
            **{
                "address": f"127.0.0.1:{free_port()}",
                "registry_address": f"unix:{folder}/registry.sock",
                "discovery_address": f"unix:{folder}/registry.sock",
                "router_address": router,
                "max_message_bytes": 64 * 1024 * 1024,
                "access_log": f"{folder}/access.log",
                "has_module": EDGE.find() is not None,
                **settings,
            }
        )
        self = cls(folder, edge)
        self.roster = Roster(self.clock.wall)
        self.publisher = Publisher(
            board=self.board, builder=wrap(ResourceBuilder(edge)), clock=self.clock, lease=5.0
        )
        self.publishing = asyncio.create_task(self.publisher.run())
        await self.start_router()
        self.envoy = await EnvoyProcess.start(folder, router, threads=threads, zone=zone)
        self.channel = channel.connect(edge.address)
        self.stub = GRPCInferenceServiceStub(self.channel)
        self.publisher.hear_registry(CatalogUpdate(changes=(), synced=True, restart=True))
        return self

    async def restart_control_plane(self) -> "EdgeUnderTest":
        """Forget all that was heard, as a router that was killed and started again; Envoy stays. Returns itself."""
        self.board, self.roster = Board(), Roster(self.clock.wall)
        self.publisher = Publisher(
            board=self.board, builder=ResourceBuilder(self.settings), clock=self.clock, lease=5.0
        )
        self.publishing = asyncio.create_task(self.publisher.run())
        await self.start_router()
        self.publisher.hear_registry(CatalogUpdate(changes=(), synced=True, restart=True))
        return self

    async def start_router(self) -> None:
        self.server = RpcServer(address=self.settings.router_address, max_message_bytes=1 << 26)
        add_AggregatedDiscoveryServiceServicer_to_server(
            AdsServicer(self.board, self.roster, self.clock), self.server.grpc
        )
        add_RouterServiceServicer_to_server(
            RouterServicer(self.publisher, self.board, self.roster), self.server.grpc
        )
        await self.server.start(edge_services.NAMES)
        await self.server.set_health("", serving=True)

    async def stop(self) -> None:
        await self.channel.close()
        await self.envoy.stop()
        for worker in self.workers:
            await worker.stop()
        await self.server.stop(0)
        self.publishing.cancel()
        await asyncio.gather(self.publishing, return_exceptions=True)

    async def add_worker(
        self, name: str, *versions: VersionName, unix: bool = True, security: Security = PLAIN
    ) -> EchoWorker:
        is_tcp = security.files is not None or not unix
        address = "127.0.0.1:0" if is_tcp else f"unix:{self.folder}/{name}.sock"
        worker = await EchoWorker(name, address, security=security).start(*map(str, versions))
        self.workers.append(worker)
        return worker

    def set_workers(
        self,
        ready: dict[str, set[VersionName]],
        draining: frozenset[str] = frozenset(),
        zones: dict[str, str] | None = None,
    ) -> None:
        """Say who is alive: address → versions READY there; and in which zone."""
        self.publisher.hear_discovery(
            [
                Worker(
                    name=f"workers/{address}",
                    address=address,
                    ready=frozenset(versions),
                    draining=address in draining,
                    zone=(zones or {}).get(address, ""),
                )
                for address, versions in ready.items()
            ]
        )

    def set_endpoint(self, endpoint: Endpoint) -> None:
        change = EndpointChange(endpoint.name, endpoint)
        self.publisher.hear_registry(CatalogUpdate(changes=(change,), synced=True))

    async def in_sync(self, seconds: float = 100.0) -> None:
        """Wait until every Envoy has acknowledged what is published, and at least one is connected."""
        await until(
            lambda: not (self.publisher._changed.is_set() or not self._all_in_sync()),
            seconds=seconds,
        )
        await self.envoy.ready()

    def _all_in_sync(self) -> bool:
        publication, envoys = self.board.current, list(self.roster.envoys)
        return (
            bool(envoys)
            and publication is not None
            and all(
                e.client.is_in_sync(publication.snapshot.seen_from(e.zone))
                and set(e.client._subscriptions) >= {*Kind} - {Kind.FILTER, Kind.SECRET}
                for e in envoys
            )
        )

    async def infer(
        self, name: str = "digits", version: str = "", timeout: float = 30.0, **kw: Any
    ) -> Any:
        request = oip.ModelInferRequest(
            model_name=name, model_version=version, **kw.pop("fields", {})
        )
        return await self.stub.ModelInfer(request, timeout=timeout, **kw)

    async def http(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """An HTTP/1.1 call with the path exactly as given."""
        host, _, port = self.settings.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 27)
        lines = [
            f"{method} {path} HTTP/1.1",
            "host: edge",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        try:
            writer.write(body)
            await writer.drain()
        except ConnectionError:
            pass  # refused before all was sent; the answer says why
        head = await reader.readuntil(b"\r\n\r\n")
        status, *rest = head.decode().strip().split("\r\n")
        answer = {k.lower(): v for k, _, v in (line.partition(": ") for line in rest)}
        if "content-length" in answer:
            content = await reader.readexactly(int(answer["content-length"]))
        else:
            content = await reader.read()
        writer.close()
        if answer.get("transfer-encoding") == "chunked":
            content = _unchunk(content)
        return int(status.split()[1]), answer, content


def _unchunk(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            break
        parts.append(rest[:length])
        data = rest[length + 2 :]
    return b"".join(parts)
