"""The hosts of clusters, for all edges, and for those of a zone."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from services.router.domain.snapshot import Kind, Resource
from services.router.domain.zones import Tiers, tiers
from services.router.resources import tls, wire
from services.rpc import address as addresses

_CACHED = 16384
# Of 100: a tier of which so many in a hundred are well keeps that share of the calls, and the next tier has the rest.
# Envoy's default, 140, would give the three that are left of four workers all the calls of four. Workers are dear and
# run near what they can; what a call to another zone costs is little against a queue.
_OVERPROVISIONING = 100


@lru_cache(_CACHED)
def of_all(name: str, hosts: tuple[str, ...]) -> Resource:
    """One tier, wherever the hosts are."""
    endpoints = [_host(host) for host in hosts]
    message = ClusterLoadAssignment(
        cluster_name=name, endpoints=[{"lb_endpoints": endpoints}] if hosts else []
    )
    return Resource.of(Kind.ASSIGNMENT, name, wire.serialized(message), breaks=not hosts)


def by_zone(name: str, hosts: tuple[str, ...], zones: Mapping[str, str]) -> list[Resource]:
    """What edges of each zone get in place of `of_all`; nothing where they would get the same."""
    there = {host: zones[host] for host in hosts if host in zones}
    known = tuple(sorted(there.items()))
    found = []
    for zone in sorted(set(there.values())):
        tiered = tiers(hosts, there, zone)
        if len(tiered) > 1:
            found.append(_of_zone(name, tiered, known, zone))
    return found


@lru_cache(_CACHED)
def _of_zone(name: str, tiered: Tiers, known: tuple[tuple[str, str], ...], zone: str) -> Resource:
    zones = dict(known)
    groups = []
    for priority, hosts in enumerate(tiered):
        by_place: dict[str, list[str]] = {}
        for host in hosts:
            by_place.setdefault(zones.get(host, ""), []).append(host)
        groups += [
            {
                "locality": {"zone": place},
                "priority": priority,
                "lb_endpoints": [_host(host) for host in by_place[place]],
            }
            for place in sorted(by_place)
        ]
    message = ClusterLoadAssignment(
        cluster_name=name,
        endpoints=groups,
        policy={"overprovisioning_factor": wire.number(_OVERPROVISIONING)},
    )
    return Resource.of(Kind.ASSIGNMENT, name, wire.serialized(message)).within(zone)


@lru_cache(_CACHED)
def _host(address: str) -> dict[str, Any]:
    host: dict[str, Any] = {"endpoint": {"address": wire.socket(address)}}
    if addresses.parse(address).path is None:
        host["metadata"] = tls.MARK
    return host
