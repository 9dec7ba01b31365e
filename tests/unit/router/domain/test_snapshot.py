"""Snapshots: consistency and versions."""

import pytest

from services.router.domain.snapshot import (
    InconsistentSnapshotError,
    Kind,
    Reference,
    Resource,
    Snapshot,
)


def cluster(name: str, body: bytes = b"c", needs_hosts: bool = True) -> Resource:
    references = [Reference(Kind.ASSIGNMENT, name)] if needs_hosts else []
    return Resource.of(Kind.CLUSTER, name, body, references)


def assignment(name: str) -> Resource:
    return Resource.of(Kind.ASSIGNMENT, name, b"a")


def routes(*names: str) -> Resource:
    return Resource.of(Kind.ROUTES, "r", b"r", [Reference(Kind.CLUSTER, n) for n in names])


def test_consistent_snapshot_is_built() -> None:
    """Every reference that resolves makes a snapshot, and its resources are found by kind and name."""
    snapshot = Snapshot.build([routes("x"), cluster("x"), assignment("x")])
    assert set(snapshot.of_kind(Kind.CLUSTER)) == {"x"}
    assert not snapshot.of_kind(Kind.LISTENER)


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        pytest.param([routes("x")], "routes 'r' names cluster 'x'", id="route-without-cluster"),
        pytest.param([cluster("x")], "names assignment 'x'", id="cluster-without-hosts"),
        pytest.param([assignment("x"), assignment("x")], "'x' is there twice", id="a-name-twice"),
        pytest.param(
            [Resource.of(Kind.LISTENER, "l", b"", [Reference(Kind.ROUTES, "r")])],
            "listener 'l' names routes 'r'",
            id="listener-without-routes",
        ),
    ],
)
def test_inconsistent_snapshot_is_refused(resources: list[Resource], reason: str) -> None:
    """What doesn't add up is refused, saying which resource names what."""
    with pytest.raises(InconsistentSnapshotError, match=reason):
        Snapshot.build(resources)


def test_all_problems_are_named_at_once() -> None:
    """A refusal lists every problem."""
    with pytest.raises(InconsistentSnapshotError, match=r"'x'.*'y'"):
        Snapshot.build([routes("x", "y")])


def test_version_follows_content_alone() -> None:
    """The same resources in any order have one version; any change of content has another."""
    one = Snapshot.build([cluster("x"), assignment("x")])
    same = Snapshot.build([assignment("x"), cluster("x")])
    other = Snapshot.build([assignment("x"), cluster("x", b"changed")])
    assert one.version == same.version != other.version


def test_clients_of_a_zone_see_their_own_resources() -> None:
    """A resource for a zone stands for the one of its name, for clients there and nobody else."""
    base = [
        Resource.of(Kind.ASSIGNMENT, "c", b"all"),
        Resource.of(Kind.ASSIGNMENT, "d", b"all"),
    ]
    plain = Snapshot.build(base)
    zoned = Snapshot.build([*base, Resource.of(Kind.ASSIGNMENT, "c", b"near").within("a")])
    seen = {name: r.body for name, r in zoned.seen_from("a").of_kind(Kind.ASSIGNMENT).items()}
    assert seen == {"c": b"near", "d": b"all"}
    assert zoned.seen_from("b") is zoned.seen_from("") is zoned
    assert zoned.of_kind(Kind.ASSIGNMENT) == plain.of_kind(Kind.ASSIGNMENT)
    # What is published is another thing, since somebody sees another thing.
    assert len({plain.version, zoned.version, zoned.seen_from("a").version}) == 3


def test_a_resource_for_a_zone_stands_for_one_that_is_there() -> None:
    """A zone has no resources of its own: its clients would be told of what nobody has looked at."""
    with pytest.raises(InconsistentSnapshotError, match="'c' for zone 'a' stands for nothing"):
        Snapshot.build([Resource.of(Kind.ASSIGNMENT, "c", b"near").within("a")])
