"""One subscription: wildcard and names, ACK and NACK, resumption."""

import pytest

from services.router.domain.snapshot import Kind, Resource
from services.router.domain.subscription import Difference, Subscription, Update


def resource(name: str, content: str = "1") -> Resource:
    return Resource.of(Kind.ASSIGNMENT, name, f"{name}{content}".encode())


def world(**contents: str) -> dict[str, Resource]:
    return {name: resource(name, content) for name, content in contents.items()}


def names(difference: Difference) -> tuple[list[str], list[str]]:
    return [r.name for r in difference.missing], list(difference.superfluous)


def deliver(
    subscription: Subscription, wanted: dict[str, Resource], *, ack: bool = True
) -> Difference:
    part = subscription.sendable(subscription.difference(wanted))
    subscription.send(Update("n", part.missing, part.superfluous))
    assert subscription.acknowledge("n") if ack else subscription.refuse("n")
    return part


def test_no_names_mean_all() -> None:
    """A first request without names asks for every resource, and for the removal of those that go."""
    subscription = Subscription()
    subscription.begin((), {})
    deliver(subscription, world(a="1", b="1"))
    assert names(subscription.difference(world(b="2"))) == (["b"], ["a"])


def test_names_are_answered_also_where_there_is_nothing() -> None:
    """A name that doesn't exist is answered as removed once, and with the resource when it appears."""
    subscription = Subscription()
    subscription.begin(("a", "x"), {})
    assert names(deliver(subscription, world(a="1", b="1"))) == (["a"], ["x"])
    assert not subscription.difference(world(a="1", b="1"))
    assert names(subscription.difference(world(a="1", x="1"))) == (["x"], [])


def test_resumed_client_gets_only_what_differs() -> None:
    """Versions that the client came with are not sent again; what it has too much is removed."""
    held = {"a": resource("a").version, "b": "old", "c": "gone"}
    subscription = Subscription()
    subscription.begin(("*",), held)
    assert names(subscription.difference(world(a="1", b="1"))) == (["b"], ["c"])


def test_asked_again_is_sent_again() -> None:
    """A client that asks again for what it has gets it, also while it is on its way."""
    subscription = Subscription()
    subscription.begin(("a",), {})
    deliver(subscription, world(a="1"))
    subscription.subscribe(("a",))
    assert names(subscription.difference(world(a="1"))) == (["a"], [])
    subscription.send(Update("n", (resource("a"),)))
    subscription.subscribe(("a",))
    subscription.acknowledge("n")
    assert names(subscription.difference(world(a="1"))) == (["a"], [])


def test_unsubscribed_is_forgotten() -> None:
    """What is no longer wanted is neither sent nor removed."""
    subscription = Subscription()
    subscription.begin(("a", "b"), {})
    deliver(subscription, world(a="1", b="1"))
    subscription.unsubscribe(("a",))
    assert not subscription.difference(world(b="1"))


def test_end_of_wildcard_keeps_named() -> None:
    """After the wildcard ends, only what is named is followed."""
    subscription = Subscription()
    subscription.begin(("*", "a"), {})
    deliver(subscription, world(a="1", b="1"))
    subscription.unsubscribe(("*",))
    assert names(subscription.difference(world(a="2"))) == (["a"], [])


def test_refused_alone_is_not_sent_again_until_it_changes() -> None:
    """A resource refused alone waits for other content; it still counts as a difference."""
    subscription = Subscription()
    subscription.begin(("a",), {})
    deliver(subscription, world(a="bad"), ack=False)
    difference = subscription.difference(world(a="bad"))
    assert names(difference) == (["a"], [])
    assert not subscription.sendable(difference)
    assert names(deliver(subscription, world(a="good"))) == (["a"], [])


def test_refused_together_is_tried_one_by_one() -> None:
    """1. a, b, c refused together. 2. Each goes alone. 3. Only the bad one stays behind."""
    subscription = Subscription()
    subscription.begin((), {})
    wanted = world(a="1", b="bad", c="1")
    assert len(deliver(subscription, wanted, ack=False).missing) == 3
    assert names(deliver(subscription, wanted)) == (["a"], [])
    assert names(deliver(subscription, wanted, ack=False)) == (["b"], [])
    assert names(deliver(subscription, wanted)) == (["c"], [])
    assert not subscription.sendable(subscription.difference(wanted))


def test_part_of_a_refused_update_is_not_blamed_alone() -> None:
    """If the rest of a refused update was forgotten meanwhile, what is left is a suspect, not refused."""
    subscription = Subscription()
    subscription.begin(("a", "b"), {})
    wanted = world(a="1", b="1")
    part = subscription.difference(wanted)
    subscription.send(Update("n", part.missing))
    subscription.subscribe(("a",))
    subscription.refuse("n")
    assert not subscription.refused("b", wanted["b"].version)


@pytest.mark.parametrize("nonce", ["", "older"])
def test_stale_answers_change_nothing(nonce: str) -> None:
    """An ACK or NACK of another update than the one on its way is ignored."""
    subscription = Subscription()
    subscription.begin(("a",), {})
    subscription.send(Update("n", (resource("a"),)))
    assert not subscription.acknowledge(nonce)
    assert not subscription.refuse(nonce)
    assert subscription.is_busy()


def test_one_update_at_a_time() -> None:
    """Sending while an update is on its way is a bug of the owner."""
    subscription = Subscription()
    subscription.begin((), {})
    subscription.send(Update("n", (resource("a"),)))
    with pytest.raises(ValueError, match="on its way"):
        subscription.send(Update("m", (resource("a"),)))
