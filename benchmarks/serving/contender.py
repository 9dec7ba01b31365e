"""Who takes part: a server in one of its settings, and how it is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.serving.dialect import Dialect
from benchmarks.serving.process_tree import Memory, ProcessTree

ROOT = Path(__file__).resolve().parents[2]
_IN_PEER = Path(__file__).parent / "in_peer"
_PROGRAMS = Path(__file__).parent / "peers"


@dataclass(frozen=True, slots=True)
class Running:
    """A started server; `trees` are what is counted, `besides` what is only ended with it."""

    address: str
    trees: list[ProcessTree]
    besides: list[ProcessTree] = field(default_factory=list)
    metrics: str = ""  # host:port where it tells its own, if anywhere

    @property
    def started(self) -> float:
        """When the first command was given (perf_counter)."""
        return self.trees[0].started

    def names(self) -> dict[int, str]:
        """The counted processes."""
        return {pid: name for tree in self.trees for pid, name in tree.names().items()}

    def memory(self) -> Memory:
        """Of the counted processes."""
        each = [tree.memory() for tree in self.trees]
        return Memory(
            sum(m.rss for m in each), sum(m.pss for m in each), sum(m.processes for m in each)
        )

    def exposed(self) -> list[str]:
        """Addresses beyond loopback on which it listens; there should be none."""
        return [address for tree in [*self.trees, *self.besides] for address in tree.exposed()]

    def dead(self) -> str:
        """What a process logged that ended by itself; empty if none did."""
        for tree in [*self.trees, *self.besides]:
            if not tree.is_alive:
                return f"ended with {tree.process.returncode}: {tree.told()}"
        return ""

    def stop(self) -> None:
        """End all."""
        for tree in [*self.trees, *self.besides]:
            tree.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table."""

    name: str  # of the server
    variant: str  # one, best, or what else sets it apart
    what: str  # version and settings, for the table's legend
    dialect: Dialect
    start: Callable[[Path], Running]  # in an empty folder
    before: Callable[[], None] = lambda: None  # what is not timed: installing, pushing
    after: Callable[[Running], dict[str, Any]] = lambda _: {}  # what else is worth noting

    @property
    def title(self) -> str:
        """How the table calls it."""
        return f"{self.name} / {self.variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """What a peer's program is told; `in_peer/bare_models.py` reads it."""

    workers: int = 1
    threads: int = 1
    fronts: int = 1
    window_ms: int = 1
    batch: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)  # variables of the environment

    def variables(self, port: int, models: Path) -> dict[str, str]:
        """The environment of the peer's program."""
        given: dict[str, Any] = {**asdict(self), "port": port, "models": str(models)}
        del given["extra"]
        return {"BENCHMARK_SETTINGS": json.dumps(given), **self.extra}


def program(name: str) -> str:
    """The path of a peer's program."""
    return str(_PROGRAMS / f"{name}.py")


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's, without what would change how servers behave, for a peer's Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("INFERPLANE_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(_IN_PEER), str(ROOT / "generated")]),
        "PYTHONSAFEPATH": "1",  # a program must not find itself where it looks for its package
        **variables,
    }


def own_environment(**variables: str) -> dict[str, str]:
    """For our own processes: the checkout that this command runs from."""
    return clean_environment(
        PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "generated")]),
        **{f"INFERPLANE_{name.upper()}": value for name, value in variables.items()},
    )


def own_python() -> str:
    """The interpreter of this environment."""
    return sys.executable
