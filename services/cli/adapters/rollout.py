"""A rollout: placed, ready, then traffic as asked for."""

from dataclasses import dataclass

import grpc
from inferplane.registry.v1 import endpoint_pb2

from services.cli.adapters import traffic
from services.cli.adapters.deployment import Loading, place, wait_until_ready
from services.cli.adapters.edge import Edge
from services.cli.adapters.routed import wait_routed
from services.cli.domain.exit_code import UsageError
from services.cli.domain.split import describe
from services.cli.ports.report import Report
from services.rpc import names
from services.rpc.names import VersionName


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What is asked for."""

    version: VersionName
    endpoint: str
    percent: float | None  # None: everything of a new endpoint, nothing of one that exists
    pool: str
    seconds: float  # longest wait until READY


@dataclass(frozen=True, slots=True)
class RolledOut:
    """What came of it."""

    endpoint: endpoint_pb2.Endpoint
    told: str  # in a line
    hint: str  # what to do next


async def roll_out(edge: Edge, rollout: Rollout, report: Report) -> RolledOut:
    """Place the version, wait until it is READY on a worker, give it traffic."""
    names.check_id("--pool", rollout.pool)
    if rollout.percent is not None and not 0 < rollout.percent <= 100:
        raise UsageError(f"--weight {rollout.percent:g}: allowed: more than 0, at most 100 percent")
    await place(edge, rollout.version, rollout.pool)
    loading = Loading(rollout.version, rollout.pool, report)
    await wait_until_ready(edge, loading, rollout.seconds)
    there, is_new = await _find_or_create(edge, rollout)
    if is_new:
        await wait_routed(edge, there, report)
        told = f"endpoint {rollout.endpoint} created: {split_of(there)}"
    elif rollout.percent is not None:
        there = await traffic.give_share(edge, rollout.endpoint, rollout.version, rollout.percent)
        await wait_routed(edge, there, report)
        told = f"endpoint {rollout.endpoint}: {split_of(there)}"
    else:
        told = f"endpoint {rollout.endpoint} is as it was: {split_of(there)}"
    return RolledOut(there, told, _hint(rollout, there, loading))


async def _find_or_create(edge: Edge, rollout: Rollout) -> tuple[endpoint_pb2.Endpoint, bool]:
    """The endpoint, and whether it was made now: here, or by another rollout of the same that was quicker."""
    there = await traffic.find_endpoint(edge, rollout.endpoint)
    if there is not None:
        return there, False
    try:
        return await traffic.create_endpoint(edge, rollout.endpoint, rollout.version), True
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise
    there = await traffic.get_endpoint(edge, rollout.endpoint)
    return there, [target.target for target in there.targets] == [str(rollout.version)]


def split_of(endpoint: endpoint_pb2.Endpoint) -> str:
    """An endpoint's split in words."""
    return describe([(target.target, target.weight) for target in endpoint.targets])


def _hint(rollout: Rollout, endpoint: endpoint_pb2.Endpoint, loading: Loading) -> str:
    served = any(target.target == str(rollout.version) for target in endpoint.targets)
    if served and loading.writes_text:
        return f"inferplane chat {rollout.endpoint}"
    if served:
        return f"inferplane infer {rollout.endpoint} --json FILE"
    return f"inferplane traffic set {rollout.endpoint} {rollout.version.short}=100"
