"""The objects of deploy/kubernetes: as they lie in files, and as kustomize builds them where it is installed."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = tuple(sorted(path.name for path in (FOLDER / "overlays").iterdir()))
COMPONENTS = tuple(sorted(path.name for path in (FOLDER / "components").iterdir()))
# Kinds that come with other people's software; no schema of theirs is at hand.
FOREIGN = {"PodMonitor", "Certificate", "Issuer"}
_OLDEST_KUSTOMIZE = 5

Object = Mapping[str, Any]


def resource_files() -> list[Path]:
    """Files with whole objects: what kustomizations name as resources."""
    found = set()
    for kustomization in FOLDER.rglob("kustomization.yaml"):
        for name in yaml.safe_load(kustomization.read_text()).get("resources", ()):
            path = (kustomization.parent / name).resolve()
            assert path.exists(), f"{kustomization} names {name}, which is not there"
            if path.is_file():
                found.add(path)
    return sorted(found)


def objects(paths: Iterable[Path]) -> list[Object]:
    """The objects of files."""
    return [one for path in paths for one in yaml.safe_load_all(path.read_text()) if one]


def base() -> list[Object]:
    """One of each, as the files have them: what the overlay for one machine builds."""
    return objects(FOLDER / name for name in _base_files())


def _base_files() -> Iterator[str]:
    for folder in ("base", "edge", "worker"):
        named = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())["resources"]
        yield from (f"{folder}/{name}" for name in named)


def kustomize() -> list[str] | None:
    """The command that builds a folder; None where there is none that is new enough."""
    if own := os.environ.get("INFERPLANE_TEST_KUBECTL"):
        return [own, "kustomize"]
    if found := shutil.which("kustomize"):
        return [found, "build"]
    found = shutil.which("kubectl")
    if found is None:
        return None
    told = subprocess.run(
        [found, "version", "--client", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    version = json.loads(told.stdout).get("kustomizeVersion", "") if told.stdout else ""
    number = version.removeprefix("v").partition(".")[0]
    is_new = number.isdecimal() and int(number) >= _OLDEST_KUSTOMIZE
    return [found, "kustomize"] if is_new else None


def build(command: list[str], folder: Path) -> list[Object]:
    """What kustomize makes of a folder."""
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(found: Iterable[Object], *kinds: str) -> list[Object]:
    """Objects of some kinds."""
    return [one for one in found if one["kind"] in kinds]


def workloads(found: Iterable[Object]) -> list[Object]:
    """What makes pods."""
    return of_kind(found, "Deployment", "StatefulSet")


def labels_of(workload: Object) -> Mapping[str, str]:
    """Labels of its pods."""
    labels: Mapping[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def component_of(workload: Object) -> str:
    """Which of our programs it runs."""
    return labels_of(workload)["app.kubernetes.io/component"]


def container_of(workload: Object) -> Mapping[str, Any]:
    """Its only container."""
    [container] = workload["spec"]["template"]["spec"]["containers"]
    found: Mapping[str, Any] = container
    return found


def variables_of(workload: Object) -> dict[str, Any]:
    """Its environment: value, or where the value comes from."""
    return {
        one["name"]: one.get("value", one.get("valueFrom")) for one in container_of(workload)["env"]
    }


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects pods with these labels."""
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", ())
    assert all(one["operator"] == "In" for one in among), "only In is used"
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(one["key"]) in one["values"] for one in among
    )
