"""Who listens on a TCP port of this machine."""

import socket

import psutil

from services.cli.domain.exit_code import StartError
from services.rpc.address import Address


def check_free(address: Address) -> None:
    """StartError names port and holder if somebody listens at the address."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            # As Envoy does: connections of an Envoy that ended a moment ago don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        raise StartError(
            f"can't listen at {address}: {_why(address.port, error)}."
            " Choose another with --edge-port",
            reason="PORT_TAKEN",
            metadata={"address": str(address), "port": str(address.port)},
        ) from error


def _why(port: int, error: OSError) -> str:
    owner = find(port)
    if owner is None:
        return (error.strerror or str(error)).lower()
    return f"port {port} is taken by {owner}"


def find(port: int) -> str | None:
    """The process that listens on the port, in words; None if it can't be told."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:  # macOS tells only root
        return None
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN
        if not listens or not connection.laddr or connection.laddr.port != port:
            continue
        if connection.pid is None:
            return "a process of another user"
        try:
            return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return f"process {connection.pid}"
    return None
