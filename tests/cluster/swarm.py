"""A stack of Swarm on this machine's engine, as `deploy/swarm/deploy` makes it, and a load from inside its network."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.steady_calls import BEGUN

ROOT = Path(__file__).resolve().parents[2]
NAME = "inferplane-swarm-test"
ROLLED = ("router", "metering", "registry", "worker", "edge")  # what is replaced without an end
JOBS = ("setup", "consul-setup")
# Services that Compose pulls are built here, as everywhere that no registry of images is in reach.
_FILES = ("--one-machine", "--file", "deploy/compose/stand-ins.yml")
_SECONDS = 600.0
_PAUSE = 1.0  # between looks at what Swarm does; it has nothing to wait on


def docker(*arguments: str, check: bool = True) -> str:
    """What a command of Docker prints."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert not check or done.returncode == 0, f"docker {arguments}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack."""

    folder: Path  # of its secrets

    def deploy(self, tag: str = "local", *more: str) -> None:
        """Bring it to the images of a tag; returns at once."""
        self._run("deploy/swarm/deploy", *_FILES, *more, INFERPLANE_TAG=tag)

    def make_secrets(self) -> None:
        """Before the first deployment."""
        self._run(
            "deploy/swarm/make-secrets",
            str(self.folder),
            INFERPLANE_PYTHON=sys.executable,
            INFERPLANE_CONSUL_KEY="master",  # as the stand-in calls it
        )

    def _run(self, *command: str, **variables: str) -> None:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "INFERPLANE_STACK": NAME, **variables},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def tasks(self, service: str) -> list[Mapping[str, Any]]:
        """Its tasks, the newest first, with those that ended."""
        listed = docker(
            "service", "ps", "--no-trunc", "--format", "{{json .}}", f"{NAME}_{service}"
        )
        return [json.loads(line) for line in listed.splitlines()]

    def containers(self, service: str) -> list[str]:
        """Ids of its containers that run."""
        label = f"label=com.docker.swarm.service.name={NAME}_{service}"
        return docker("ps", "--quiet", "--filter", label).split()

    def image(self, service: str) -> str:
        """What it is to run."""
        asked = "{{.Spec.TaskTemplate.ContainerSpec.Image}}"
        return docker("service", "inspect", "--format", asked, f"{NAME}_{service}").strip()

    def update_state(self, service: str) -> str:
        """What became of its last roll-out: completed, updating, rollback_completed...; empty: there was none."""
        asked = "{{if .UpdateStatus}}{{.UpdateStatus.State}}{{end}}"
        return docker("service", "inspect", "--format", asked, f"{NAME}_{service}").strip()

    def is_whole(self) -> bool:
        """Whether all that is to run does and is well, and all jobs are done."""
        listed = docker("stack", "services", "--format", "{{.Name}} {{.Replicas}}", NAME)
        for line in listed.splitlines():
            name, replicas, *rest = line.split()
            if name.removeprefix(f"{NAME}_") in JOBS:
                if not rest or "1/1 completed" not in " ".join(rest):
                    return False
            elif len(set(replicas.split("/"))) != 1:
                return False
        return True

    def told(self) -> str:
        """Everything about its tasks, for a failure."""
        return docker("stack", "ps", "--no-trunc", NAME, check=False)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Until something holds."""
        deadline = time.monotonic() + _SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"not within {_SECONDS} s: {what}\n{self.told()}"
            time.sleep(_PAUSE)

    def key(self) -> str:
        """The first admin's key."""
        [first, *_] = self.containers("metering")
        return docker("exec", first, "cat", "/var/lib/inferplane/admin.key").strip()

    @contextmanager
    def load(self, rate: float = 20.0) -> Iterator[dict[str, Any]]:
        """Steady calls from a container in its network; what came of them is there at the end."""
        report: dict[str, Any] = {}
        name = f"{NAME}-load"
        docker(
            *("run", "--detach", "--name", name, "--network", f"{NAME}_mesh"),
            *("--env", f"INFERPLANE_API_KEY={self.key()}"),
            *("--volume", f"{ROOT}/tests/cluster/steady_calls.py:/steady_calls.py:ro"),
            *("--entrypoint", "python", "inferplane/cli:local"),
            *("/steady_calls.py", "edge:8080", str(rate)),
        )
        try:
            self.wait(lambda: BEGUN in docker("logs", name), "the load is on")
            yield report
            docker("kill", "--signal", "TERM", name)
            docker("wait", name)
            report.update(json.loads(docker("logs", name).splitlines()[-1]))
        finally:
            docker("rm", "--force", name, check=False)


@contextmanager
def running() -> Iterator[Stack]:
    """A stack on an engine that becomes a Swarm of one machine for it, and is as before afterwards."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        docker(
            *("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1"),
            *("--default-addr-pool", "10.201.0.0/16"),
        )
        undo.callback(_forget)
        node = docker("node", "ls", "--quiet").strip()
        docker("node", "update", "--label-add", "storage=true", "--label-add", "zone=a", node)
        stack = Stack(folder)
        stack.make_secrets()
        stack.deploy()
        yield stack


def _forget() -> None:
    docker("stack", "rm", NAME, check=False)
    ours = ("--quiet", "--filter", f"label=com.docker.stack.namespace={NAME}")
    deadline = time.monotonic() + _SECONDS
    while docker("ps", *ours) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    docker("swarm", "leave", "--force", check=False)
    # Containers of tasks that have ended are Swarm's to remove, which it does late.
    for container in docker("ps", "--all", *ours).split():
        docker("rm", "--force", container, check=False)
    for volume in docker("volume", "ls", "--quiet", "--filter", f"name={NAME}_").split():
        docker("volume", "rm", volume, check=False)
    docker("network", "rm", "docker_gwbridge", check=False)
    for service in ROLLED:
        for tag in ("next", "bad"):
            docker("rmi", f"inferplane/{service}:{tag}", check=False)
