"""TLS of the edge: what Envoy shows and whom it trusts, as names of files that it reads, and reads again by itself.

The listener and the clusters name secrets, and secrets name files: a certificate that is replaced changes neither.
"""

from pathlib import PurePosixPath
from typing import Any

from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import (
    DownstreamTlsContext,
    UpstreamTlsContext,
)
from google.protobuf.struct_pb2 import Struct, Value

from services.router.domain.snapshot import Kind, Reference, Resource
from services.router.resources import edge, wire
from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY

_SOCKET = "envoy.transport_sockets.tls"
# Secrets: what clients see, and by whom their certificates must be; what workers and services see, and likewise.
_SHOWN = "edge/certificate"
_CLIENTS = "edge/client-authorities"
_OWN = "mesh/certificate"
_MESH = "mesh/authorities"
# Hosts with this metadata are reached by TLS.
_MATCH_NAMESPACE = "envoy.transport_socket_match"
_MATCH = Struct(fields={"tls": Value(bool_value=True)})
MARK = {"filter_metadata": {_MATCH_NAMESPACE: _MATCH}}


def secrets(settings: edge.Edge) -> list[Resource]:
    """All secrets that the other resources name."""
    built = []
    if settings.certificate:
        built.append(_certificate(_SHOWN, settings.certificate, settings.key))
    if settings.asks_for_certificates:
        built.append(_authorities(_CLIENTS, settings.client_ca))
    if settings.tls_dir:
        folder = PurePosixPath(settings.tls_dir)
        built.append(_certificate(_OWN, str(folder / CERTIFICATE), str(folder / KEY)))
        built.append(_authorities(_MESH, str(folder / AUTHORITIES)))
    return built


def listener_references(settings: edge.Edge) -> list[Reference]:
    """What the listener names."""
    names = [_SHOWN] if settings.certificate else []
    names += [_CLIENTS] if settings.asks_for_certificates else []
    return [Reference(Kind.SECRET, name) for name in names]


def secure(chain: FilterChain, settings: edge.Edge) -> None:
    """Make the listener's chain one of TLS, if there is a certificate to show."""
    if not settings.certificate:
        return
    common: dict[str, Any] = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "tls_certificate_sds_secret_configs": [_from_router(_SHOWN)],
        "alpn_protocols": ["h2", "http/1.1"],
    }
    context = DownstreamTlsContext(common_tls_context=common)
    if settings.asks_for_certificates:
        context.common_tls_context.validation_context_sds_secret_config.MergeFrom(
            UpstreamTlsContext(
                common_tls_context={"validation_context_sds_secret_config": _from_router(_CLIENTS)}
            ).common_tls_context.validation_context_sds_secret_config
        )
        context.require_client_certificate.value = settings.client_certificate == "required"
        # A session that is taken up again would be believed by what was trusted when it began.
        context.disable_stateless_session_resumption = True
        context.disable_stateful_session_resumption = True
    chain.transport_socket.MergeFrom(_socket(context))


def reach_services(cluster: Any) -> list[Reference]:
    """Have a cluster of one service, by TCP, reach it by TLS; what the cluster names then."""
    cluster.transport_socket.MergeFrom(_socket(_towards(PeerKind.SERVICE)))
    return _mesh_references()


def reach_workers(cluster: Any) -> list[Reference]:
    """Have a cluster reach those of its workers by TLS that are marked with `MARK`; what the cluster names then."""
    match = cluster.transport_socket_matches.add(name="tls")
    match.match.MergeFrom(_MATCH)
    match.transport_socket.MergeFrom(_socket(_towards(PeerKind.WORKER)))
    return _mesh_references()


def _mesh_references() -> list[Reference]:
    return [Reference(Kind.SECRET, _OWN), Reference(Kind.SECRET, _MESH)]


def _towards(kind: PeerKind) -> UpstreamTlsContext:
    """Whatever the host is called: it must be of this kind."""
    whom = {"san_type": "URI", "matcher": {"exact": kind.uri}}
    return UpstreamTlsContext(
        sni=kind.server_name,
        max_session_keys=wire.number(0),
        common_tls_context={
            "tls_params": {
                "tls_minimum_protocol_version": "TLSv1_3",
                "tls_maximum_protocol_version": "TLSv1_3",
            },
            "alpn_protocols": ["h2"],
            "tls_certificate_sds_secret_configs": [_from_router(_OWN)],
            "combined_validation_context": {
                "default_validation_context": {"match_typed_subject_alt_names": [whom]},
                "validation_context_sds_secret_config": _from_router(_MESH),
            },
        },
    )


def _socket(context: Any) -> Any:
    return FilterChain(transport_socket=wire.extension(_SOCKET, context)).transport_socket


def _from_router(name: str) -> dict[str, Any]:
    return {"name": name, "sds_config": {"ads": {}, "resource_api_version": "V3"}}


def _certificate(name: str, certificate: str, key: str) -> Resource:
    message = Secret(
        name=name,
        tls_certificate={
            "certificate_chain": {"filename": certificate},
            "private_key": {"filename": key},
            "watched_directory": {"path": str(PurePosixPath(certificate).parent)},
        },
    )
    return Resource.of(Kind.SECRET, name, wire.serialized(message))


def _authorities(name: str, file: str) -> Resource:
    message = Secret(
        name=name,
        validation_context={
            "trusted_ca": {"filename": file},
            "watched_directory": {"path": str(PurePosixPath(file).parent)},
        },
    )
    return Resource.of(Kind.SECRET, name, wire.serialized(message))
