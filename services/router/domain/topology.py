"""The routed picture: which endpoint sends what share of its calls to which version, on which workers, how bounded."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from services.rpc.names import AliasName, EndpointName, TargetName, VersionName


@dataclass(frozen=True, slots=True)
class Target:
    """A declared share of an endpoint's traffic."""

    name: TargetName
    weight: float


@dataclass(frozen=True, slots=True)
class Mirror:
    """A declared copy of an endpoint's traffic."""

    name: TargetName
    percent: float  # of the calls: 0 to 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How calls that a worker could not answer are tried again."""

    num_retries: int = 2
    # Retries in flight, of calls in flight: a lost worker of two has half of the calls, and all of them come at once.
    budget_percent: float = 50.0
    min_retry_concurrency: int = 1024  # retries in flight that are always allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitLimits:
    """Calls in flight per version."""

    max_requests: int = 1024
    max_mirror_requests: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint as declared."""

    name: EndpointName
    targets: tuple[Target, ...]
    sticky_header: str = ""  # empty: none
    mirror: Mirror | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: float = 60.0  # seconds
    limits: CircuitLimits = field(default_factory=CircuitLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A live worker as discovery knows it."""

    name: str
    address: str  # `host:port` or `unix:/path`
    draining: bool = False
    ready: frozenset[VersionName] = frozenset()
    zone: str = ""  # empty: nowhere in particular


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTarget:
    """A target as it is routed now."""

    target: TargetName
    version: VersionName
    declared_share: float  # 0 to 1
    effective_share: float  # 0 to 1
    ready_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedEndpoint:
    """An endpoint as it is routed now."""

    declared: Endpoint
    targets: tuple[
        RoutedTarget, ...
    ]  # in declared order: a growing share never loses a sticky caller
    mirror_version: VersionName | None = None
    stateful: bool = False  # some target keeps state between requests
    writes_text: bool = False  # some target is a language model
    zoned: bool = False  # there are zones, so what failed in one is tried again in another

    @property
    def id(self) -> str:
        """What clients call as `model_name`."""
        return self.declared.name.endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedVersion:
    """A version that traffic may reach. Endpoints that share it share its limits: the largest declared ones."""

    name: VersionName
    addresses: tuple[str, ...]  # of workers on which it is READY
    limits: CircuitLimits
    retry: RetryPolicy  # the budget part counts here
    mirrored: bool = False  # some endpoint mirrors to it
    stateful: bool = False  # requests of one sequence go to one worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The whole picture; each part is sorted by name."""

    endpoints: tuple[RoutedEndpoint, ...] = ()
    versions: tuple[RoutedVersion, ...] = ()
    addresses: tuple[str, ...] = ()  # of all workers that take calls
    zones: tuple[tuple[str, str], ...] = ()  # address and zone of those that have one

    def is_served(self) -> bool:
        """Whether every target of every endpoint has a READY worker."""
        return all(t.ready_workers for e in self.endpoints for t in e.targets)


class UnresolvedTargetError(Exception):
    """An endpoint names an alias that is not there."""


def route(
    endpoints: Iterable[Endpoint],
    aliases: Mapping[AliasName, VersionName],
    workers: Sequence[Worker],
    stateful: AbstractSet[VersionName] = frozenset(),
    language: AbstractSet[VersionName] = frozenset(),
) -> Topology:
    """Work out the picture. Raises UnresolvedTargetError if an endpoint names an alias that is not there.

    Args:
        endpoints: as declared.
        aliases: the version that each names.
        workers: that are alive.
        stateful: versions that keep state between the requests of a sequence.
        language: versions that are language models.
    """
    ready = _ready_addresses(workers)
    zones = tuple(sorted({(w.address, w.zone) for w in workers if w.zone and not w.draining}))
    routed = tuple(
        _route_endpoint(_Place(endpoint, aliases, ready, stateful, language, bool(zones)))
        for endpoint in sorted(endpoints, key=lambda e: e.name)
    )
    return Topology(
        endpoints=routed,
        versions=_versions(routed, ready, stateful),
        addresses=tuple(sorted({w.address for w in workers if not w.draining})),
        zones=zones,
    )


def _ready_addresses(workers: Iterable[Worker]) -> dict[VersionName, tuple[str, ...]]:
    found: dict[VersionName, set[str]] = {}
    for worker in workers:
        if not worker.draining:
            for version in worker.ready:
                found.setdefault(version, set()).add(worker.address)
    return {version: tuple(sorted(addresses)) for version, addresses in found.items()}


def _resolve(
    endpoint: EndpointName, target: TargetName, aliases: Mapping[AliasName, VersionName]
) -> VersionName:
    if isinstance(target, VersionName):
        return target
    version = aliases.get(target)
    if version is None:
        raise UnresolvedTargetError(f"{endpoint} names {target}, which is not there")
    return version


@dataclass(frozen=True, slots=True)
class _Place:
    """An endpoint and what is known of its targets."""

    endpoint: Endpoint
    aliases: Mapping[AliasName, VersionName]
    ready: Mapping[VersionName, Sequence[str]]
    stateful: AbstractSet[VersionName]
    language: AbstractSet[VersionName]
    zoned: bool

    def resolve(self, target: TargetName) -> VersionName:
        """The version that a target means."""
        return _resolve(self.endpoint.name, target, self.aliases)


def _route_endpoint(place: _Place) -> RoutedEndpoint:
    endpoint = place.endpoint
    total = sum(target.weight for target in endpoint.targets)
    targets = []
    for target in endpoint.targets:
        version = place.resolve(target.name)
        share = target.weight / total
        targets.append(
            RoutedTarget(
                target=target.name,
                version=version,
                declared_share=share,
                effective_share=share,
                ready_workers=len(place.ready.get(version, ())),
            )
        )
    mirror = endpoint.mirror
    return RoutedEndpoint(
        declared=endpoint,
        targets=tuple(_shift_to_ready(targets)),
        mirror_version=place.resolve(mirror.name) if mirror else None,
        stateful=any(target.version in place.stateful for target in targets),
        writes_text=any(target.version in place.language for target in targets),
        zoned=place.zoned,
    )


def _shift_to_ready(targets: Sequence[RoutedTarget]) -> Sequence[RoutedTarget]:
    """Targets that are READY nowhere give their share to those that are; if none is, all keep theirs."""
    served = sum(t.declared_share for t in targets if t.ready_workers)
    if not served:
        return targets
    return [
        replace(t, effective_share=t.declared_share / served if t.ready_workers else 0.0)
        for t in targets
    ]


def _versions(
    endpoints: Iterable[RoutedEndpoint],
    ready: Mapping[VersionName, tuple[str, ...]],
    stateful: AbstractSet[VersionName],
) -> tuple[RoutedVersion, ...]:
    found: dict[VersionName, RoutedVersion] = {}
    for endpoint in endpoints:
        declared = endpoint.declared
        for version in {t.version for t in endpoint.targets} | {endpoint.mirror_version}:
            if version is None:
                continue
            new = RoutedVersion(
                name=version,
                addresses=ready.get(version, ()),
                limits=declared.limits,
                retry=declared.retry,
                mirrored=version == endpoint.mirror_version,
                stateful=version in stateful,
            )
            found[version] = _merge(found[version], new) if version in found else new
    return tuple(found[name] for name in sorted(found))


def _merge(one: RoutedVersion, other: RoutedVersion) -> RoutedVersion:
    return replace(
        one,
        limits=CircuitLimits(
            max_requests=max(one.limits.max_requests, other.limits.max_requests),
            max_mirror_requests=max(
                one.limits.max_mirror_requests, other.limits.max_mirror_requests
            ),
        ),
        retry=RetryPolicy(
            num_retries=max(one.retry.num_retries, other.retry.num_retries),
            budget_percent=max(one.retry.budget_percent, other.retry.budget_percent),
            min_retry_concurrency=max(
                one.retry.min_retry_concurrency, other.retry.min_retry_concurrency
            ),
        ),
        mirrored=one.mirrored or other.mirrored,
    )
