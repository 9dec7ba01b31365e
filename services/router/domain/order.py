"""The order in which one Envoy is told of a snapshot: make before break, and this is the only place that knows it.

New and changed resources go out as clusters, assignments, filters, listener, routes; what goes away as listener,
filters, routes, clusters, assignments. Three rules hold nothing back for longer than needed:

- Routes wait until the client has acknowledged every cluster that they name, and that cluster's newest hosts. (Envoy
  acknowledges clusters only once they are warm.)
- Whatever takes something away waits until everything that may still count on it is acknowledged in its newest form.
- A changed cluster makes Envoy ask itself again for the cluster's hosts without telling us, so they are sent again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.router.domain.snapshot import Kind, Resource, Snapshot
from services.router.domain.subscription import Difference, Subscription, Update

_MAKE = (
    Kind.SECRET,
    Kind.CLUSTER,
    Kind.ASSIGNMENT,
    Kind.FILTER,
    Kind.LISTENER,
    Kind.ROUTES,
)
_BREAK = (
    Kind.LISTENER,
    Kind.FILTER,
    Kind.ROUTES,
    Kind.CLUSTER,
    Kind.ASSIGNMENT,
    Kind.SECRET,
)
# Kind → the kinds whose resources may count on it.
_COUNTED_ON_BY: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.CLUSTER: (Kind.ROUTES,),
    Kind.ASSIGNMENT: (Kind.ROUTES,),
    Kind.ROUTES: (Kind.LISTENER,),
    Kind.FILTER: (Kind.LISTENER,),
    Kind.LISTENER: (),
    Kind.SECRET: (Kind.CLUSTER, Kind.LISTENER),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client says about one kind of resource."""

    kind: Kind
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    # name → version; on the first request of a kind only.
    held: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""  # of the update that is acknowledged or refused; empty: neither
    refusal: str | None = None  # the client's text


@dataclass(frozen=True, slots=True)
class Response:
    """An update of one kind."""

    kind: Kind
    update: Update


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a client took an update; `refusal` is None for an ACK."""

    kind: Kind
    refusal: str | None


class Client:
    """One Envoy on one stream: hear its requests, offer it snapshots, take what to send next."""

    def __init__(self) -> None:
        self._subscriptions: dict[Kind, Subscription] = {}
        # What it is brought to. None: nothing was offered yet, which is not the same as an empty world.
        self._snapshot: Snapshot | None = None
        self._last_nonce = 0
        # True: it came with resources, so it serves already and must not be told less than what is true.
        self.resumed = False

    def hear(self, request: Request) -> Verdict | None:
        """Take a request; what it says of an earlier update, or None if nothing."""
        subscription = self._subscriptions.get(request.kind)
        if subscription is None:
            subscription = self._subscriptions[request.kind] = Subscription()
            subscription.begin(request.subscribe, request.held)
            self.resumed = self.resumed or bool(request.held)
            return None
        verdict = _settle(subscription, request)
        subscription.unsubscribe(request.unsubscribe)
        subscription.subscribe(request.subscribe)
        return verdict

    def offer(self, snapshot: Snapshot) -> None:
        """From now on, bring the client to this snapshot."""
        self._snapshot = snapshot

    def next(self) -> Response | None:
        """What to send now, noted as sent; None: nothing before the client says more or the snapshot changes."""
        if self._snapshot is None:
            return None
        for kind in _MAKE:
            response = self._send(kind, self._to_make(kind))
            if response is not None:
                return response
        for kind in _BREAK:
            response = self._send(kind, self._to_break(kind))
            if response is not None:
                return response
        return None

    def is_in_sync(self, published: Snapshot) -> bool:
        """Whether the client has acknowledged all that it wants of the published snapshot."""
        offered = self._snapshot is not None and self._snapshot.version == published.version
        return offered and all(map(self._is_settled, self._subscriptions))

    def _send(self, kind: Kind, part: Difference) -> Response | None:
        subscription = self._subscriptions.get(kind)
        if subscription is None or subscription.is_busy():
            return None
        part = subscription.sendable(part)
        if not part:
            return None
        self._last_nonce += 1
        update = Update(str(self._last_nonce), part.missing, part.superfluous)
        subscription.send(update)
        if kind is Kind.CLUSTER:
            self._repeat_hosts_of(part.missing)
        return Response(kind, update)

    def _repeat_hosts_of(self, clusters: Iterable[Resource]) -> None:
        assignments = self._subscriptions.get(Kind.ASSIGNMENT)
        if assignments is None:
            return
        for cluster in clusters:
            for reference in cluster.references:
                if reference.kind is Kind.ASSIGNMENT:
                    assignments.repeat(reference.name)

    def _difference(self, kind: Kind) -> Difference:
        subscription = self._subscriptions.get(kind)
        if subscription is None or self._snapshot is None or kind in self._snapshot.unknown:
            return Difference()
        return subscription.difference(self._snapshot.of_kind(kind))

    def _to_make(self, kind: Kind) -> Difference:
        """New and changed resources whose turn it is; also the answer that a name doesn't exist."""
        subscription = self._subscriptions.get(kind)
        if subscription is None:
            return Difference()
        difference = self._difference(kind)
        made = []
        for resource in difference.missing:
            if self._may_make(subscription, resource):
                made.append(resource)
            elif (known := subscription.to_repeat(resource.name)) is not None:
                made.append(known)
        unknown = tuple(n for n in difference.superfluous if not subscription.holds(n))
        return Difference(tuple(made), unknown)

    def _may_make(self, subscription: Subscription, resource: Resource) -> bool:
        if _takes_away(subscription, resource):
            return False
        if resource.kind is Kind.CLUSTER and subscription.holds(resource.name):
            # A change brings the hosts again, and the last one must not go by this way before routes know.
            return not any(self._is_emptying(r.name) for r in resource.references)
        if resource.kind is Kind.ROUTES:
            return all(self._is_there(r.kind, r.name) for r in resource.references)
        return True

    def _is_emptying(self, cluster: str) -> bool:
        """Whether the client still counts on hosts that the snapshot no longer has."""
        subscription = self._subscriptions.get(Kind.ASSIGNMENT)
        if subscription is None or self._snapshot is None:
            return False
        return _takes_away(subscription, self._snapshot.of_kind(Kind.ASSIGNMENT)[cluster])

    def _is_there(self, kind: Kind, name: str) -> bool:
        """Whether routes may count on this resource: acknowledged, and so are the hosts behind it."""
        subscription = self._subscriptions.get(kind)
        if subscription is None or self._snapshot is None:
            return True  # a client that doesn't ask for this kind gets it elsewhere
        resource = self._snapshot.of_kind(kind)[name]
        if kind is Kind.ASSIGNMENT:
            unasked = name not in subscription.names and not subscription.wildcard
            return (
                unasked
                or subscription.holds_version(name, resource.version)
                or subscription.refused(name, resource.version)
                or (resource.breaks and subscription.holds(name))
            )
        if not subscription.holds(name):
            return False
        return all(self._is_there(r.kind, r.name) for r in resource.references)

    def _to_break(self, kind: Kind) -> Difference:
        """Resources that go away or become empty, once nobody counts on them."""
        difference = self._difference(kind)
        if not difference or not all(self._is_settled(other) for other in _COUNTED_ON_BY[kind]):
            return Difference()
        broken = tuple(r for r in difference.missing if r.breaks)
        # The client forgets the hosts of a cluster that goes by itself, so the cluster goes first.
        if kind is Kind.ASSIGNMENT and not self._is_settled(Kind.CLUSTER):
            return Difference(broken)
        return Difference(broken, difference.superfluous)

    def _is_settled(self, kind: Kind) -> bool:
        subscription = self._subscriptions.get(kind)
        if subscription is None:
            return True
        return not subscription.is_busy() and not self._difference(kind)


def _takes_away(subscription: Subscription, resource: Resource) -> bool:
    """Whether the client has something that this resource would take from it."""
    new = not subscription.has_version(resource.name, resource.version)
    return resource.breaks and new and subscription.holds(resource.name)


def _settle(subscription: Subscription, request: Request) -> Verdict | None:
    if not request.nonce:
        return None
    take = subscription.acknowledge if request.refusal is None else subscription.refuse
    known = take(request.nonce)
    return Verdict(request.kind, request.refusal) if known else None
