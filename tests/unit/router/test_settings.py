"""The router's settings: what is allowed, and what a bad value is told."""

import pytest

from services.router.settings import RouterSettings
from services.rpc.settings import SettingsError, load


def test_defaults_are_valid() -> None:
    """Without any variable the router serves on loopback, with discovery at the registry."""
    settings = load(RouterSettings)
    assert settings.discovery_service() == settings.registry_address
    assert settings.edge("unix:/run/router.sock").router_address == "unix:/run/router.sock"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("registry_address", "nowhere", "host:port or unix:/path", id="no-port"),
        pytest.param("router_address", "unix:relative", "socket path", id="relative-socket"),
        pytest.param("edge_address", "localhost:8080", "'localhost'", id="name-to-listen-on"),
        pytest.param("max_message_bytes", "0", "greater than or equal to 1024", id="no-bytes"),
        pytest.param("lease_seconds", "0.5", "greater than or equal to 1", id="short-lease"),
    ],
)
def test_bad_values_are_named(name: str, value: str, text: str) -> None:
    """A bad value is refused with variable, value and what is allowed."""
    with pytest.raises(SettingsError) as raised:
        load(RouterSettings, **{name: value})
    assert f"INFERPLANE_{name.upper()}={value!r}" in str(raised.value)
    assert text in str(raised.value)
