"""The router's settings: what is allowed, and what a bad value is told."""

import pytest

from services.router.settings import RouterSettings
from services.rpc.settings import SettingsError, load


def test_defaults_are_valid() -> None:
    """Without any variable the router serves on loopback, with discovery at the registry."""
    settings = load(RouterSettings)
    assert settings.discovery_service() == settings.registry_address
    assert settings.edge().router_address == "127.0.0.1:8082"


def test_what_several_processes_serve() -> None:
    """Peers may be several or a name, and the edge reaches routers elsewhere than each of them listens."""
    settings = load(
        RouterSettings,
        registry_address="registry-1:8081,registry-2:8081",
        metering_address="metering:8084",
        router_address="0.0.0.0:8082",
        advertised_address="router:8082",
    )
    assert settings.edge().router_address == "router:8082"
    assert settings.edge().registry_address == "registry-1:8081,registry-2:8081"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("registry_address", "nowhere", "host:port or unix:/path", id="no-port"),
        pytest.param("metering_address", "a:1,b", "'b' is not an address", id="half-a-list"),
        pytest.param("router_address", "a:1,b:1", "not an address", id="list-to-listen-on"),
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
