"""A model of Envoy as an ADS client, strict about what it may be told when."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from services.router.domain.order import Client, Request, Response
from services.router.domain.snapshot import Kind, Reference, Resource, Snapshot


def world(splits: dict[str, list[str]], hosts: dict[str, int], salt: str = "") -> Snapshot:
    """A snapshot: endpoint → versions, version → number of hosts; `salt` changes every cluster."""
    versions = sorted({v for vs in splits.values() for v in vs})
    served = [v for v in versions if hosts.get(v, 0)]
    names = {e: [v for v in vs if v in served] or vs for e, vs in splits.items()}
    used = sorted({v for vs in names.values() for v in vs})
    unserved = [v for v in used if v not in served]
    resources = [
        Resource.of(Kind.LISTENER, "edge", b"l", [Reference(Kind.ROUTES, "edge")]),
        Resource.of(
            Kind.ROUTES,
            "edge",
            repr((names, unserved)).encode(),
            [Reference(Kind.CLUSTER, v) for v in used],
        ),
    ]
    for version in versions:
        count = hosts.get(version, 0)
        reference = Reference(Kind.ASSIGNMENT, version)
        resources.append(
            Resource.of(Kind.CLUSTER, version, f"{version}{salt}".encode(), [reference])
        )
        resources.append(
            Resource.of(Kind.ASSIGNMENT, version, str(count).encode(), breaks=not count)
        )
    return Snapshot.build(resources)


@dataclass(slots=True)
class EnvoyModel:
    """Holds what it acknowledged; asks for hosts of its clusters and for routes of its listener."""

    client: Client = field(default_factory=Client)
    held: dict[Kind, dict[str, Resource]] = field(
        default_factory=lambda: {kind: {} for kind in Kind}
    )
    inbox: list[Response] = field(default_factory=list)
    refuses: Callable[[Resource], bool] = lambda _: False
    history: list[str] = field(default_factory=list)

    def connect(self) -> None:
        """Begin a stream, with what is held."""
        self.client, self.inbox = Client(), []
        for kind in (Kind.CLUSTER, Kind.LISTENER):
            self.client.hear(Request(kind=kind, held=self._versions(kind)))
        clusters = tuple(self.held[Kind.CLUSTER])
        if clusters:
            self.client.hear(
                Request(
                    kind=Kind.ASSIGNMENT, subscribe=clusters, held=self._versions(Kind.ASSIGNMENT)
                )
            )
        if self.held[Kind.LISTENER]:
            self.client.hear(
                Request(kind=Kind.ROUTES, subscribe=("edge",), held=self._versions(Kind.ROUTES))
            )

    def _versions(self, kind: Kind) -> dict[str, str]:
        return {r.name: r.version for r in self.held[kind].values()}

    def pull(self) -> None:
        """Receive what the client state machine has to say."""
        while (response := self.client.next()) is not None:
            self.inbox.append(response)

    def answer(self, index: int = 0) -> None:
        """Take one of the waiting responses and acknowledge or refuse it."""
        response = self.inbox.pop(index)
        bad = [r for r in response.update.resources if self.refuses(r)]
        if bad:
            self.history.append(f"nack {response.kind.value} {[r.name for r in bad]}")
            self._reply(response, refusal=f"bad: {bad[0].name}")
            return
        self._apply(response)
        self.history.append(f"ack {response.kind.value} {sorted(response.update.versions())}")
        self._reply(response)

    def _reply(self, response: Response, refusal: str | None = None) -> None:
        self.client.hear(Request(kind=response.kind, nonce=response.update.nonce, refusal=refusal))

    def _apply(self, response: Response) -> None:
        kind, update = response.kind, response.update
        known = set(self.held[Kind.CLUSTER])
        for resource in update.resources:
            if kind is not Kind.ASSIGNMENT or resource.name in known:  # others it no longer watches
                self.held[kind][resource.name] = resource
        for name in update.removed:
            self.held[kind].pop(name, None)
        if kind is Kind.CLUSTER:
            new = tuple(r.name for r in update.resources if r.name not in known)
            if new:
                self.client.hear(Request(kind=Kind.ASSIGNMENT, subscribe=new))
            if update.removed:
                self.client.hear(Request(kind=Kind.ASSIGNMENT, unsubscribe=update.removed))
                for name in update.removed:
                    self.held[Kind.ASSIGNMENT].pop(name, None)
        if kind is Kind.LISTENER and not self.held[Kind.ROUTES]:
            self.client.hear(Request(kind=Kind.ROUTES, subscribe=("edge",)))
        self.check()

    def check(self) -> None:
        """Nothing that is routed to may be missing."""
        for routes in self.held[Kind.ROUTES].values():
            for reference in routes.references:
                assert reference.name in self.held[Kind.CLUSTER], (
                    f"routes name {reference.name}, which is not there: {self.history}"
                )
                hosts = self.held[Kind.ASSIGNMENT].get(reference.name)
                unserved = ast.literal_eval(routes.body.decode())[1]
                assert reference.name in unserved or (hosts is not None and not hosts.breaks), (
                    f"routes name {reference.name}, which has no host: {self.history}"
                )

    def settle(self) -> None:
        """Exchange messages until nothing is left to say."""
        for _ in range(10_000):
            self.pull()
            if not self.inbox:
                return
            self.answer()
        raise AssertionError(f"never settles: {self.history[-20:]}")

    def has(self, snapshot: Snapshot) -> bool:
        """Whether all of a snapshot, and no more, is held."""
        return all(self.held[kind] == dict(snapshot.of_kind(kind)) for kind in Kind)
