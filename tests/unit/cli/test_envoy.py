"""Envoy's bootstrap as `up` renders it."""

import json
from pathlib import Path

import pytest
import yaml

from services.cli.adapters import envoy
from services.rpc import address as addresses
from services.rpc.address import Address

_VALUES = {
    "node_id": '"edge-1"',
    "admin_address": envoy.address_value(Address(path="/run/a.sock")),
    "metrics_address": envoy.address_value(Address(host="127.0.0.1", port=9901)),
    "zone": '""',
    **envoy.router_values([Address(path="/run/r.sock")]),
    "router_tls": "null",
    "max_heap_bytes": "1000000",
}


@pytest.fixture
def full_folder(tmp_path: Path) -> Path:
    """A folder with a bootstrap in which nothing more can be written."""
    folder = tmp_path / "run"
    folder.mkdir()
    envoy.render_bootstrap(folder / "envoy.yaml", _VALUES)
    (folder / "envoy.yaml.part").mkdir()  # where it would be written
    return folder


def test_what_is_there_already_is_not_written_again(full_folder: Path) -> None:
    """The same values need no disk; other values are written, or it is told that they can't be."""
    target = full_folder / "envoy.yaml"
    before = target.stat()
    envoy.render_bootstrap(target, _VALUES)
    assert target.stat() == before
    with pytest.raises(IsADirectoryError):
        envoy.render_bootstrap(target, {**_VALUES, "node_id": '"edge-2"'})
    (full_folder / "envoy.yaml.part").rmdir()
    envoy.render_bootstrap(target, {**_VALUES, "node_id": '"edge-2"'})
    assert "edge-2" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["${x}", "$x", "%24", "'", '"', "#", "a: {b}", "\\"])
def test_values_are_taken_as_they_are(tmp_path: Path, text: str) -> None:
    """Nothing in a path is read as a placeholder or as YAML."""
    path = f"/run/{text}/a.sock"
    values = {**_VALUES, "admin_address": envoy.address_value(Address(path=path))}
    envoy.render_bootstrap(tmp_path / "envoy.yaml", values)
    rendered = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
    assert rendered["admin"]["address"]["pipe"] == {"path": path, "mode": 0o600}


def test_admin_is_reached_by_metrics_alone(tmp_path: Path) -> None:
    """The one static listener has two routes, which lead to the statistics and to whether Envoy is ready."""
    envoy.render_bootstrap(tmp_path / "envoy.yaml", _VALUES)
    rendered = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
    (listener,) = rendered["static_resources"]["listeners"]
    assert json.dumps(listener["address"]) == _VALUES["metrics_address"]
    (chain,) = listener["filter_chains"]
    (host,) = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    metrics, ready = host["routes"]
    assert metrics["match"]["path"] == "/metrics"
    assert metrics["route"] == {"cluster": "admin", "prefix_rewrite": "/stats/prometheus"}
    assert (ready["match"]["path"], ready["route"]) == ("/ready", {"cluster": "admin"})
    for route in (metrics, ready):
        assert route["match"]["headers"] == [{"name": ":method", "string_match": {"exact": "GET"}}]


@pytest.mark.parametrize(
    ("routers", "is_named", "hosts"),
    [
        ("unix:/run/r.sock", False, [None]),
        ("10.0.0.1:82,10.0.0.2:82", False, ["10.0.0.1", "10.0.0.2"]),
        ("router:82", True, ["router"]),
        ("10.0.0.1:82,router:82", True, ["10.0.0.1", "router"]),
    ],
)
def test_several_routers(
    tmp_path: Path, routers: str, is_named: bool, hosts: list[str | None]
) -> None:
    """All routers are hosts of one cluster; Envoy looks them up where one of them is a name."""
    values = {**_VALUES, **envoy.router_values(addresses.parse_peers(routers))}
    envoy.render_bootstrap(tmp_path / "envoy.yaml", values)
    rendered = yaml.safe_load((tmp_path / "envoy.yaml").read_text())
    (cluster,) = [c for c in rendered["static_resources"]["clusters"] if c["name"] == "router"]
    assert cluster.get("type") == (None if is_named else "STATIC")
    assert ("cluster_type" in cluster) == is_named
    (locality,) = cluster["load_assignment"]["endpoints"]
    found = [e["endpoint"]["address"] for e in locality["lb_endpoints"]]
    assert [address.get("socket_address", {}).get("address") for address in found] == hosts
