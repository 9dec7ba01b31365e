"""`up` with an edge of TLS, certificates of one's own authority, and the command line as its client."""

import json
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.cli.adapters.ca import CertificateAuthority
from services.rpc.tls import AUTHORITIES, CERTIFICATE
from tests.integration.cli.running_mesh import DEADLINE, Done, RunningMesh, run_inside, running_mesh
from tests.mesh_certificates import client_context, serial_at


@dataclass(frozen=True, slots=True)
class TlsUp:
    """A mesh whose edge asks for certificates, and what lies in its state directory."""

    mesh: RunningMesh
    folder: Path

    @property
    def me(self) -> Path:
        """A client's certificate."""
        return self.folder / "tls" / "me"

    def typed(self, *arguments: str, **environment: str) -> Done:
        """A command to the edge, which it finds by the state directory."""
        return run_inside(*arguments, INFERPLANE_STATE_DIR=str(self.folder), **environment)

    def typed_by_me(self, *arguments: str) -> Done:
        """The same by who trusts the edge, and has a certificate."""
        return self.typed(
            *arguments,
            INFERPLANE_CA=str(self.me / AUTHORITIES),
            INFERPLANE_CLIENT_CERTIFICATE=str(self.me),
        )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsUp]:
    """One for all tests here."""
    folder = tmp_path_factory.mktemp("state")
    for arguments in (
        ["init"],
        ["issue", "edge", "--kind", "edge", "--dns", "localhost", "--ip", "127.0.0.1"],
        ["issue", "me", "--kind", "client"],
    ):
        done = run_inside("ca", *arguments, INFERPLANE_STATE_DIR=str(folder))
        assert done.returncode == 0, done.stderr
    edge = folder / "tls" / "edge"
    environment = {
        "INFERPLANE_EDGE_CERTIFICATE": str(edge / CERTIFICATE),
        "INFERPLANE_EDGE_CLIENT_CA": str(edge / AUTHORITIES),
        "INFERPLANE_EDGE_CLIENT_CERTIFICATE": "required",
    }
    with running_mesh(folder, "--workers", "1", **environment) as mesh:
        yield TlsUp(mesh, folder)


def test_up_tells_the_https_address(up: TlsUp) -> None:
    """As it is to be typed."""
    assert f"  export INFERPLANE_ADDRESS=https://{up.mesh.address}" in up.mesh.lines


def test_commands_pass_with_a_certificate_and_a_key(up: TlsUp) -> None:
    """Over gRPC and REST; this machine's own key is found as ever."""
    listed = up.typed_by_me("endpoints", "list", "-o", "json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
    asked = up.typed_by_me("infer", "nobody", "--json", "-")
    assert "nobody" in asked.stderr
    assert "certificate" not in asked.stderr


def test_a_certificate_is_no_key(up: TlsUp) -> None:
    """Who shows a good certificate and a key that is none is refused."""
    refused = up.typed_by_me("endpoints", "list", "--api-key", "nothing")
    assert refused.returncode != 0
    assert "--api-key" in refused.stderr


@pytest.mark.parametrize("command", [("endpoints", "list"), ("infer", "x", "--json", "-")])
def test_what_is_missing_is_told(up: TlsUp, command: tuple[str, ...]) -> None:
    """An edge that nobody vouches for, and a certificate that the edge asks for."""
    unknown = up.typed(*command)
    assert "--ca or INFERPLANE_CA" in unknown.stderr
    nameless = up.typed(*command, INFERPLANE_CA=str(up.me / AUTHORITIES))
    assert "INFERPLANE_CLIENT_CERTIFICATE" in nameless.stderr


def test_renewed_under_a_running_mesh(up: TlsUp) -> None:
    """`ca renew` is all: the next connection is shown the new certificate."""
    assert up.typed("ca", "renew", "--all").returncode == 0
    wanted = CertificateAuthority(up.folder / "ca").find("edge").serial
    context = client_context(up.me)
    deadline = time.monotonic() + DEADLINE
    while serial_at(up.mesh.address, context) != wanted:  # Envoy hears of it by itself
        assert time.monotonic() < deadline
    assert up.typed_by_me("endpoints", "list").returncode == 0


def test_sockets_are_for_their_owner_alone(up: TlsUp) -> None:
    """All of a mesh's sockets are 0600, in a folder of 0700."""
    sockets = list(up.mesh.state.sockets.glob("*.sock"))
    assert len(sockets) >= 5  # registry, metering, router, worker, Envoy's admin
    assert stat.S_IMODE(up.mesh.state.sockets.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in sockets} == dict.fromkeys(
        (path.name for path in sockets), 0o600
    )
