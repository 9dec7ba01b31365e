"""What is asked of the generator, and what it saw; both travel as JSON."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One load."""

    protocol: Literal["grpc", "http"]
    address: str  # host:port or unix:/path
    path: str  # of the method or resource
    bodies: tuple[bytes, ...]  # messages (gRPC: without their prefix), sent in turn
    in_flight: int = 1  # closed loop: calls; open loop: the most that are sent at once
    connections: int = 0  # 0: the protocol's own: gRPC min(in_flight, 8), HTTP in_flight
    seconds: float = 5.0  # timed
    warm_seconds: float = 0.0  # the same load before it, not timed
    calls: int = 0  # closed loop: end after so many instead; 0: by time
    rate: float = 0.0  # open loop: calls per second, Poisson; 0: closed loop
    seed: int = 7  # of the arrivals
    lengths: tuple[int, ...] = ()  # of the right answers' bodies, by request; empty: not compared
    keep: int = 2000  # answers to hand back, spread over the timing
    pids: tuple[int, ...] = ()  # whose CPU time to take
    content_type: str = "application/octet-stream"  # HTTP
    timeout: float = 20.0  # seconds without any answer after which the generator gives up

    def as_json(self) -> str:
        """Bodies as base64."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["bodies"] = [base64.b64encode(body).decode() for body in self.bodies]
        return json.dumps(fields)

    @classmethod
    def of_json(cls, text: str) -> Order:
        """The inverse of `as_json`."""
        fields: dict[str, Any] = json.loads(text)
        fields["bodies"] = [base64.b64decode(body) for body in fields["bodies"]]
        for name, value in fields.items():
            fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it came."""

    number: int  # of its request in `Order.bodies`
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the generator saw while it timed."""

    answers: int  # right by status and length
    seconds: float
    errors: dict[str, int] = field(default_factory=dict)  # text → how many
    p50: float = 0.0  # seconds; open loop: from the time a call was due
    p90: float = 0.0
    p99: float = 0.0
    longest: float = 0.0
    late_p99: float = 0.0  # open loop: how long after its due time a call was sent
    unfinished: int = 0  # calls without an answer when the time was over
    generator_cpu: float = 0.0  # seconds of this process
    server_cpu: dict[str, float] = field(default_factory=dict)  # pid → seconds
    others_cpu: float = 0.0  # seconds that neither this process nor those of `pids` used
    kept: tuple[Kept, ...] = ()

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return self.answers / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> int:
        """Answers that were not right."""
        return sum(self.errors.values())

    def per_call(self, cpu: float) -> float:
        """Microseconds of a CPU time for each right answer."""
        return 1e6 * cpu / max(self.answers, 1)

    def as_json(self) -> str:
        """Kept answers as base64."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "kept"}
        kept = [(k.number, base64.b64encode(k.body).decode()) for k in self.kept]
        return json.dumps({**fields, "kept": kept})

    @classmethod
    def of_json(cls, text: str) -> Result:
        """The inverse of `as_json`."""
        fields: dict[str, Any] = json.loads(text)
        kept = tuple(Kept(number, base64.b64decode(body)) for number, body in fields.pop("kept"))
        return cls(**fields, kept=kept)

    def figures(self) -> dict[str, Any]:
        """All but the kept answers."""
        fields = asdict(self)
        del fields["kept"]
        return fields
