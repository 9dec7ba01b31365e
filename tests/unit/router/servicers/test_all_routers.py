"""One status of several routers: who is listed, which Envoy is whose, and what counts as in sync."""

from inferplane.router.v1 import router_service_pb2 as pb

from services.router.servicers.all_routers import Answers, merged


def router(
    instance: str, *envoys: str, version: str = "s1", since: int = 0
) -> pb.GetStatusResponse:
    """What one says of itself; its Envoys are in sync with it."""
    answer = pb.GetStatusResponse(snapshot_version=version, registry_connected=True)
    answer.routers.add(address="0.0.0.0:8082", instance=instance)
    for node in envoys:
        answer.envoys.add(node_id=node, in_sync=True).connect_time.seconds = since
    return answer


def seen(own: pb.GetStatusResponse, answers: Answers) -> list[tuple[str, str, bool]]:
    """Envoys, whose they are, and whether they are in sync."""
    return [(e.node_id, e.router, e.in_sync) for e in merged(own, answers).envoys]


def test_a_lone_router_tells_of_itself() -> None:
    """Where there are no others, the one that answers is listed where it listens, with its Envoys."""
    whole = merged(router("a", "edge-1"), {})
    assert [(one.address, one.snapshot_version) for one in whole.routers] == [
        ("0.0.0.0:8082", "s1")
    ]
    assert seen(router("a", "edge-1"), {}) == [("edge-1", "0.0.0.0:8082", True)]


def test_envoys_of_all_routers_with_their_routers() -> None:
    """The one that answers comes first, by the address that led back to it; each router and Envoy is there once."""
    own, other = router("a", "edge-1"), router("b", "edge-2", "edge-3")
    answers = {"10.0.0.2:8082": other, "10.0.0.9:8082": own, "router-2:8082": other}
    whole = merged(own, answers)
    assert [one.address for one in whole.routers] == ["10.0.0.9:8082", "10.0.0.2:8082"]
    assert seen(own, answers) == [
        ("edge-1", "10.0.0.9:8082", True),
        ("edge-2", "10.0.0.2:8082", True),
        ("edge-3", "10.0.0.2:8082", True),
    ]


def test_a_router_that_says_nothing_is_told_as_such() -> None:
    """Its address is there with the reason, and nothing else of it."""
    whole = merged(router("a"), {"10.0.0.2:8082": "no answer within 1 s"})
    (_, silent) = whole.routers
    assert silent == pb.RouterStatus(address="10.0.0.2:8082", problem="no answer within 1 s")


def test_in_sync_is_meant_with_the_snapshot_that_is_shown() -> None:
    """An Envoy that has all of an older snapshot of another router does not have the one of this answer."""
    own = router("a", "edge-1", version="s2")
    answers = {"10.0.0.2:8082": router("b", "edge-2", version="s1")}
    assert seen(own, answers) == [
        ("edge-1", "0.0.0.0:8082", True),
        ("edge-2", "10.0.0.2:8082", False),
    ]


def test_an_envoy_that_has_gone_to_another_router_is_there() -> None:
    """The router that it left may not have noticed yet: the newer stream counts, whichever is told first."""
    old, new = router("a", "edge-1", since=1), router("b", "edge-1", since=2)
    old.envoys[0].in_sync = False
    assert seen(old, {"10.0.0.2:8082": new}) == [("edge-1", "10.0.0.2:8082", True)]
    assert seen(new, {"10.0.0.2:8082": old}) == [("edge-1", "0.0.0.0:8082", True)]


def test_a_router_of_an_older_release_is_one_of_them() -> None:
    """It names no instance, so its address tells it from others."""
    old = router("", "edge-2")
    old.ClearField("routers")
    answers = {"10.0.0.2:8082": old, "10.0.0.3:8082": pb.GetStatusResponse()}
    whole = merged(router("a"), answers)
    assert [one.address for one in whole.routers][1:] == ["10.0.0.2:8082", "10.0.0.3:8082"]
    assert seen(router("a"), answers) == [("edge-2", "10.0.0.2:8082", True)]
