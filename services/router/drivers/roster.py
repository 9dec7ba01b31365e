"""The roster: the Envoys that are connected, and how they take what they are told."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from services.router.domain.order import Client, Verdict
from services.router.domain.snapshot import Kind
from services.router.metrics import ACKS, CONNECTED, NACKS

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Nack:
    """A refusal."""

    time: float  # seconds since the epoch
    kind: Kind
    message: str  # Envoy's text


@dataclass(slots=True, eq=False)
class Envoy:
    """One stream of one Envoy."""

    node_id: str
    connect_time: float  # seconds since the epoch
    zone: str = ""  # where it says that it is
    client: Client = field(default_factory=Client)
    acks: int = 0
    nacks: int = 0
    last_nack: Nack | None = None


class Roster:
    """Who is connected."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._envoys: list[Envoy] = []

    @property
    def envoys(self) -> Iterable[Envoy]:
        """Connected ones, oldest first."""
        return tuple(self._envoys)

    def join(self, envoy: Envoy) -> None:
        """A stream began."""
        self._envoys.append(envoy)
        CONNECTED.set(len(self._envoys))
        _log.info("envoy connected", node=envoy.node_id)

    def leave(self, envoy: Envoy) -> None:
        """A stream ended."""
        self._envoys.remove(envoy)
        CONNECTED.set(len(self._envoys))
        _log.info("envoy disconnected", node=envoy.node_id)

    def note(self, envoy: Envoy, verdict: Verdict) -> None:
        """Count an ACK, or a NACK with its text."""
        if verdict.refusal is None:
            envoy.acks += 1
            ACKS.labels(kind=verdict.kind.value).inc()
            return
        envoy.nacks += 1
        envoy.last_nack = Nack(self._wall_clock(), verdict.kind, verdict.refusal)
        NACKS.labels(kind=verdict.kind.value).inc()
        _log.error(
            "envoy refused an update",
            node=envoy.node_id,
            kind=verdict.kind.value,
            text=verdict.refusal,
        )
