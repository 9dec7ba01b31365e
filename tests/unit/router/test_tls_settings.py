"""The router's settings of TLS: what fits together."""

from typing import Any

import pytest

from services.router.resources.edge import ClientCertificate
from services.router.settings import RouterSettings
from services.rpc.settings import SettingsError, load


def test_a_key_lies_beside_its_certificate() -> None:
    """Unless it is said where; without a certificate the edge is plain."""
    edge = load(RouterSettings, edge_certificate="/tls/cert.pem").edge()
    assert (edge.certificate, edge.key) == ("/tls/cert.pem", "/tls/key.pem")
    assert edge.client_certificate is ClientCertificate.OFF
    named = load(RouterSettings, edge_certificate="/a.pem", edge_key="/b.pem").edge()
    assert named.key == "/b.pem"
    assert not load(RouterSettings).edge().certificate


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param({"edge_certificate": "cert.pem"}, "EDGE_CERTIFICATE", id="a relative path"),
        pytest.param({"edge_tls_dir": "tls"}, "EDGE_TLS_DIR", id="a relative folder"),
        pytest.param(
            {"edge_client_certificate": "required", "edge_client_ca": "/ca.pem"},
            "INFERPLANE_EDGE_CERTIFICATE",
            id="clients' certificates at a plain edge",
        ),
        pytest.param(
            {"edge_client_certificate": "optional", "edge_certificate": "/cert.pem"},
            "INFERPLANE_EDGE_CLIENT_CA",
            id="clients' certificates of nobody",
        ),
    ],
)
def test_what_does_not_fit_is_told(settings: dict[str, Any], told: str) -> None:
    """The variable is named."""
    with pytest.raises(SettingsError, match=told):
        load(RouterSettings, **settings)
