"""Which workers an edge calls first: those of its own zone, and as many others as make its share fair."""

import hashlib
from collections.abc import Mapping, Sequence

Tiers = tuple[tuple[str, ...], ...]  # addresses: each tier is for when those before it are not well


def tiers(hosts: Sequence[str], zones: Mapping[str, str], own: str) -> Tiers:
    """The hosts as an edge in the zone `own` is to call them; one tier where a zone makes no difference.

    Edges are taken to be alike in all zones that have hosts. So a zone with fewer hosts than the others would have
    more calls for each: its edges then call hosts of other zones beside their own from the first, until they have as
    many as there are for each zone. What is left stands by.

    Args:
        hosts: of one version.
        zones: of the hosts that have one.
        own: the edge's.
    """
    near = tuple(host for host in hosts if zones.get(host) == own)
    far = [host for host in hosts if zones.get(host) != own]
    if not near or not far:
        return (tuple(hosts),)
    count = len({zones[host] for host in hosts if host in zones})
    fair = -(-len(hosts) // count)
    # Each zone borrows others, and the same ones as long as it can.
    far.sort(key=lambda host: _rank(own, host))
    borrowed = max(fair - len(near), 0)
    first = tuple(sorted((*near, *far[:borrowed])))
    rest = tuple(sorted(far[borrowed:]))
    return (first, rest) if rest else (first,)


def _rank(zone: str, host: str) -> bytes:
    return hashlib.sha256(f"{zone}\0{host}".encode()).digest()
