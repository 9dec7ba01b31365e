"""Ourselves: a worker alone, and the whole mesh as `inferplane up` runs it."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.serving.contender import Contender, Running, own_environment, own_python
from benchmarks.serving.dialect import OIP
from benchmarks.serving.process_tree import ProcessTree
from services.rpc.tcp_ports import free_port

_LONGEST_COMMAND = 300.0
_MODELS = ("mlp", "minilm")
# How rows of unlike length share a batch; as `models push --settings` takes it.
_MINILM = """
padded_inputs:
  - {name: input_ids, axis: 1}
  - {name: attention_mask, axis: 1, mask: true}
  - {name: token_type_ids, axis: 1}
"""


# The endpoints with all that a policy may say but a mirror, which would double the work.
_POLICIES = """
name: endpoints/{name}
targets: [{{target: models/{name}/versions/1, weight: 100}}]
sticky_header: x-user
timeout: 15s
retry_policy: {{num_retries: 2, budget_percent: 20}}
circuit_limits: {{max_requests: 2048}}
"""


class MeshError(OSError):
    """A command of ours did not do what it should."""


@dataclass(slots=True)
class State:
    """A state directory in which both models are registered and placed; made when first needed."""

    models: Path
    is_tuned: bool = False
    has_policies: bool = False
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        assert self._folder is not None, "made by `make`"
        return Path(self._folder.name)

    def make(self) -> None:
        """Push and deploy by the command line, as a user would."""
        if self._folder is not None:
            return
        folder = tempfile.TemporaryDirectory(prefix="ip-s-")
        state, port = Path(folder.name), free_port()
        settings = {"mlp": state / "mlp.yaml", "minilm": state / "minilm.yaml"}
        settings["mlp"].write_text("{}\n")
        settings["minilm"].write_text(_MINILM)
        inferplane = partial(_inferplane, state, f"127.0.0.1:{port}")
        inferplane("up", "--detach", "--auth", "off", "--workers", "1", "--edge-port", str(port))
        try:
            for name in _MODELS:
                file = str(self.models / f"{name}.onnx")
                inferplane("models", "push", f"{name}@1", file, "--settings", str(settings[name]))
                inferplane("deploy", f"{name}@1")
                if self.has_policies:
                    policies = state / f"{name}-policies.yaml"
                    policies.write_text(_POLICIES.format(name=name))
                    inferplane("endpoints", "apply", "--file", str(policies))
                if self.is_tuned:
                    inferplane("tune", f"{name}@1")
        finally:
            inferplane("down")
        self._folder = folder


def _inferplane(state: Path, address: str, *words: str) -> None:
    command = [own_python(), "-m", "services.cli", *words]
    done = subprocess.run(
        command,
        env=own_environment(state_dir=str(state), address=address),
        cwd=state,
        capture_output=True,
        text=True,
        timeout=_LONGEST_COMMAND,
        check=False,
    )
    if done.returncode:
        raise MeshError(f"`inferplane {' '.join(words)}`: {done.stdout} {done.stderr}")


def contenders(models: Path, *, quick: bool) -> Iterator[Contender]:
    """A worker alone by both fronts, then behind Envoy."""
    plain, tuned, ruled = (
        State(models),
        State(models, is_tuned=True),
        State(models, has_policies=True),
    )
    for variant, state, front, what in (
        ("worker", plain, "auto", "unix socket"),
        ("worker, tuned", tuned, "auto", "unix socket, after `inferplane tune`"),
        ("worker, grpcio", plain, "grpcio", "TCP, grpcio instead of the front"),
    ):
        if not (quick and state.is_tuned):
            start = partial(_start_worker, state, front)
            yield _contender(variant, f"{what}, one process", start, state, _padding)
    for variant, state, workers, what in (
        ("up, 1", plain, 1, ""),
        ("up, 1, policies", ruled, 1, ", endpoints with retries, limits, a sticky header"),
        ("up, 2", plain, 2, ""),
    ):
        if not (quick and state.has_policies):
            start = partial(_start_mesh, state, workers)
            said = f"through Envoy, `inferplane up --workers {workers}`{what}"
            yield _contender(variant, said, start, state)


def _contender(
    variant: str,
    what: str,
    start: Callable[[Path], Running],
    state: State,
    after: Callable[[Running], dict[str, Any]] = lambda _: {},
) -> Contender:
    return Contender(
        name="inferplane",
        variant=variant,
        what=f"this checkout, OIP gRPC, {what}",
        dialect=OIP,
        start=start,
        before=state.make,
        after=after,
    )


def _start_worker(state: State, front: str, folder: Path) -> Running:
    """A worker that follows a registry; the registry is not counted."""
    registry = f"unix:{folder}/registry.sock"
    given = {"registry_address": registry, "state_dir": str(state.path), "log_level": "warning"}
    python = own_python()
    followed = ProcessTree.start(
        [python, "-m", "services.registry"], own_environment(**given), folder, "registry"
    )
    _until_listening(folder / "registry.sock", followed)
    port = free_port()
    address = f"unix:{folder}/worker.sock" if front == "auto" else f"127.0.0.1:{port}"
    environment = own_environment(
        **given, worker_address=address, front=front, metrics_address=_metrics_address(port)
    )
    tree = ProcessTree.start([python, "-m", "services.worker"], environment, folder, "worker")
    return Running(address, [tree], [followed], metrics=_metrics_address(port))


def _metrics_address(port: int) -> str:
    """Another loopback address has the same port free."""
    return f"127.0.0.2:{port}"


def _until_listening(path: Path, tree: ProcessTree) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and tree.is_alive:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            return
        time.sleep(0.02)  # another process's socket cannot be waited on
    raise MeshError(f"the registry does not listen: {tree.told()}")


def _start_mesh(state: State, workers: int, folder: Path) -> Running:
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [own_python(), "-m", "services.cli", "up", "--auth", "off", "--workers", str(workers)]
    command += ["--edge-port", str(port), "--drain-seconds", "2"]
    environment = own_environment(state_dir=str(state.path), address=address)
    return Running(address, [ProcessTree.start(command, environment, folder, "up")])


def _padding(running: Running) -> dict[str, Any]:
    """The share of a batch's elements that were padding, from the worker's own counters."""
    with urlopen(f"http://{running.metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    totals: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in {"inferplane_cells_total", "inferplane_padded_cells_total"}:
                totals.setdefault(sample.labels["version"], {})[sample.name] = sample.value
    return {
        f"padding of {version}": counted["inferplane_padded_cells_total"]
        / max(counted["inferplane_cells_total"], 1.0)
        for version, counted in totals.items()
    }
