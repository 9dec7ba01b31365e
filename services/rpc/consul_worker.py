"""A worker as Consul holds it: what routing needs of it, in the metadata of a service."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from google.protobuf.message import DecodeError
from inferplane.discovery.v1 import worker_pb2

from services.rpc import consul_meta
from services.rpc.consul_meta import MetaError

_log = structlog.get_logger(__name__)

DEFAULT_LEASE = 5.0  # seconds
_LEASES = (1.0, 60.0)  # seconds
_TTL_SHARE = 0.6  # of the lease; the rest is the reader's patience
_MAINTENANCE = ("_service_maintenance", "_node_maintenance")  # checks that an operator sets
_SHORT_REASON = 80  # characters
_LONGEST_FIELD = 252  # bytes of pool, zone or release in plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A worker that an agent has in its list."""

    worker: worker_pb2.Worker
    sequence: int  # grows with each change of what is told; a worker may be left behind at an agent
    lease: float  # seconds
    renews: bool  # its own check passes
    node_is_well: bool  # the agent's node is

    @property
    def patience(self) -> float:
        """Seconds that a worker whose check has failed is kept: an agent that stopped fails all of its checks."""
        return self.lease * (1 - _TTL_SHARE)


def ttl_of(lease: float) -> str:
    """Time to live of a check, in Consul's words."""
    return f"{round(lease * _TTL_SHARE * 1000)}ms"


def told(worker: worker_pb2.Worker) -> worker_pb2.Worker:
    """The worker without what changes at every beat: each change would wake all who watch."""
    kept = worker_pb2.Worker()
    kept.CopyFrom(worker)
    kept.ClearField("in_flight")
    for version in kept.versions:
        version.ClearField("counters")
        version.ClearField("engine")
    return kept


def metadata(worker: worker_pb2.Worker, sequence: int, lease: float) -> dict[str, str]:
    """A worker, as `told`, as metadata. What doesn't fit is left out, and `untold` says so."""
    plain = {"sequence": str(sequence), "lease": f"{lease:g}"}
    for name in ("pool", "zone", "release"):
        text = getattr(worker, name).encode()[:_LONGEST_FIELD].decode(errors="ignore")
        if text:
            plain[name] = text
    return plain | _packed(worker)


def _packed(worker: worker_pb2.Worker) -> dict[str, str]:
    whole = consul_meta.pack(worker.SerializeToString())
    if whole is not None:
        return whole
    brief = worker_pb2.Worker()
    brief.CopyFrom(worker)
    brief.untold = "how versions run and long reasons: they don't fit into Consul's metadata"
    for version in brief.versions:
        version.ClearField("execution")
        version.reason = version.reason[:_SHORT_REASON]
    whole = consul_meta.pack(brief.SerializeToString())
    return whole if whole is not None else _first_versions(brief)


def _first_versions(worker: worker_pb2.Worker) -> dict[str, str]:
    """As many versions as fit: those that came last are not told, so nobody is sent to them."""
    fits: dict[str, str] = {}
    least, beyond = 0, len(worker.versions)
    while beyond - least > 1:
        count = (least + beyond) // 2
        some = _with_versions(worker, count)
        packed = consul_meta.pack(some.SerializeToString())
        if packed is None:
            beyond = count
        else:
            fits, least = packed, count
    return fits or consul_meta.pack(_with_versions(worker, 0).SerializeToString()) or {}


def _with_versions(worker: worker_pb2.Worker, count: int) -> worker_pb2.Worker:
    some = worker_pb2.Worker()
    some.CopyFrom(worker)
    del some.versions[count:]
    some.untold = (
        f"{len(worker.versions) - count} of {len(worker.versions)} versions: Consul's metadata holds"
        f" {consul_meta.CAPACITY} bytes; place fewer versions on this worker's pool"
    )
    return some


def untold(meta: Mapping[str, str]) -> str:
    """What metadata leaves out. Raises MetaError if it is not a worker's."""
    return _worker(meta).untold


def read_entries(answer: Any) -> list[Entry]:
    """The workers in an answer of `health/service`; what can't be read is left out, and said."""
    found = []
    for item in answer if isinstance(answer, list) else []:
        try:
            found.append(_entry(item))
        except (MetaError, KeyError, TypeError, AttributeError) as error:
            where = item.get("Service") if isinstance(item, dict) else item
            _log.warning(
                "a service in Consul is no worker", error=str(error), service=str(where)[:200]
            )
    return found


def _entry(item: Mapping[str, Any]) -> Entry:
    meta = item["Service"]["Meta"] or {}
    worker = _worker(meta)
    if not worker.name:
        raise MetaError("the worker has no name")
    statuses = {str(check["CheckID"]): check for check in item["Checks"] or []}
    in_maintenance = any(name.startswith(_MAINTENANCE) for name in statuses)
    worker.draining |= in_maintenance
    bad = [
        check
        for name, check in statuses.items()
        if check["Status"] != "passing" and not name.startswith(_MAINTENANCE)
    ]
    return Entry(
        worker=worker,
        sequence=_number(meta.get("sequence", "")),
        lease=_lease(meta.get("lease", "")),
        renews=not any(check["ServiceID"] for check in bad),
        node_is_well=all(check["ServiceID"] for check in bad),
    )


def _worker(meta: Mapping[str, str]) -> worker_pb2.Worker:
    try:
        return worker_pb2.Worker.FromString(consul_meta.unpack(meta))
    except DecodeError as error:
        raise MetaError(f"not a worker: {error}") from error


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _lease(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return DEFAULT_LEASE
    least, most = _LEASES
    return min(max(seconds, least), most) if math.isfinite(seconds) else DEFAULT_LEASE
