"""inferplane.router.v1.RouterService: what is published and how the Envoys take it."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from inferplane.router.v1 import router_service_pb2 as pb
from inferplane.router.v1.router_service_pb2_grpc import RouterServiceServicer

from services.router.domain.publication import Publication
from services.router.domain.snapshot import Kind
from services.router.domain.topology import RoutedEndpoint
from services.router.drivers.board import Board
from services.router.drivers.publisher import Publisher
from services.router.drivers.roster import Envoy, Roster
from services.router.servicers.all_routers import Answers, merged
from services.router.servicers.type_urls import TYPE_URLS


class RouterServicer(RouterServiceServicer):
    """Reads the publisher, the board and the roster, and asks the other routers."""

    def __init__(
        self,
        publisher: Publisher,
        board: Board,
        roster: Roster,
        *,
        address: str = "",
        ask_others: Callable[[], Awaitable[Answers]] | None = None,
    ) -> None:
        """Assign only.

        Args:
            publisher: of this router.
            board: likewise.
            roster: likewise.
            address: where it listens.
            ask_others: what each router says, this one perhaps among them; None: it is the only one.
        """
        self._publisher = publisher
        self._board = board
        self._roster = roster
        self._address = address
        self._ask_others = ask_others
        self._instance = secrets.token_hex(8)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        asked = None if request.this_router_only else self._ask_others
        answers = {} if asked is None else await asked()
        return merged(self._own(), answers)

    def _own(self) -> pb.GetStatusResponse:
        publication = self._board.current
        response = pb.GetStatusResponse(
            envoys=[_envoy(envoy, publication) for envoy in self._roster.envoys],
            refused_snapshot=self._publisher.refused,
            registry_connected=self._publisher.registry_connected,
            discovery_connected=self._publisher.discovery_connected,
        )
        if publication is not None:
            response.snapshot_version = publication.snapshot.version
            response.policy_known = Kind.FILTER not in publication.snapshot.unknown
            response.publish_time.CopyFrom(_timestamp(publication.time))
            response.endpoints.extend(_endpoint(e) for e in publication.topology.endpoints)
        response.routers.add(address=self._address, instance=self._instance)
        return response


def _timestamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(round(seconds * 1e9))
    return stamp


def _envoy(envoy: Envoy, publication: Publication | None) -> pb.EnvoyStatus:
    status = pb.EnvoyStatus(
        node_id=envoy.node_id,
        connect_time=_timestamp(envoy.connect_time),
        in_sync=publication is not None
        and envoy.client.is_in_sync(publication.snapshot.seen_from(envoy.zone)),
        ack_count=envoy.acks,
        nack_count=envoy.nacks,
    )
    nack = envoy.last_nack
    if nack is not None:
        status.last_nack.CopyFrom(
            pb.Nack(time=_timestamp(nack.time), type_url=TYPE_URLS[nack.kind], message=nack.message)
        )
    return status


def _endpoint(endpoint: RoutedEndpoint) -> pb.EndpointStatus:
    targets = [
        pb.TargetStatus(
            target=str(target.target),
            version=str(target.version),
            declared_share=target.declared_share,
            effective_share=target.effective_share,
            ready_workers=target.ready_workers,
        )
        for target in endpoint.targets
    ]
    mirror = endpoint.mirror_version
    return pb.EndpointStatus(
        name=str(endpoint.declared.name),
        targets=targets,
        mirror_version=str(mirror) if mirror is not None else "",
    )
