"""Make before break: any interleaving ends with the client holding the snapshot, and never with a dangling route."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.domain.order import Client, Request
from services.router.domain.snapshot import Kind, Snapshot
from tests.unit.router.domain.envoy_model import EnvoyModel, world


def connected(snapshot: Snapshot) -> EnvoyModel:
    envoy = EnvoyModel()
    envoy.connect()
    envoy.client.offer(snapshot)
    envoy.settle()
    return envoy


def offer(envoy: EnvoyModel, snapshot: Snapshot) -> list[str]:
    envoy.history.clear()
    envoy.client.offer(snapshot)
    envoy.settle()
    return envoy.history


def test_fresh_client_gets_everything_in_order() -> None:
    """Clusters come first, their hosts next, then the listener, then routes."""
    snapshot = world({"e": ["v1"]}, {"v1": 1})
    envoy = connected(snapshot)
    assert [entry.split()[1] for entry in envoy.history] == [
        "cluster",
        "listener",
        "assignment",
        "routes",
    ]
    assert envoy.client.is_in_sync(snapshot)


def test_new_version_is_there_before_it_is_routed_to() -> None:
    """A version deployed beside another is announced with its hosts before routes name it."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 1}))
    after = world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1})
    assert offer(envoy, after) == [
        "ack cluster ['v2']",
        "ack assignment ['v2']",
        "ack routes ['edge']",
    ]
    assert envoy.has(after)


def test_removed_version_leaves_the_routes_first() -> None:
    """A cluster goes only after the routes that stop naming it are acknowledged."""
    envoy = connected(world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1}))
    after = world({"e": ["v1"]}, {"v1": 1})
    history = offer(envoy, after)
    assert history == ["ack routes ['edge']", "ack cluster ['v2']"]
    assert envoy.has(after)


def test_last_host_leaves_after_the_routes() -> None:
    """When a version's last worker drains, its share moves before its cluster becomes empty."""
    envoy = connected(world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1}))
    history = offer(envoy, world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 0}))
    assert history == ["ack routes ['edge']", "ack assignment ['v2']"]


def test_first_host_comes_before_the_routes() -> None:
    """When a version's first worker is ready, its host is known before it gets a share."""
    envoy = connected(world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 0}))
    history = offer(envoy, world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1}))
    assert history == ["ack assignment ['v2']", "ack routes ['edge']"]


def test_one_host_of_several_leaves_at_once() -> None:
    """A host that leaves others behind waits for nothing."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 2}))
    assert offer(envoy, world({"e": ["v1"]}, {"v1": 1})) == ["ack assignment ['v1']"]


def test_changed_cluster_brings_its_hosts_again() -> None:
    """Envoy builds a changed cluster anew and needs its hosts, though they have not changed."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 1}))
    history = offer(envoy, world({"e": ["v1"]}, {"v1": 1}, salt="changed"))
    assert history == ["ack cluster ['v1']", "ack assignment ['v1']"]


def test_changed_cluster_does_not_take_the_last_host_along() -> None:
    """A cluster that changes as its last host goes waits until its share has moved."""
    envoy = connected(world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1}))
    history = offer(envoy, world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 0}, salt="changed"))
    assert history[:3] == ["ack cluster ['v1']", "ack assignment ['v1']", "ack routes ['edge']"]
    assert "ack assignment ['v2']" in history[3:]
    assert "ack cluster ['v2']" in history[3:]


def test_routes_wait_until_clusters_are_acknowledged() -> None:
    """1. A new cluster is on its way. 2. Routes are held. 3. Its ACK, then that of its hosts, releases them."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 1}))
    envoy.client.offer(world({"e": ["v2"]}, {"v2": 1}))
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.CLUSTER]
    envoy.answer()
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.ASSIGNMENT]
    envoy.answer()
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.ROUTES]


def test_refused_cluster_keeps_the_routes_back() -> None:
    """While a new cluster is refused, the last good routes stay, and nothing is sent in a loop."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 1}))
    before = envoy.held[Kind.ROUTES]["edge"]
    envoy.refuses = lambda resource: resource.kind is Kind.CLUSTER and resource.name == "v2"
    bad = world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1})
    history = offer(envoy, bad)
    assert history == ["nack cluster ['v2']"]
    assert envoy.held[Kind.ROUTES]["edge"] == before
    assert not envoy.client.is_in_sync(bad)
    good = world({"e": ["v1", "v3"]}, {"v1": 1, "v3": 1})
    offer(envoy, good)
    assert envoy.has(good)
    assert envoy.client.is_in_sync(good)
    assert not envoy.client.is_in_sync(bad)


def test_refused_routes_keep_what_they_would_have_freed() -> None:
    """If new routes are refused, the clusters that the old ones name stay."""
    envoy = connected(world({"e": ["v1"]}, {"v1": 1}))
    envoy.refuses = lambda resource: resource.kind is Kind.ROUTES
    offer(envoy, world({"e": ["v2"]}, {"v2": 1}))
    assert set(envoy.held[Kind.CLUSTER]) == {"v1", "v2"}


def test_resumed_client_of_a_new_router_gets_nothing_that_it_has() -> None:
    """A client that reconnects with everything is told nothing."""
    snapshot = world({"e": ["v1"]}, {"v1": 1})
    envoy = connected(snapshot)
    envoy.history.clear()
    envoy.connect()
    assert envoy.client.resumed
    envoy.client.offer(snapshot)
    envoy.settle()
    assert envoy.history == []
    assert envoy.client.is_in_sync(snapshot)


def test_nothing_offered_means_nothing_said() -> None:
    """Before the router knows the world, a client that serves already is not told that it is empty."""
    snapshot = world({"e": ["v1"]}, {"v1": 1})
    envoy = connected(snapshot)
    envoy.connect()
    assert envoy.client.next() is None
    assert not envoy.client.is_in_sync(snapshot)


def test_fresh_client_is_not_resumed() -> None:
    """A client that comes with nothing may be told at once."""
    envoy = EnvoyModel()
    envoy.connect()
    assert not envoy.client.resumed


def test_client_of_routes_alone_is_served() -> None:
    """A client that asks for one kind only gets it without the others."""
    client = Client()
    client.hear(Request(kind=Kind.ROUTES, subscribe=("edge",)))
    client.offer(world({"e": ["v1"]}, {"v1": 1}))
    response = client.next()
    assert response is not None
    assert [r.name for r in response.update.resources] == ["edge"]


def test_hosts_that_are_being_taken_away_are_not_counted_on() -> None:
    """1. v2's last host is being taken away. 2. It comes back meanwhile. 3. Routes wait for its return."""
    served = world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1})
    envoy = connected(served)
    envoy.client.offer(world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 0}))
    envoy.pull()
    envoy.answer()
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.ASSIGNMENT]
    envoy.client.offer(served)
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.ASSIGNMENT]
    envoy.settle()
    assert envoy.has(served)


def test_cluster_that_is_being_removed_is_not_counted_on() -> None:
    """1. v2's cluster is being removed. 2. It is wanted again meanwhile. 3. Routes wait for its return."""
    both = world({"e": ["v1", "v2"]}, {"v1": 1, "v2": 1})
    envoy = connected(both)
    envoy.client.offer(world({"e": ["v1"]}, {"v1": 1}))
    envoy.pull()
    envoy.answer()
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.CLUSTER]
    envoy.client.offer(both)
    envoy.pull()
    assert [r.kind for r in envoy.inbox] == [Kind.CLUSTER]
    envoy.settle()
    assert envoy.has(both)


VERSIONS = st.sampled_from(["v1", "v2", "v3", "v4"])
WORLDS = st.one_of(
    st.builds(  # few versions, so that the same one comes and goes
        world,
        st.fixed_dictionaries({"e": st.sampled_from([["v1"], ["v2"], ["v1", "v2"]])}),
        st.fixed_dictionaries({"v1": st.integers(0, 1), "v2": st.integers(0, 1)}),
    ),
    st.builds(
        world,
        st.dictionaries(
            st.sampled_from(["a", "b"]), st.lists(VERSIONS, min_size=1, max_size=3, unique=True)
        ),
        st.dictionaries(VERSIONS, st.integers(0, 2)),
        st.sampled_from(["", "x"]),
    ),
)
# What happens next: a new snapshot, an answer to the nth waiting response, a reconnect.
STEPS = st.lists(
    st.one_of(WORLDS, st.just(0), st.just(0), st.integers(1, 3), st.just("reconnect")), max_size=60
)


def play(envoy: EnvoyModel, steps: list[Snapshot | int | str]) -> Snapshot | None:
    last = None
    for step in steps:
        if isinstance(step, Snapshot):
            envoy.client.offer(step)
            last = step
        elif step == "reconnect":
            envoy.connect()
            if last is not None:
                envoy.client.offer(last)
        elif isinstance(step, int) and step < len(envoy.inbox):
            envoy.answer(step)
        envoy.pull()
    return last


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_interleaving_ends_in_the_snapshot(steps: list[Snapshot | int | str]) -> None:
    """Whatever is published and answered in whatever order, the client ends with the snapshot, never dangling."""
    envoy = EnvoyModel()
    envoy.connect()
    last = play(envoy, steps)
    envoy.settle()
    if last is not None:
        assert envoy.has(last), envoy.history
        assert envoy.client.is_in_sync(last)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sets(VERSIONS, max_size=2))
def test_refusals_keep_the_rest_going(steps: list[Snapshot | int | str], bad: set[str]) -> None:
    """With clusters that are always refused, routes never dangle, all good clusters arrive, and it ends."""
    envoy = EnvoyModel(refuses=lambda r: r.kind is Kind.CLUSTER and r.name in bad)
    envoy.connect()
    last = play(envoy, steps)
    envoy.settle()
    if last is not None:
        good = set(last.of_kind(Kind.CLUSTER)) - bad
        assert good <= set(envoy.held[Kind.CLUSTER])
        healed = world({"a": ["w1"]}, {"w1": 1})
        envoy.client.offer(healed)
        envoy.settle()
        assert envoy.has(healed)
