"""What the holder of a certificate is, and how the certificate says it."""

from enum import StrEnum


class PeerKind(StrEnum):
    """What a certificate's holder is."""

    EDGE = "edge"
    WORKER = "worker"
    SERVICE = "service"  # registry, discovery, router, metering
    CLIENT = "client"
    STORE = "store"  # Postgres, Consul: what our services call and what calls none of them

    @property
    def uri(self) -> str:
        """As certificates say it."""
        return f"inferplane://{self.value}"

    @property
    def server_name(self) -> str:
        """The name that clients of such a server ask for."""
        return f"{self.value}.{INTERNAL}"


INTERNAL = "inferplane.internal"  # domain of those names
