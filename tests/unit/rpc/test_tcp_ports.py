"""Ports for servers: free, given to one asker at a time, and not the system's own."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.rpc import tcp_ports
from services.rpc.address import Address
from services.rpc.tcp_ports import free_port, is_free

linux = pytest.mark.skipif(sys.platform != "linux", reason="ports are claimed on Linux only")
_ASK = """
import sys
from services.rpc import tcp_ports
tcp_ports._candidates = lambda: range(20_000, 21_000)
print(*(tcp_ports.free_port() for _ in range(64)), flush=True)
sys.stdin.read()
"""


def test_a_port_is_free_or_not() -> None:
    """A port somebody listens on is not free; one that is only left over by closed connections is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = Address(host="127.0.0.1", port=server.getsockname()[1])
        assert not is_free(where)
        with socket.create_connection(("127.0.0.1", where.port)):
            server.accept()[0].close()  # closed here first: it lingers here
    assert is_free(where)


@linux
def test_no_two_processes_get_the_same() -> None:
    """Where few ports are asked for by three processes at once, each is given once."""
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", _ASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        given: list[str] = []
        for process in asking:
            assert process.stdout is not None
            given += process.stdout.readline().split()
    finally:
        for process in asking:
            process.communicate("")
    assert len(given) == len(set(given)) == 192


def test_it_is_none_of_those_for_connections(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Connections of others take their ports from the system's range: servers get none of it, if others are enough."""
    ports = tmp_path / "range"
    monkeypatch.setattr(tcp_ports, "_RANGE", ports)
    ports.write_text("32768\t60999\n")
    assert all(10_240 <= free_port() < 32_768 for _ in range(50))
    ports.write_text("1024\t60999\n")
    assert all(free_port() > 60_999 for _ in range(50))
    ports.write_text("1024\t65535\n")
    assert 10_240 <= free_port() <= 65_535


def test_one_that_is_listened_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand ports it takes the only one that is free."""
    monkeypatch.setattr(tcp_ports, "_candidates", lambda: range(21_000, 22_000))
    monkeypatch.setattr(tcp_ports, "is_free", lambda address: address.port == 21_234)
    assert free_port() == 21_234
    if sys.platform == "linux":
        assert not 21_000 <= free_port() < 22_000, "it was given a moment ago"
