"""Files by which an Envoy finds a certificate before it has a router to ask (envoy.md: SDS from a file)."""

import json
from pathlib import Path
from typing import Any

from services.rpc.tls import AUTHORITIES, CERTIFICATE, KEY

OWN = "envoy-certificate.json"
TRUSTED = "envoy-authorities.json"
_SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type


def files(folder: Path) -> dict[str, bytes]:
    """To lie beside the certificate in `folder`; Envoy reads it anew when the folder changes."""
    watched = {"watched_directory": {"path": str(folder)}}
    own = {
        "certificate_chain": {"filename": str(folder / CERTIFICATE)},
        "private_key": {"filename": str(folder / KEY)},
    }
    trusted = {"trusted_ca": {"filename": str(folder / AUTHORITIES)}}
    return {
        OWN: _response("own", {"tls_certificate": {**own, **watched}}),
        TRUSTED: _response("trusted", {"validation_context": {**trusted, **watched}}),
    }


def _response(name: str, secret: dict[str, Any]) -> bytes:
    return json.dumps({"resources": [{"@type": _SECRET, "name": name, **secret}]}).encode()
