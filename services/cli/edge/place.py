"""The folder that one Envoy runs from: bootstrap, admin socket, and what tells it of its certificate."""

import json
from pathlib import Path

from services.cli.adapters import envoy, envoy_secrets
from services.cli.edge.settings import EdgeSettings
from services.rpc import address as addresses
from services.rpc.address import Address
from services.rpc.tls import TlsFiles


def admin_socket(folder: Path) -> Address:
    """The admin interface, which only who may read the folder reaches."""
    return Address(path=str(folder / "admin.sock"))


def furnish(folder: Path, settings: EdgeSettings) -> Path:
    """Write all that Envoy starts with; returns the bootstrap. Raises FailedPreconditionError without a certificate."""
    metrics = settings.metrics_address or f"unix:{folder / 'metrics.sock'}"
    values = {
        "node_id": json.dumps(settings.edge_id),
        "zone": json.dumps(settings.zone),
        "admin_address": envoy.address_value(admin_socket(folder)),
        "metrics_address": envoy.address_value(addresses.parse(metrics)),
        **envoy.router_values(settings.routers()),
        "router_tls": _router_tls(folder, settings),
        "max_heap_bytes": str(settings.edge_heap_bytes),
    }
    bootstrap = folder / "envoy.yaml"
    envoy.render_bootstrap(bootstrap, values)
    return bootstrap


def _router_tls(folder: Path, settings: EdgeSettings) -> str:
    """How routers on TCP are reached. Raises FailedPreconditionError where plain TCP is not allowed."""
    security = settings.security()
    found = [security.files_for(router) for router in settings.routers()]
    if not any(found) or settings.tls_dir is None:
        return "null"
    TlsFiles(settings.tls_dir)  # says what is wrong with it, which Envoy would keep to itself
    files = envoy_secrets.files(settings.tls_dir.absolute(), folder)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files[envoy_secrets.TRANSPORT_SOCKET].decode()
