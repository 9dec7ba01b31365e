"""Files by which an Envoy finds a certificate before it has a router to ask (envoy.md: SDS from a file)."""

import json
from pathlib import Path
from typing import Any

from services.rpc.peer_kind import PeerKind
from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY

OWN = "envoy-certificate.json"
TRUSTED = "envoy-authorities.json"
TRANSPORT_SOCKET = "envoy-transport-socket.json"
_SOCKET = "envoy.transport_sockets.tls"
_CONTEXT = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type


def files(folder: Path, place: Path | None = None) -> dict[str, bytes]:
    """Of the certificate in `folder`, which Envoy reads anew when the folder changes.

    They are to lie in `place`; None: beside the certificate.
    """
    watched = {"watched_directory": {"path": str(folder)}}
    own = {
        "certificate_chain": {"filename": str(folder / CERTIFICATE)},
        "private_key": {"filename": str(folder / KEY)},
    }
    trusted = {"trusted_ca": {"filename": str(folder / AUTHORITIES)}}
    return {
        OWN: _response("own", {"tls_certificate": {**own, **watched}}),
        TRUSTED: _response("trusted", {"validation_context": {**trusted, **watched}}),
        TRANSPORT_SOCKET: json.dumps(_transport_socket(place or folder)).encode(),
    }


def _transport_socket(folder: Path) -> dict[str, Any]:
    """Towards a router on TCP, for Envoy's bootstrap: nothing but a service is spoken to there."""
    whom = {"san_type": "URI", "matcher": {"exact": PeerKind.SERVICE.uri}}
    common = {
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_3",
            "tls_maximum_protocol_version": "TLSv1_3",
        },
        "alpn_protocols": ["h2"],
        "tls_certificate_sds_secret_configs": [_from_file("own", folder, OWN)],
        "combined_validation_context": {
            "default_validation_context": {"match_typed_subject_alt_names": [whom]},
            "validation_context_sds_secret_config": _from_file("trusted", folder, TRUSTED),
        },
    }
    context = {"sni": PeerKind.SERVICE.server_name, "common_tls_context": common}
    return {"name": _SOCKET, "typed_config": {"@type": _CONTEXT, **context}}


def _from_file(name: str, folder: Path, file: str) -> dict[str, Any]:
    source = {"path": str(folder / file), "watched_directory": {"path": str(folder)}}
    return {
        "name": name,
        "sds_config": {"path_config_source": source, "resource_api_version": "V3"},
    }


def _response(name: str, secret: dict[str, Any]) -> bytes:
    return json.dumps({"resources": [{"@type": _SECRET, "name": name, **secret}]}).encode()
