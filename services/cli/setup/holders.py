"""Who in a cluster holds what: a certificate by kind, secrets by name."""

from dataclasses import dataclass

from services.rpc.peer_kind import PeerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One service of the cluster; what it holds lies in a folder of its name."""

    name: str
    kind: PeerKind  # of its certificate
    dns: tuple[str, ...] = ()  # names by which clients that are none of ours reach it
    secrets: tuple[str, ...] = ()  # who has the same name has the same secret


# Passwords of Postgres's roles.
POSTGRES_ADMIN = "postgres-password"
REGISTRY_PASSWORD = "registry-password"  # noqa: S105 - a file's name
METERING_PASSWORD = "metering-password"  # noqa: S105 - a file's name
# Tokens of Consul's ACLs, as UUIDs.
CONSUL_ADMIN = "consul-admin-token"
CONSUL_WORKER = "consul-worker-token"
CONSUL_READER = "consul-reader-token"
CONSUL_TOKENS = frozenset({CONSUL_ADMIN, CONSUL_WORKER, CONSUL_READER})

HOLDERS = (
    Holder(name="registry", kind=PeerKind.SERVICE, secrets=(REGISTRY_PASSWORD, CONSUL_READER)),
    Holder(name="metering", kind=PeerKind.SERVICE, secrets=(METERING_PASSWORD,)),
    Holder(name="router", kind=PeerKind.SERVICE, secrets=(CONSUL_READER,)),
    Holder(name="worker", kind=PeerKind.WORKER, secrets=(CONSUL_WORKER,)),
    Holder(name="edge", kind=PeerKind.EDGE),
    Holder(
        name="postgres",
        kind=PeerKind.STORE,
        dns=("postgres", "localhost"),
        secrets=(POSTGRES_ADMIN, REGISTRY_PASSWORD, METERING_PASSWORD),
    ),
    Holder(
        name="consul",
        kind=PeerKind.STORE,
        dns=("consul", "localhost", "server.dc1.consul"),
        secrets=tuple(sorted(CONSUL_TOKENS)),
    ),
)
