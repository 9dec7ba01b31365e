"""Addresses: both forms parse, anything else is refused."""

import socket

import pytest

from services.rpc import address
from services.rpc.errors import InvalidArgumentError


@pytest.mark.parametrize("text", ["127.0.0.1:80", "localhost:0", "[::1]:8080", "unix:/run/a.sock"])
def test_address_round_trips(text: str) -> None:
    """What parses prints the same."""
    assert str(address.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "8080", ":80", "host:", "host:x", "host:65536", "unix:rel.sock", "unix:/" + "a" * 107],
)
def test_bad_address_is_refused(text: str) -> None:
    """A text of another form is refused, naming the field."""
    with pytest.raises(InvalidArgumentError, match=r"^registry_address: "):
        address.parse(text, "registry_address")


def test_a_port_is_free_or_not() -> None:
    """A port somebody listens on is not free; one that is only left over by closed connections is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = address.Address(host="127.0.0.1", port=server.getsockname()[1])
        assert not address.is_free(where)
        with socket.create_connection(("127.0.0.1", where.port)):
            server.accept()[0].close()  # closed here first: it lingers here
    assert address.is_free(where)
