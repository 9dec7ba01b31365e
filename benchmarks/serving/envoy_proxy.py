"""A peer behind an Envoy that only forwards: what a proxy alone costs there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from benchmarks.serving import contender
from benchmarks.serving.contender import Contender, Running
from benchmarks.serving.process_tree import ProcessTree
from services.cli.adapters import envoy
from services.cli.adapters.mesh import cores
from services.rpc.tcp_ports import free_port

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"


def in_front(peer: Contender) -> Contender:
    """The same peer behind an Envoy of as many threads as `inferplane up` gives its own."""

    def start(folder: Path) -> Running:
        served = peer.start(folder)
        address = f"127.0.0.1:{free_port()}"
        config = folder / "envoy.json"
        config.write_text(json.dumps(_config(address, served.address, peer.dialect.protocol)))
        command = envoy.arguments(config, cores())
        tree = ProcessTree.start(command, contender.clean_environment(), folder, "envoy")
        return Running(address, [*served.trees, tree])

    return dataclasses.replace(
        peer, variant=f"{peer.variant}, Envoy", start=start, what=f"{peer.what}, behind Envoy"
    )


def _config(listen: str, upstream: str, protocol: str) -> dict[str, Any]:
    version = "http2_protocol_options" if protocol == "grpc" else "http_protocol_options"
    cluster = {
        "name": "peer",
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [{"max_requests": 4096, "max_pending_requests": 4096}]},
        "typed_extension_protocol_options": {
            _HTTP_OPTIONS: _typed(_HTTP_OPTIONS, explicit_http_config={version: {}})
        },
        "load_assignment": {
            "cluster_name": "peer",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(upstream)}}]}],
        },
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": "peer", "timeout": "60s"}}
    manager = _typed(
        _MANAGER,
        stat_prefix="peer",
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        http_filters=[{"name": "router", "typed_config": _typed(_ROUTER)}],
    )
    listener = {
        "name": "listener",
        "address": _socket(listen),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _typed(name: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/{name}", **fields}


def _socket(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
