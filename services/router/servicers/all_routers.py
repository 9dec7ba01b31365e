"""One status of all routers: each Envoy once, with the router that it has its stream with."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from inferplane.router.v1 import router_service_pb2 as pb

# By the address at which a router was asked: what it says of itself, or why it says nothing.
Answers: TypeAlias = Mapping[str, pb.GetStatusResponse | str]


def merged(own: pb.GetStatusResponse, answers: Answers) -> pb.GetStatusResponse:
    """What the router that answers says of itself, and the others beside it."""
    first = _router(own.routers[0].address, own)
    told = {first.instance: (first, own)}
    silent = []
    for address, answer in answers.items():
        if isinstance(answer, str):
            silent.append(pb.RouterStatus(address=address, problem=answer))
            continue
        router = _router(address, answer)
        if router.instance == first.instance:
            first.address = address
        else:  # known by two addresses it is still one
            told.setdefault(router.instance or address, (router, answer))
    _, *others = (router for router, _ in told.values())
    whole = pb.GetStatusResponse()
    whole.CopyFrom(own)
    whole.ClearField("routers")
    whole.ClearField("envoys")
    whole.routers.append(first)
    whole.routers.extend(sorted([*others, *silent], key=lambda router: router.address))
    found = [
        envoy
        for router, answer in told.values()
        for envoy in _envoys(router, answer, own.snapshot_version)
    ]
    whole.envoys.extend(_each_once(found))
    return whole


def _router(address: str, answer: pb.GetStatusResponse) -> pb.RouterStatus:
    return pb.RouterStatus(
        address=address,
        instance=answer.routers[0].instance if answer.routers else "",
        snapshot_version=answer.snapshot_version,
        refused_snapshot=answer.refused_snapshot,
        registry_connected=answer.registry_connected,
        discovery_connected=answer.discovery_connected,
        policy_known=answer.policy_known,
    )


def _envoys(
    router: pb.RouterStatus, answer: pb.GetStatusResponse, version: str
) -> Iterator[pb.EnvoyStatus]:
    for envoy in answer.envoys:
        found = pb.EnvoyStatus()
        found.CopyFrom(envoy)
        found.router = router.address
        found.in_sync = envoy.in_sync and answer.snapshot_version == version
        yield found


def _each_once(found: list[pb.EnvoyStatus]) -> list[pb.EnvoyStatus]:
    """Of an Envoy that has gone to another router, which the one before has not noticed, what the newer one says."""
    newest: dict[str, pb.EnvoyStatus] = {}
    for envoy in found:
        known = newest.setdefault(envoy.node_id, envoy)
        if envoy.connect_time.ToNanoseconds() > known.connect_time.ToNanoseconds():
            newest[envoy.node_id] = envoy
    return [envoy for envoy in found if envoy.router == newest[envoy.node_id].router]
