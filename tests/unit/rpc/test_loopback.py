"""Hosts: which are this machine itself."""

import pytest

from services.rpc.address import parse
from services.rpc.loopback import is_here, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback", "here"),
    [
        ("localhost", True, True),
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("10.0.0.1", False, False),
        ("example.com", False, False),
        ("localhost.example.com", False, False),
        ("", False, False),
    ],
)
def test_hosts_of_this_machine(host: str, loopback: bool, here: bool) -> None:
    """Loopback is for this machine alone; who calls all addresses calls this machine."""
    assert (is_loopback(host), is_here(host)) == (loopback, here)


def test_an_address_on_loopback() -> None:
    """TCP on loopback is; a unix socket is no TCP."""
    assert parse("[::1]:80").is_loopback
    assert not parse("0.0.0.0:80").is_loopback
    assert not parse("unix:/run/a.sock").is_loopback
