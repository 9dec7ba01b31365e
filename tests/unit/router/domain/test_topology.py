"""The routed picture: effective shares, workers, limits."""

import math

import pytest

from services.router.domain.topology import (
    CircuitLimits,
    Endpoint,
    Mirror,
    RetryPolicy,
    Target,
    Topology,
    UnresolvedTargetError,
    Worker,
    route,
)
from services.rpc.names import AliasName, EndpointName, VersionName

V1, V2, V3 = (VersionName("digits", v) for v in "123")
CHAMPION = AliasName("digits", "champion")


def endpoint(*weights: tuple[VersionName | AliasName, float], **fields: object) -> Endpoint:
    targets = tuple(Target(name, weight) for name, weight in weights)
    return Endpoint(name=EndpointName("digits"), targets=targets, **fields)  # type: ignore[arg-type]  # fields vary by test


def worker(name: str, *ready: VersionName, draining: bool = False) -> Worker:
    return Worker(name=name, address=f"{name}:1", ready=frozenset(ready), draining=draining)


def shares(topology: Topology) -> list[float]:
    return [round(t.effective_share, 6) for t in topology.endpoints[0].targets]


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        pytest.param([V1, V2], [0.9, 0.1], id="all-ready-as-declared"),
        pytest.param([V1], [1.0, 0.0], id="unready-gives-its-share-away"),
        pytest.param([V2], [0.0, 1.0], id="small-one-takes-all-if-alone"),
        pytest.param([], [0.9, 0.1], id="none-ready-all-stay"),
        pytest.param([V3], [0.9, 0.1], id="others-versions-do-not-count"),
    ],
)
def test_effective_shares(ready: list[VersionName], expected: list[float]) -> None:
    """A target that is READY nowhere gets nothing while another is; if none is, all keep their share."""
    topology = route([endpoint((V1, 90), (V2, 10))], {}, [worker("a", *ready)])
    assert shares(topology) == expected


def test_freed_share_is_divided_in_proportion() -> None:
    """What an unready target gives up goes to the others as their weights are."""
    topology = route([endpoint((V1, 50), (V2, 30), (V3, 20))], {}, [worker("a", V2, V3)])
    assert shares(topology) == [0.0, 0.6, 0.4]


def test_draining_worker_is_out_at_once() -> None:
    """A draining worker neither has hosts nor makes a target ready, nor answers what any worker answers."""
    workers = [worker("a", V1), worker("b", V1, V2, draining=True)]
    topology = route([endpoint((V1, 1), (V2, 1))], {}, workers)
    assert shares(topology) == [1.0, 0.0]
    assert [v.addresses for v in topology.versions] == [("a:1",), ()]
    assert topology.addresses == ("a:1",)


def test_alias_is_followed() -> None:
    """An alias routes to the version that it names now."""
    topology = route([endpoint((CHAMPION, 1))], {CHAMPION: V2}, [worker("a", V2)])
    target = topology.endpoints[0].targets[0]
    assert (target.target, target.version, target.ready_workers) == (CHAMPION, V2, 1)


def test_alias_that_is_not_there_is_refused() -> None:
    """An endpoint whose alias is unknown gives no picture at all."""
    with pytest.raises(
        UnresolvedTargetError, match=r"endpoints/digits names models/digits/aliases/champion"
    ):
        route([endpoint((CHAMPION, 1))], {}, [])


def test_only_named_versions_get_clusters() -> None:
    """A version that workers have READY but no endpoint names is not routed; a mirror's is."""
    declared = endpoint((V1, 1), mirror=Mirror(V2, 5))
    topology = route([declared], {}, [worker("a", V1, V2, V3)])
    assert [(v.name, v.mirrored) for v in topology.versions] == [(V1, False), (V2, True)]


def test_endpoints_that_share_a_version_share_the_largest_limits() -> None:
    """A version's cluster has the largest limits that any endpoint declares for it."""
    small = endpoint(
        (V1, 1), limits=CircuitLimits(max_requests=5), retry=RetryPolicy(budget_percent=50)
    )
    large = Endpoint(
        name=EndpointName("other"),
        targets=(Target(V1, 1),),
        limits=CircuitLimits(max_requests=7, max_mirror_requests=1),
    )
    (version,) = route([small, large], {}, []).versions
    assert version.limits == CircuitLimits(max_requests=7, max_mirror_requests=64)
    assert version.retry == RetryPolicy(budget_percent=50)


def test_order_of_what_is_heard_does_not_matter() -> None:
    """The same world heard in another order is the same picture."""
    endpoints = [endpoint((V1, 1)), Endpoint(name=EndpointName("a"), targets=(Target(V2, 1),))]
    workers = [worker("a", V1), worker("b", V1, V2)]
    assert route(endpoints, {}, workers) == route(endpoints[::-1], {}, workers[::-1])


def test_served_means_every_target_has_a_worker() -> None:
    """A picture is served once each target is READY somewhere."""
    declared = [endpoint((V1, 1), (V2, 1))]
    assert not route(declared, {}, [worker("a", V1)]).is_served()
    assert route(declared, {}, [worker("a", V1), worker("b", V2)]).is_served()


def test_shares_add_up() -> None:
    """Effective shares add up to one, however odd the weights."""
    topology = route([endpoint((V1, 1e-3), (V2, 1 / 3), (V3, 1e6))], {}, [worker("a", V1, V2)])
    assert math.isclose(sum(t.effective_share for t in topology.endpoints[0].targets), 1)
