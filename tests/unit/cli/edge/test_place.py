"""What the edge's process writes before it starts Envoy."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli.edge import place
from services.cli.edge.settings import EdgeSettings
from services.rpc.errors import FailedPreconditionError
from services.rpc.peer_kind import PeerKind
from services.rpc.settings import SettingsError, load
from tests.mesh_certificates import MeshCertificates


def furnished(folder: Path, **settings: Any) -> dict[str, Any]:
    """The bootstrap."""
    found: dict[str, Any] = yaml.safe_load(
        place.furnish(folder, load(EdgeSettings, **settings)).read_text()
    )
    return found


def router_of(bootstrap: dict[str, Any]) -> dict[str, Any]:
    """The cluster of the routers."""
    clusters = bootstrap["static_resources"]["clusters"]
    (found,) = [cluster for cluster in clusters if cluster["name"] == "router"]
    return dict(found)


def test_what_is_said_of_this_edge(tmp_path: Path) -> None:
    """Name, zone and metrics are as the settings say; the admin interface is in the folder alone."""
    found = furnished(tmp_path, edge_id="edge-7", zone="north", metrics_address="0.0.0.0:9100")
    assert found["node"]["id"] == "edge-7"
    assert found["node"]["locality"] == {"zone": "north"}
    assert found["admin"]["address"]["pipe"]["path"] == f"{tmp_path}/admin.sock"
    (listener,) = found["static_resources"]["listeners"]
    assert listener["address"]["socket_address"]["port_value"] == 9100


def test_routers_on_tcp_are_reached_by_tls(tmp_path: Path) -> None:
    """With a certificate the routers, looked up by name, must be services; the files that say so are the edge's own."""
    own = MeshCertificates.begin(tmp_path / "mesh").issue("edge", PeerKind.EDGE)
    before = {path.name for path in own.iterdir()}
    folder = tmp_path / "run"
    folder.mkdir()
    router = router_of(furnished(folder, router_address="router:8082", tls_dir=own))
    assert router["cluster_type"]["name"] == "envoy.cluster.dns"
    common = router["transport_socket"]["typed_config"]["common_tls_context"]
    validation = common["combined_validation_context"]["default_validation_context"]
    (whom,) = validation["match_typed_subject_alt_names"]
    assert whom["matcher"] == {"exact": PeerKind.SERVICE.uri}
    (told,) = common["tls_certificate_sds_secret_configs"]
    secret = json.loads(Path(told["sds_config"]["path_config_source"]["path"]).read_text())
    chain = secret["resources"][0]["tls_certificate"]["certificate_chain"]["filename"]
    assert chain == f"{own}/cert.pem"
    assert {path.name for path in own.iterdir()} == before


def test_plain_tcp_beyond_this_machine_is_refused(tmp_path: Path) -> None:
    """A router elsewhere needs a certificate, or that it be wanted without; on this machine none is needed."""
    with pytest.raises(FailedPreconditionError, match="INFERPLANE_TLS_DIR"):
        furnished(tmp_path, router_address="10.0.0.1:8082,10.0.0.2:8082")
    plain = furnished(tmp_path, router_address="10.0.0.1:8082", insecure_tcp=True)
    assert router_of(plain)["transport_socket"] is None
    assert router_of(furnished(tmp_path))["type"] == "STATIC"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("router_address", "router:8082,"),
        ("metrics_address", "localhost.example:9100"),
        ("edge_heap_bytes", "1000"),
        ("zone", "z" * 64),
    ],
)
def test_bad_values_are_named(name: str, value: str) -> None:
    """Each is refused with the variable's name."""
    with pytest.raises(SettingsError, match=f"INFERPLANE_{name.upper()}="):
        load(EdgeSettings, **{name: value})
