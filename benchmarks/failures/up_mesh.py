"""A whole `up` with the load's models on it, and what may be done to its processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
from inferplane.metering.v1 import project_service_pb2, project_service_pb2_grpc
from inferplane.registry.v1 import endpoint_service_pb2, endpoint_service_pb2_grpc
from inferplane.router.v1 import router_service_pb2, router_service_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.failures.accounts import Rows, open_project
from benchmarks.failures.calls import FACTOR, TENSOR_ENDPOINT, TEXT_ENDPOINT
from benchmarks.failures.environment import variable
from benchmarks.kill_matrix.verdict import count_rows, read_audit
from tests.e2e.mesh import ROOT, Mesh, eventually, running
from tests.models import good
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

WORKERS = 2
SECONDS = 120.0  # until something is as it was
_CALL = 5.0  # seconds that a question may take
_AUDIT = ROOT / "benchmarks/kill_matrix/audit"
VERSIONS = tuple(f"models/{name}/versions/1" for name in (TENSOR_ENDPOINT, TEXT_ENDPOINT))


@dataclass(frozen=True, slots=True)
class UpMesh:
    """The mesh, and the key of the load's project."""

    mesh: Mesh
    token: str = field(repr=False)
    accepted: Path  # where workers keep a second count
    kills: Counter[str] = field(default_factory=Counter)  # by program

    @property
    def address(self) -> str:
        return self.mesh.address

    def rows(self) -> Rows:
        """What metering has stored, and what workers have accepted."""
        counted = count_rows(self.mesh.state_dir / "metering/metering.db")
        return Rows(counted, read_audit(self.accepted).accepted, self.kills["worker"])

    def one(self, program: str) -> psutil.Process:
        """A process of a service, or Envoy's."""
        eventually(lambda: bool(self._all(program)), seconds=SECONDS, what=f"{program} runs")
        return self._all(program)[0]

    def _all(self, program: str) -> list[psutil.Process]:
        return self.mesh.processes("envoy" if program == "envoy" else f"services.{program}")

    def kill(self, *programs: str) -> None:
        """`kill -9` of one process of each, and wait until all is as it was."""
        victims = [(program, self.one(program)) for program in programs]
        for program, victim in victims:
            self.kills[program] += 1
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        for program, victim in victims:
            self.back(program, victim.pid)

    def back(self, program: str, gone: int) -> None:
        """Wait until another process is in the place of the one that has gone, and all is well."""
        count = WORKERS if program == "worker" else 1

        def there() -> bool:
            pids = {process.pid for process in self._all(program)}
            return len(pids) == count and gone not in pids

        eventually(there, seconds=SECONDS, what=f"another {program}")
        self.well()
        if program == "worker":  # one that has just died is well for Envoy until it looks again
            eventually(self._all_have_answered, seconds=SECONDS, what="each worker answers calls")

    def well(self) -> None:
        """Wait until the edge sends calls to all workers, and all services answer behind it."""
        eventually(self._is_well, seconds=SECONDS, what="all is well")

    def _is_well(self) -> bool:
        with suppress(OSError, ValueError, grpc.RpcError):  # somebody is away
            return self._have_all_workers() and self._services_answer()
        return False

    def _have_all_workers(self) -> bool:
        return all(self.mesh.well(version) == WORKERS for version in VERSIONS)

    def _all_have_answered(self) -> bool:
        """Whether each worker, as it runs now, has answered calls for each version."""
        with suppress(OSError, ValueError):  # somebody is away
            told = self.mesh.metrics("worker")
            return len(told) == WORKERS and all(_answered(text) >= set(VERSIONS) for text in told)
        return False

    def _services_answer(self) -> bool:
        with self.mesh.channel() as channel:
            endpoints = endpoint_service_pb2_grpc.EndpointServiceStub(channel)
            endpoints.ListEndpoints(endpoint_service_pb2.ListEndpointsRequest(), timeout=_CALL)
            projects = project_service_pb2_grpc.ProjectServiceStub(channel)
            projects.ListProjects(project_service_pb2.ListProjectsRequest(), timeout=_CALL)
            router = router_service_pb2_grpc.RouterServiceStub(channel)
            router.GetStatus(router_service_pb2.GetStatusRequest(), timeout=_CALL)
        return True


def _answered(metrics: str) -> set[str]:
    """Versions for which a worker's metrics tell of answered calls."""
    return {
        sample.labels["version"]
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "inferplane_calls_total"
        and sample.labels["outcome"] == "succeeded"
        and sample.value
    }


@contextmanager
def up(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[UpMesh]:
    """The mesh, with more of an environment; everything well."""
    folder.joinpath("models").mkdir()
    accepted = folder / "accepted.log"
    accepted.touch()
    state = folder / "state"
    with _second_count(accepted), running(state, workers=WORKERS, variables=variables) as mesh:
        deploy(mesh, folder / "models")
        made = UpMesh(mesh, open_project(mesh.cli), accepted)
        made.well()
        yield made


@contextmanager
def _second_count(accepted: Path) -> Iterator[None]:
    """Within, workers that start note what they accept, as for the matrix of kills."""
    paths = (_AUDIT, ROOT, ROOT / "generated")
    given = {
        "KILL_MATRIX_AUDIT": str(accepted),
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
    }
    with ExitStack() as stack:
        for name, value in given.items():
            stack.enter_context(variable(name, value))
        yield


def deploy(mesh: Mesh, folder: Path) -> None:
    """Both models of the load."""
    (folder / "affine.onnx").write_bytes(good.affine(FACTOR))
    write_tiny(folder / "tiny.gguf", Tiny(context=1024))
    for name, file in ((TENSOR_ENDPOINT, "affine.onnx"), (TEXT_ENDPOINT, "tiny.gguf")):
        mesh.cli("models", "push", name, str(folder / file))
        mesh.cli("deploy", f"{name}@1")
