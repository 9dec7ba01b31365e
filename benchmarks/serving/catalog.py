"""The peers: programs, pins, and the settings in which each is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.serving import contender
from benchmarks.serving.contender import Contender, PeerSettings, Running
from benchmarks.serving.dialect import JSON, JSON_ROWS, OIP, RAW, Dialect
from benchmarks.serving.environments import Environments, version
from benchmarks.serving.envoy_proxy import in_front
from benchmarks.serving.process_tree import ProcessTree
from services.rpc.tcp_ports import free_port

UNBATCHED = {"minilm": 1}  # padding in order of arrival costs more than batches gain
ONE = PeerSettings()
BEST = PeerSettings(workers=2, window_ms=0, batch=UNBATCHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One server; `package` is empty for what runs in this environment."""

    name: str
    package: str
    dialect: Dialect
    variants: dict[str, PeerSettings] = field(default_factory=lambda: {"one": ONE, "best": BEST})
    behind_envoy: str = ""  # the variant that is also measured behind an Envoy
    not_quick: str = ""  # the variant that a quick run leaves out


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="naive",
            package="",
            dialect=OIP,
            variants={"one": PeerSettings(), "best": PeerSettings(workers=2)},
        ),
        Peer(name="mosec", package="mosec", dialect=RAW, behind_envoy="one"),
        Peer(name="triton", package="nvidia-pytriton", dialect=OIP, behind_envoy="one"),
        Peer(
            name="litserve",
            package="litserve",
            not_quick="best, two fronts",
            dialect=JSON,
            variants={
                "one": ONE,
                "best": BEST,
                "best, two fronts": PeerSettings(fronts=2, window_ms=0, batch=UNBATCHED),
            },
        ),
        Peer(
            name="mlserver",
            package="mlserver",
            not_quick="best",
            dialect=OIP,
            variants={
                # Its batcher cannot join rows of unlike length, so MiniLM is never batched.
                "one": PeerSettings(batch=UNBATCHED),
                "one, in process": PeerSettings(workers=0, batch={"mlp": 1, **UNBATCHED}),
                "best": PeerSettings(workers=2, batch={"mlp": 1, **UNBATCHED}),
            },
        ),
        Peer(
            name="kserve",
            package="kserve",
            dialect=OIP,
            variants={"one": PeerSettings(), "best": PeerSettings(threads=2)},
        ),
        Peer(name="bentoml", package="bentoml", dialect=JSON_ROWS),
        Peer(
            name="ray",
            package="ray",
            not_quick="one",
            dialect=OIP,
            variants={
                "one": ONE,
                "best": PeerSettings(
                    workers=2,
                    window_ms=0,
                    batch=UNBATCHED,
                    extra={"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
                ),
            },
        ),
    )
}


def contenders(
    peer: Peer, environments: Environments, models: Path, *, quick: bool = False
) -> Iterator[Contender]:
    """A peer in each of its settings, and behind Envoy where that is asked for."""

    def python() -> str:
        return str(environments.python(peer.name)) if peer.package else contender.own_python()

    def install() -> None:
        python()

    for variant, settings in peer.variants.items():
        if quick and variant == peer.not_quick:
            continue

        def start(folder: Path, settings: PeerSettings = settings) -> Running:
            port = free_port()
            variables = settings.variables(port, models)
            environment = contender.clean_environment(TMPDIR=str(folder), **variables)
            command = [python(), contender.program(peer.name)]
            tree = ProcessTree.start(command, environment, folder, peer.name)
            return Running(f"127.0.0.1:{port}", [tree])

        given = Contender(
            name=peer.name,
            variant=variant,
            what=_what(peer, settings),
            dialect=peer.dialect,
            start=start,
            before=install,
        )
        yield given
        if variant == peer.behind_envoy:
            yield in_front(given)


def _what(peer: Peer, settings: PeerSettings) -> str:
    known = f"{peer.package} {version(peer.name, peer.package)}" if peer.package else "grpc.aio"
    return (
        f"{known}, {peer.dialect.name}, workers {settings.workers}, threads {settings.threads},"
        f" window {settings.window_ms} ms, batch {dict(settings.batch) or 32}"
    )
