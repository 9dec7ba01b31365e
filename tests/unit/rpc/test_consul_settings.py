"""Where Consul's agents are, as a setting."""

import pytest

from services.rpc.consul_settings import DiscoverySettings
from services.rpc.settings import SettingsError, load


@pytest.mark.parametrize(
    ("value", "urls"),
    [
        pytest.param("http://consul:8500", ("http://consul:8500",), id="one"),
        pytest.param("https://consul", ("https://consul:8500",), id="Consul's own port"),
        pytest.param("http://[::1]:85", ("http://[::1]:85",), id="IPv6"),
        pytest.param(
            "https://a:8501, https://b:8501/", ("https://a:8501", "https://b:8501"), id="several"
        ),
    ],
)
def test_agents(value: str, urls: tuple[str, ...]) -> None:
    """Each agent is a URL with a port, without a path."""
    assert load(DiscoverySettings, consul_address=value).consul_urls() == urls


@pytest.mark.parametrize(
    "value",
    [
        *("", "consul:8500", "ftp://a:1", "http://", "http://a:99999", "http://a/v1"),
        *("http://a,,http://b", "http://u:p@a", "http://a?x=1"),
    ],
)
def test_odd_agents(value: str) -> None:
    """Anything else ends the process with the variable, the part and what is allowed."""
    with pytest.raises(
        SettingsError, match=r"INFERPLANE_CONSUL_ADDRESS.*allowed: http://host:port"
    ):
        load(DiscoverySettings, consul_address=value)


def test_discovery_is_one_of_two() -> None:
    """The registry's own leases, unless Consul is asked for."""
    assert not load(DiscoverySettings).in_consul
    assert load(DiscoverySettings, discovery="consul").in_consul
    with pytest.raises(SettingsError, match="INFERPLANE_DISCOVERY"):
        load(DiscoverySettings, discovery="etcd")
