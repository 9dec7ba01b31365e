"""What `up` tells once it answers."""

from pathlib import Path

import pytest

from services.cli.adapters.launch import Ready
from services.cli.adapters.state_directory import StateDirectory
from services.cli.adapters.upstart import UpOrder, edge_of, summary


def _order(address: str, folder: Path) -> UpOrder:
    return UpOrder(
        state=StateDirectory(folder),
        edge=edge_of(address, None),
        workers=1,
        pool="default",
        drain_seconds=1,
        ready_seconds=1,
        log_level="info",
        verbose=False,
        ready_fd=None,
        auth="off",
    )


@pytest.mark.parametrize(
    ("address", "certificate", "told"),
    [
        pytest.param("127.0.0.1:8080", "", False, id="on this machine"),
        pytest.param("0.0.0.0:8080", "", True, id="beyond it"),
        pytest.param("0.0.0.0:8080", "/tls/cert.pem", False, id="beyond it by TLS"),
    ],
)
def test_a_plain_edge_beyond_this_machine_is_told(
    address: str, certificate: str, *, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come in plain text there; an address of TLS is told as it is typed."""
    monkeypatch.setenv("INFERPLANE_EDGE_CERTIFICATE", certificate)
    order = _order(address, tmp_path)
    lines = summary(Ready(1.0, address, 1, "default"), order)
    assert any(line.startswith("  plain ") for line in lines) is told
    assert not any("INFERPLANE_CA" in line for line in lines)
    shown = f"https://{address}" if certificate else address
    assert f"  edge     {shown} (gRPC, REST, OpenAI's API)" in lines


def test_whom_to_check_an_edge_with_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where our own authority has put its certificate: what is told then suffices to call."""
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("INFERPLANE_EDGE_CERTIFICATE", str(tmp_path / "cert.pem"))
    address = "127.0.0.1:8080"
    lines = summary(Ready(1.0, address, 1, "default"), _order(address, tmp_path))
    assert f"  export INFERPLANE_ADDRESS=https://{address}" in lines
    assert f"  export INFERPLANE_CA={tmp_path / 'ca.pem'}" in lines


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("0.0.0.0:8443", "127.0.0.1:8443"),
        ("[::]:8443", "[::1]:8443"),
        ("10.0.0.0:8443", "10.0.0.0:8443"),
    ],
)
def test_an_edge_on_all_addresses_is_called_by_loopback(
    address: str, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told to type leads to an address that a certificate can be for."""
    monkeypatch.setenv("INFERPLANE_EDGE_CERTIFICATE", str(tmp_path / "cert.pem"))
    lines = summary(Ready(1.0, address, 1, "default"), _order(address, tmp_path))
    assert f"  export INFERPLANE_ADDRESS=https://{called}" in lines
