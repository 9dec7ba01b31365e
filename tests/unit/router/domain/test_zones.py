"""Which workers an edge calls first, by its zone and theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.domain.zones import tiers


def placed(**counts: int) -> tuple[list[str], dict[str, str]]:
    """So many hosts in each zone; `_` are in none."""
    zones = {f"{zone}{n}": zone for zone, count in counts.items() for n in range(count)}
    return sorted(zones), {host: zone for host, zone in zones.items() if zone != "_"}


@pytest.mark.parametrize(
    ("counts", "own", "sizes"),
    [
        pytest.param({"a": 2, "b": 2}, "a", [2, 2], id="as many here as there"),
        pytest.param({"a": 3, "b": 1}, "a", [3, 1], id="more here"),
        pytest.param({"a": 1, "b": 3}, "a", [2, 2], id="fewer here: one is borrowed"),
        pytest.param({"a": 1, "b": 10}, "a", [6, 5], id="far fewer here"),
        pytest.param({"a": 2, "b": 2, "c": 2}, "c", [2, 4], id="three zones"),
        pytest.param({"a": 2, "b": 2}, "c", [4], id="none here"),
        pytest.param({"a": 2}, "a", [2], id="none elsewhere"),
        pytest.param({"a": 1, "_": 1}, "a", [2], id="one that is nowhere is for all"),
        pytest.param({"a": 2, "b": 2}, "", [4], id="an edge that is nowhere"),
        pytest.param({}, "a", [0], id="no host"),
    ],
)
def test_own_zone_first(counts: dict[str, int], own: str, sizes: list[int]) -> None:
    """Hosts of the own zone come first, with others where they are fewer than their share."""
    hosts, zones = placed(**counts)
    found = tiers(hosts, zones, own)
    assert [len(tier) for tier in found] == sizes
    assert set(found[0]) >= {host for host in hosts if zones.get(host) == own}


@given(
    st.dictionaries(st.sampled_from("abc_"), st.integers(0, 8)), st.sampled_from(["a", "b", "z"])
)
def test_every_host_is_called_by_somebody(counts: dict[str, int], own: str) -> None:
    """Each host is in one tier, and what is said does not depend on the order in which hosts came."""
    hosts, zones = placed(**counts)
    found = tiers(hosts, zones, own)
    assert sorted(host for tier in found for host in tier) == hosts
    if len(found) > 1:
        assert found == tiers(hosts[::-1], zones, own)


def test_a_zone_borrows_the_same_hosts() -> None:
    """A host that goes moves no more of the borrowed ones than it must."""
    hosts, zones = placed(a=1, b=9)
    before = {h for h in tiers(hosts, zones, "a")[0] if zones[h] == "b"}
    gone = min(before)
    left = [host for host in hosts if host != gone]
    after = {h for h in tiers(left, zones, "a")[0] if zones[h] == "b"}
    assert before - {gone} <= after
