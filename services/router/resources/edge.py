"""What the operator decides about the edge, and the names that its resources call each other by."""

from dataclasses import dataclass
from enum import StrEnum

from services.router.domain.policy import OTHERS, SHARDS
from services.rpc import address as addresses
from services.rpc.names import VersionName

LISTENER = "edge"
ROUTES = "edge"
# Clusters beside those of versions, which are called as the version is.
ANY_WORKER = "workers"
REGISTRY = "management/registry"
DISCOVERY = "management/discovery"
ROUTER = "management/router"
METERING = "management/metering"

# The filters that change with the policy, while the listener stays.
KEYS_FILTER = "policy/keys"
# Not a name that had all revoked keys in it: a listener of an older release, as it drains, would take this for that.
REVOCATIONS_FILTER = "policy/revocations/others"  # and one for each shard of keys
LIMITS_FILTER = "policy/limits"
ENDPOINTS_FILTER = "inferplane.endpoints"  # per route

# What workers may believe of a caller.
PROJECT_HEADER = "x-inferplane-project"
KEY_HEADER = "x-inferplane-key"
ROLE_HEADER = "x-inferplane-role"
SHADOW_HEADER = "x-inferplane-shadow"
# On the way to the registry: endpoints of the caller, as JSON.
ENDPOINTS_HEADER = "x-inferplane-endpoints"

VERSION_HEADER = "x-inferplane-version"
ENDPOINT_HEADER = "x-inferplane-endpoint"
_OPENAI_BODY_BYTES = 4 * 1024 * 1024
# Clients name a sequence in it, so that all its calls reach one worker.
SEQUENCE_HEADER = "x-sequence-id"
# Filter state of a call: what was asked for, and both parts in one key as the route map has them.
ENDPOINT_STATE = "inferplane.endpoint"
VERSION_STATE = "inferplane.version"
ROUTE_STATE = "inferplane.route"
# Dynamic metadata of calls in OpenAI's words: the `model` of the body, or why there is none.
OPENAI_METADATA = "inferplane.openai"
OPENAI_MODEL = "model"
OPENAI_PROBLEM = "problem"
# With an error of the worker: its body in OpenAI's words, percent-encoded.
ERROR_HEADER = "x-inferplane-error"


class ClientCertificate(StrEnum):
    """Whether clients show a certificate. It gives no rights; they need a key all the same."""

    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Settings of the edge; all but the addresses end up in the listener and so should not change while it serves."""

    address: str  # where clients connect
    registry_address: str  # as Envoy reaches it; likewise the next two
    discovery_address: str
    router_address: str
    max_message_bytes: int
    metering_address: str = "127.0.0.1:8084"
    asks_for_keys: bool = False  # nobody is let in without one
    # A request that stops arriving is given up after so many seconds; once it is there, its endpoint's timeout counts.
    stall_seconds: float = 30.0
    # Envoy finds our module (`endpoint_module.NAME`), which reads endpoints faster.
    has_module: bool = False
    access_log: str = ""  # file that Envoy appends JSON lines to; empty: none
    # Files on Envoy's machine. What clients see (empty: plain), and by whom their own certificates must be.
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_certificate: ClientCertificate = ClientCertificate.OFF
    tls_dir: str = (
        ""  # likewise; what workers and services see, and whom it trusts there; empty: plain
    )

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may or must show one."""
        return bool(self.certificate) and self.client_certificate is not ClientCertificate.OFF


def of_several(settings: Edge) -> frozenset[str]:
    """The management clusters of several peers, or of a name, which may be several."""
    told = {
        REGISTRY: settings.registry_address,
        DISCOVERY: settings.discovery_address,
        ROUTER: settings.router_address,
        METERING: settings.metering_address,
    }
    return frozenset(name for name, text in told.items() if addresses.are_several(text))


def openai_body_bytes(max_message_bytes: int) -> int:
    """Largest body in OpenAI's words: Envoy reads all of it for one field, lists at some megabytes a second."""
    return min(max_message_bytes, _OPENAI_BODY_BYTES)


def revocations_filter(shard: str) -> str:
    """The filter of the revoked keys of a shard; that of the others has whatever else refuses good tokens."""
    return REVOCATIONS_FILTER if shard == OTHERS else f"policy/revocations/{shard}"


def policy_filters() -> tuple[str, ...]:
    """All that change with the policy."""
    revocations = (revocations_filter(shard) for shard in (*SHARDS, OTHERS))
    return (KEYS_FILTER, *revocations, LIMITS_FILTER)


def version_cluster(version: VersionName) -> str:
    """The cluster that serves a version."""
    return str(version)


def mirror_cluster(version: VersionName) -> str:
    """The cluster of a version's mirrored calls: same hosts, limits of its own."""
    return f"{version}#mirror"


def route_key(endpoint: str, version: str = "") -> str:
    """Key of the route map; ids contain no `@`."""
    return f"{endpoint}@{version}"


def openai_key(endpoint: str, version: str = "") -> str:
    """The same for calls in OpenAI's words, whose `model` is taken for an endpoint as it stands."""
    return route_key(f"{endpoint}@{version}" if version else endpoint)
