"""Manifests of Kubernetes: each object fits its schema, and the objects fit each other and our programs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from services.cli.edge.settings import EdgeSettings
from services.metering.settings import MeteringSettings
from services.registry.settings import RegistrySettings
from services.router.settings import RouterSettings
from services.rpc.settings import PREFIX, Settings
from services.worker.settings import WorkerSettings
from tests import kubernetes_objects as kubernetes
from tests.kubernetes_objects import Object

VERSIONS = ("1.30", "1.37")  # the oldest that has all we use, and the newest that is known
SETTINGS: Mapping[str, type[Settings]] = {
    "edge": EdgeSettings,
    "registry": RegistrySettings,
    "router": RouterSettings,
    "metering": MeteringSettings,
    "worker": WorkerSettings,
}
PORTS = {"edge": 8080, "registry": 8081, "router": 8082, "metering": 8084, "worker": 8085}
METRICS_PORT = 9100
# "Who calls whom" of the design, as connections: discovery is the registry, management calls come from the edge.
CALLS = {
    ("edge", "worker"): "inference",
    ("edge", "router"): "ADS, status",
    ("edge", "registry"): "management calls",
    ("edge", "metering"): "management calls",
    ("router", "registry"): "watch, discovery",
    ("router", "metering"): "policy",
    ("worker", "registry"): "placements, artifacts, discovery",
    ("worker", "metering"): "usage, leases",
    ("router", "router"): "status of all",
    ("registry", "router"): "whether what was loaded is routed",
}


def name_of(one: Object) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


BASE = kubernetes.base()
each_workload = pytest.mark.parametrize("workload", kubernetes.workloads(BASE), ids=name_of)


def check_schemas(found: list[Object], versions: tuple[str, ...] = VERSIONS[-1:]) -> None:
    for one in found:
        for version in versions:
            if one["kind"] not in kubernetes.FOREIGN:
                kubernetes_validate.validate(dict(one), version, strict=True)


def check_fits(found: list[Object]) -> None:
    """Raise unless whatever names something names what is there."""
    pods = kubernetes.workloads(found)
    for service in kubernetes.of_kind(found, "Service"):
        behind = [
            one
            for one in pods
            if kubernetes.selects(
                {"matchLabels": service["spec"]["selector"]}, kubernetes.labels_of(one)
            )
        ]
        assert behind, f"{name_of(service)} has no pods"
        wanted = {port["targetPort"] for port in service["spec"]["ports"]}
        for workload in behind:
            assert wanted <= port_names(workload), f"{name_of(service)} -> {name_of(workload)}"
    for workload in pods:
        own = workload["spec"]["selector"]
        same = [one for one in pods if kubernetes.selects(own, kubernetes.labels_of(one))]
        assert same == [workload], f"{name_of(workload)} selects others' pods too"
        budgets = [
            budget
            for budget in kubernetes.of_kind(found, "PodDisruptionBudget")
            if kubernetes.selects(budget["spec"]["selector"], kubernetes.labels_of(workload))
        ]
        assert len(budgets) == 1, f"{name_of(workload)} has {len(budgets)} disruption budgets"
    targets = {name_of(one) for one in pods}
    for scaler in kubernetes.of_kind(found, "HorizontalPodAutoscaler"):
        reference = scaler["spec"]["scaleTargetRef"]
        assert f"{reference['kind']}/{reference['name']}" in targets
        [scaled] = [one for one in pods if one["metadata"]["name"] == reference["name"]]
        assert "replicas" not in scaled["spec"], "an apply would undo what the autoscaler did"


def port_names(workload: Object) -> set[str]:
    return {port["name"] for port in kubernetes.container_of(workload)["ports"]}


def is_allowed(policies: list[Object], direction: str, ends: tuple[str, str], port: int) -> bool:
    """Whether policies let one end (of two components' pods) speak with the other."""
    key, peer = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    own, other = ends if direction == "Egress" else (ends[1], ends[0])
    for policy in policies:
        if not kubernetes.selects(policy["spec"]["podSelector"], labels(own)):
            continue
        for rule in policy["spec"].get(key, ()):
            peers = rule.get(peer)
            named = {"grpc": PORTS[ends[1]], "http": PORTS["edge"], "metrics": METRICS_PORT}
            ports = {named.get(one["port"], one["port"]) for one in rule.get("ports", ())}
            if port in ports and (peers is None or any(hits(one, other) for one in peers)):
                return True
    return False


def hits(peer: Mapping[str, Any], component: str) -> bool:
    inside = "namespaceSelector" not in peer and "podSelector" in peer
    return inside and kubernetes.selects(peer["podSelector"], labels(component))


def labels(component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "inferplane",
        "app.kubernetes.io/component": component,
    }


@pytest.mark.parametrize(
    "path",
    kubernetes.resource_files(),
    ids=lambda path: str(path.relative_to(kubernetes.FOLDER)),
)
def test_files_fit_the_schemas(path: Path) -> None:
    """Each whole object of each file is one that the API server would take, with no unknown field."""
    check_schemas(kubernetes.objects([path]), VERSIONS)


def test_objects_fit_each_other() -> None:
    """Services have pods and their ports, each workload has its own pods and one disruption budget."""
    check_fits(BASE)


@each_workload
def test_variables_are_settings(workload: Object) -> None:
    """Each variable of a container is a setting of the program in it."""
    kind = SETTINGS[kubernetes.component_of(workload)]
    known = {PREFIX + field.upper() for field in kind.model_fields}
    told = {name for name in kubernetes.variables_of(workload) if name.startswith(PREFIX)}
    assert told <= known


@each_workload
def test_pods_may_nothing(workload: Object) -> None:
    """No root, no capability, no writable root file system, no token of the API server, a bound on memory."""
    pod = workload["spec"]["template"]["spec"]
    container = kubernetes.container_of(workload)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


@each_workload
def test_volumes_fit(workload: Object) -> None:
    """What is mounted exists, and every folder that a variable names lies on a mount."""
    pod, container = workload["spec"]["template"]["spec"], kubernetes.container_of(workload)
    templates = workload["spec"].get("volumeClaimTemplates", ())
    there = {one["name"] for one in pod["volumes"]} | {one["metadata"]["name"] for one in templates}
    assert {mount["name"] for mount in container["volumeMounts"]} == there
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name, value in kubernetes.variables_of(workload).items():
        if isinstance(value, str) and value.startswith("/"):
            assert any(value.startswith(path) for path in paths), name


@each_workload
def test_a_pod_may_drain(workload: Object) -> None:
    """The grace period is longer than lingering and draining together."""
    found = kubernetes.variables_of(workload)
    longest = float(found.get("INFERPLANE_EDGE_LINGER_SECONDS", 0))
    longest += float(found["INFERPLANE_DRAIN_SECONDS"])
    assert workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest


@each_workload
def test_images_are_built(workload: Object) -> None:
    """Each image is a target of the Dockerfile."""
    targets = re.findall(
        r"^FROM .* AS ([\w-]+)$", (kubernetes.ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    owner, name = kubernetes.container_of(workload)["image"].split("/")
    assert owner == "inferplane"
    assert name in targets


@pytest.mark.parametrize("caller", PORTS)
@pytest.mark.parametrize("called", PORTS)
def test_policies_are_the_design(caller: str, called: str) -> None:
    """Both ends of a connection allow it if the design has it, and neither does otherwise; the edge takes all."""
    policies = kubernetes.of_kind(BASE, "NetworkPolicy")
    wanted = (caller, called) in CALLS
    out = is_allowed(policies, "Egress", (caller, called), PORTS[called])
    into = is_allowed(policies, "Ingress", (caller, called), PORTS[called])
    assert out is wanted
    assert into is (wanted or called == "edge")


@pytest.mark.parametrize("component", PORTS)
def test_who_is_not_named_is_refused(component: str) -> None:
    """One policy selects every pod and allows nothing, so what no other allows is refused."""
    [nothing] = [
        one
        for one in kubernetes.of_kind(BASE, "NetworkPolicy")
        if not {"ingress", "egress"} & one["spec"].keys()
    ]
    assert kubernetes.selects(nothing["spec"]["podSelector"], labels(component))
    assert nothing["spec"]["policyTypes"] == ["Ingress", "Egress"]


@each_workload
def test_addresses_are_services(workload: Object) -> None:
    """Each address that a program dials is a Service and its port; each that it listens on is its container's."""
    services = {
        f"{one['metadata']['name']}:{port['port']}"
        for one in kubernetes.of_kind(BASE, "Service")
        for port in one["spec"]["ports"]
    }
    ports = {one["containerPort"] for one in kubernetes.container_of(workload)["ports"]}
    found = kubernetes.variables_of(workload)
    for name in (name for name in found if name.endswith("_ADDRESS")):
        host, _, port = found[name].rpartition(":")
        if (kubernetes.component_of(workload), name) == ("router", "INFERPLANE_EDGE_ADDRESS"):
            assert int(port) == PORTS["edge"]  # of another container
        elif host in {"0.0.0.0", "$(POD_IP)"}:
            assert int(port) in ports
        else:
            assert found[name] in services


def test_the_autoscaler_asks_for_what_there_is() -> None:
    """Its custom metrics are those that the adapter's rules make of metrics that workers have."""
    autoscaler = kubernetes.FOLDER / "components" / "autoscaling" / "autoscaler.yaml"
    [scaler] = kubernetes.objects([autoscaler])
    asked = {one["pods"]["metric"]["name"] for one in scaler["spec"]["metrics"] if "pods" in one}
    rules = yaml.safe_load((kubernetes.FOLDER / "prometheus-adapter" / "rules.yaml").read_text())
    made = {rule["name"]["as"]: rule["seriesQuery"] for rule in rules["rules"]}
    assert asked == made.keys()
    code = "".join(path.read_text() for path in (kubernetes.ROOT / "services/worker").rglob("*.py"))
    for query in made.values():
        [series] = re.findall(r'__name__="([^"]+)"', query)
        assert f'"{series}"' in code


class TestBuilt:
    """What kustomize builds."""

    @pytest.fixture(scope="class")
    @classmethod
    def command(cls) -> list[str]:
        command = kubernetes.kustomize()
        if command is None:
            pytest.skip("no kustomize 5 or newer on this machine: overlays were not built")
        return command

    @pytest.mark.parametrize("overlay", kubernetes.OVERLAYS)
    def test_overlays(self, command: list[str], overlay: str) -> None:
        """Each overlay builds objects that fit their schemas and each other."""
        found = kubernetes.build(command, kubernetes.FOLDER / "overlays" / overlay)
        check_schemas(found)
        check_fits(found)

    def test_zones(self, command: list[str]) -> None:
        """Workers and edges of a zone say the zone where they are placed."""
        found = kubernetes.build(command, kubernetes.FOLDER / "overlays" / "production")
        zones = []
        for workload in kubernetes.workloads(found):
            zone = kubernetes.variables_of(workload).get("INFERPLANE_ZONE")
            if zone:
                affinity = workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
                [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"][
                    "nodeSelectorTerms"
                ]
                assert term["matchExpressions"] == [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
                ]
                zones.append((kubernetes.component_of(workload), zone))
        assert sorted(zones) == [
            (component, zone) for component in ("edge", "worker") for zone in ("zone-a", "zone-b")
        ]

    def test_components(self, command: list[str], tmp_path: Path) -> None:
        """All components, put onto one of each, build objects that fit."""
        relative = relative_path(tmp_path, kubernetes.FOLDER)
        components = [f"{relative}/components/{name}" for name in kubernetes.COMPONENTS]
        (tmp_path / "kustomization.yaml").write_text(
            json.dumps({"resources": [f"{relative}/overlays/dev"], "components": components})
        )
        found = kubernetes.build(command, tmp_path)
        check_schemas(found)
        check_fits(found)


def relative_path(start: Path, end: Path) -> str:
    """How kustomize names a folder: never absolutely."""
    return f"{'../' * (len(start.resolve().parts) - 1)}{end.resolve().relative_to('/')}"
