"""Ourselves: the whole mesh through Envoy, a worker's start alone, and the engine with a part of it switched off."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import grpc
from inferplane.generation.v1 import (
    generation_pb2,
    generation_service_pb2,
    generation_service_pb2_grpc,
)
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.llm.contender import Contender
from benchmarks.serving.contender import Running, own_environment, own_python
from benchmarks.serving.inferplane import MeshError
from benchmarks.serving.process_tree import ProcessTree
from services.rpc.tcp_ports import free_port

_LONGEST_COMMAND = 300.0
_LOOK = 0.02  # seconds between looks at another process
_MODEL = "smollm2"
# Without a part of the engine, and the scenarios that show what it is worth.
_ABLATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "batching off": ("max_running_requests: 1", ("A",)),
    "prefix cache off": ("prefix_cache: PREFIX_CACHE_MODE_OFF", ("C",)),
    "chunking off": ("max_step_tokens: 8192", ("A",)),
    "paging off": ("target: GENERATION_TARGET_PORTABLE", ("A",)),
}


@dataclass(slots=True)
class State:
    """A state directory in which the model is registered and placed, its graph made; made when first needed."""

    model: Callable[[], Path]
    settings: str = ""  # of the engine, as YAML
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        assert self._folder is not None, "made by `make`"
        return Path(self._folder.name)

    def make(self) -> None:
        """Push and deploy by the command line, as a user would."""
        if self._folder is not None:
            return
        folder = tempfile.TemporaryDirectory(prefix="ip-l-")
        state, port = Path(folder.name), free_port()
        settings = state / "settings.yaml"
        settings.write_text(f"generation: {{{self.settings}}}\n")
        command = partial(_inferplane, state, f"127.0.0.1:{port}")
        command("up", "--detach", "--auth", "off", "--workers", "1", "--edge-port", str(port))
        try:
            pushed = ("models", "push", f"{_MODEL}@1", str(self.model()), "--no-accuracy")
            command(*pushed, "--settings", str(settings))
            command("deploy", f"{_MODEL}@1")
        finally:
            command("down")
        self._folder = folder


def _inferplane(state: Path, address: str, *words: str) -> None:
    done = subprocess.run(
        [own_python(), "-m", "services.cli", *words],
        env=_environment(state_dir=str(state), address=address),
        cwd=state,
        capture_output=True,
        text=True,
        timeout=_LONGEST_COMMAND,
        check=False,
    )
    if done.returncode:
        raise MeshError(f"`inferplane {' '.join(words)}`: {done.stdout} {done.stderr}")


def _environment(**variables: str) -> dict[str, str]:
    environment = own_environment(**variables)
    del environment["OMP_NUM_THREADS"]
    return environment


def contenders(model: Callable[[], Path], *, ablations: bool) -> Iterator[Contender]:
    """The mesh, then the worker's start, then what was asked for besides."""
    whole = State(model)
    yield _contender("up", "through Envoy, `inferplane up --workers 1`", whole)
    yield Contender(
        name="inferplane",
        variant="worker",
        what="this checkout: one worker, called on its unix socket; only its start is timed",
        start=partial(_start_worker, whole),
        before=whole.make,
        scenarios=("none",),
        first_token=_first_token,
    )
    for variant, (settings, scenarios) in _ABLATIONS.items():
        if ablations:
            state = State(model, settings)
            yield _contender(variant, f"the same with `{settings}`", state, scenarios)


def _contender(variant: str, what: str, state: State, scenarios: tuple[str, ...] = ()) -> Contender:
    return Contender(
        name="inferplane",
        variant=variant,
        what=f"this checkout, {what}",
        start=partial(_start_mesh, state),
        before=state.make,
        counters=partial(_counters, state),
        scenarios=scenarios,
    )


def _start_mesh(state: State, folder: Path) -> Running:
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [own_python(), "-m", "services.cli", "up", "--auth", "off", "--workers", "1"]
    command += ["--edge-port", str(port), "--drain-seconds", "2"]
    environment = _environment(state_dir=str(state.path), address=address)
    return Running(address, [ProcessTree.start(command, environment, folder, "up")])


def _start_worker(state: State, folder: Path) -> Running:
    """A worker that follows a registry, which is there before it."""
    registry = f"unix:{folder}/registry.sock"
    given = {"registry_address": registry, "state_dir": str(state.path), "log_level": "warning"}
    followed = ProcessTree.start(
        [own_python(), "-m", "services.registry"], _environment(**given), folder, "registry"
    )
    _until_listening(folder / "registry.sock", followed)
    address = f"unix:{folder}/worker.sock"
    environment = _environment(
        **given, worker_address=address, metrics_address=f"127.0.0.1:{free_port()}"
    )
    tree = ProcessTree.start([own_python(), "-m", "services.worker"], environment, folder, "worker")
    return Running(address, [tree], [followed])


def _until_listening(path: Path, tree: ProcessTree) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and tree.is_alive:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            return
        time.sleep(_LOOK)  # another process's socket cannot be waited on
    raise MeshError(f"the registry does not listen: {tree.told()}")


def _first_token(running: Running) -> float:
    """Seconds from the command to the first text of a stream, asked for until it comes."""
    request = generation_service_pb2.GenerateStreamRequest(
        model_name=_MODEL,
        prompt=generation_pb2.Prompt(text="The"),
        sampling=generation_pb2.SamplingSettings(max_tokens=1, temperature=0),
    )
    with grpc.insecure_channel(running.address) as channel:
        stub = generation_service_pb2_grpc.GenerationServiceStub(channel)
        while True:
            with suppress(grpc.RpcError):
                for _ in stub.GenerateStream(request, timeout=5, wait_for_ready=True):
                    return time.perf_counter() - running.started
            if told := running.dead():
                raise MeshError(told)
            time.sleep(_LOOK)


def _counters(state: State, _: Running) -> dict[str, float]:
    """The engine's own counters and gauges, by name."""
    targets = json.loads((state.path / "run" / "metrics-targets.json").read_text())
    address = next(t["targets"][0] for t in targets if t["labels"]["service"] == "worker")
    with urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("inferplane_engine_", "vllm:")) and "le" not in sample.labels
    }
