"""Addresses: both forms parse, anything else is refused."""

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


def test_peers_are_listed() -> None:
    """Several addresses come by commas, names among them; one address is a list too."""
    listed = address.parse_peers("registry-1:81, 10.0.0.2:81,[fd00::1]:81")
    assert [str(peer) for peer in listed] == ["registry-1:81", "10.0.0.2:81", "[fd00::1]:81"]
    assert [peer.is_name for peer in listed] == [True, False, False]
    assert address.parse_peers("unix:/run/a,b.sock") == (address.Address(path="/run/a,b.sock"),)
    assert not address.parse_peers("localhost:81")[0].is_name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:1,", "'' is not an address"),
        ("a:1,b", "'b' is not an address"),
        ("a:1,unix:/run/b.sock", "lists a unix socket"),
        ("a:1,b:1,a:1", "lists an address twice"),
    ],
)
def test_a_bad_list_says_what_is_wrong_in_it(text: str, why: str) -> None:
    """A list is refused as a whole, naming the field and the part."""
    with pytest.raises(InvalidArgumentError, match=rf"^registry_address: .*{why}"):
        address.parse_peers(text, "registry_address")
