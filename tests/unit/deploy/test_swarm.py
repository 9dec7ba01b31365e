"""A Compose project as a stack of Swarm: what is dropped, moved, and multiplied by zones."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from services.cli.setup.holders import HOLDERS
from services.rpc import tls

ROOT = Path(__file__).resolve().parents[3]


def _render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("swarm_render", ROOT / "deploy/swarm/render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


render = _render()


def stack_of(service: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The service, in a stack."""
    made: dict[str, Any] = render.stack({"services": {"one": service}, **more})
    found: dict[str, Any] = made["services"]["one"]
    return found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(
            {"depends_on": {"two": {}}, "build": {}, "restart": "always"}, {}, id="dropped"
        ),
        pytest.param({"command": None, "image": "x"}, {"image": "x"}, id="what is not said"),
        pytest.param(
            {"cpus": 0.5, "mem_limit": "1024"},
            {"deploy": {"resources": {"limits": {"cpus": "0.5", "memory": "1024"}}}},
            id="limits are moved",
        ),
        pytest.param(
            {"mem_limit": "1024", "deploy": {"resources": {"limits": {"memory": "2048"}}}},
            {"deploy": {"resources": {"limits": {"memory": "2048"}}}},
            id="a stack's own limits win",
        ),
        pytest.param(
            {"ports": [{"target": 80, "published": "8080", "host_ip": "127.0.0.1"}]},
            {"ports": [{"target": 80, "published": 8080}]},
            id="ports are numbers, on every address",
        ),
        pytest.param(
            {"tmpfs": ["/tmp:uid=7"]},
            {"volumes": [{"type": "tmpfs", "target": "/tmp"}]},
            id="a folder in memory is a volume",
        ),
    ],
)
def test_a_service(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    """What a stack can't have is dropped, what it has elsewhere is moved there."""
    assert stack_of(given) == wanted


def test_secrets() -> None:
    """A volume of secrets is a secret for each file, of the release that is asked for; other volumes stay."""
    config = {
        "name": "mesh",
        "x-secrets": {"router": ["tls/key.pem"]},
        "services": {
            "one": {
                "volumes": [
                    {"type": "volume", "source": "router-secrets", "target": "/run/router"},
                    {"type": "volume", "source": "state", "target": "/state"},
                ]
            },
        },
        "volumes": {"router-secrets": {}, "state": {"name": "mesh_state"}},
    }
    made = render.stack(config, render.Order(release="2"))
    file = {"source": "router-tls-key.pem", "target": "/run/router/tls/key.pem"}
    assert made["services"]["one"] == {
        "secrets": [{**file, "uid": "10001", "gid": "10001", "mode": 0o400}],
        "volumes": [{"type": "volume", "source": "state", "target": "/state"}],
    }
    assert made["volumes"] == {"state": {"name": "mesh_state"}}
    assert made["secrets"] == {
        "router-tls-key.pem": {"name": "mesh-router-tls-key.pem-2", "external": True}
    }


def test_configurations(tmp_path: Path) -> None:
    """A configuration's name changes with its content, because Swarm changes none under its name."""
    file = tmp_path / "x.conf"
    names = set()
    for text in ("a", "b", "a"):
        file.write_text(text)
        made = render.stack(
            {
                "services": {"one": {"configs": [{"source": "x", "target": "/x"}]}},
                "configs": {"x": {"name": "mesh_x", "file": str(file)}},
            }
        )
        names.add(made["configs"]["x"]["name"])
    assert len(names) == 2


def test_zones() -> None:
    """A service that knows zones is there once per zone, placed in it, told it, and found by its old name."""
    made = render.stack(
        {
            "services": {
                "worker": {
                    "environment": {"INFERPLANE_ZONE": ""},
                    "networks": {"mesh": None},
                    "deploy": {"placement": {"preferences": [{"spread": "node.labels.zone"}]}},
                },
                "router": {"networks": {"mesh": None}},
            },
            "networks": {"mesh": {"name": "x_mesh"}},
        },
        render.Order(zones=("a", "b")),
    )
    assert sorted(made["services"]) == ["router", "worker-a", "worker-b"]
    for zone in ("a", "b"):
        worker = made["services"][f"worker-{zone}"]
        assert worker["environment"]["INFERPLANE_ZONE"] == zone
        assert worker["deploy"]["placement"] == {"constraints": [f"node.labels.zone == {zone}"]}
        assert worker["networks"] == {"mesh": {"aliases": ["worker"]}}


class _Overlaid(yaml.SafeLoader):
    """YAML with Compose's marks of what replaces instead of being merged."""


def _unmarked(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node)
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node)
    return None


_Overlaid.add_multi_constructor("!", _unmarked)


def read(path: str) -> dict[str, Any]:
    """A file of Compose."""
    found: dict[str, Any] = yaml.load((ROOT / path).read_text(), Loader=_Overlaid)
    return found


def test_secrets_are_what_setup_makes() -> None:
    """Each holder's files are those that `setup` writes for it, and Consul's part of its configuration."""
    files = {tls.CERTIFICATE, tls.KEY, tls.AUTHORITIES}
    wanted = {
        one.name: {f"tls/{file}" for file in files} | {f"secrets/{name}" for name in one.secrets}
        for one in HOLDERS
    }
    wanted["consul"] |= {"secrets/acl.json"}
    assert {
        name: set(given) for name, given in read("deploy/swarm/stack.yml")["x-secrets"].items()
    } == wanted


def test_services_are_those_of_compose() -> None:
    """What the stack says more is said of services that the Compose file has."""
    known = read("docker-compose.yml")["services"].keys()
    for file in ("stack.yml", "one-machine.yml"):
        assert read(f"deploy/swarm/{file}")["services"].keys() <= known


@pytest.mark.parametrize(
    "service", ["registry", "metering", "router", "worker", "edge", "postgres", "consul"]
)
def test_roll_outs(service: str) -> None:
    """What keeps running ends no old task before a new one is well, and returns if that never happens; stores can't."""
    deploy = read("deploy/swarm/stack.yml")["services"][service]["deploy"]
    is_store = service in {"postgres", "consul"}
    assert deploy["update_config"]["order"] == ("stop-first" if is_store else "start-first")
    if not is_store:
        assert deploy["update_config"]["failure_action"] == "rollback"


@pytest.mark.parametrize("options", [[], ["--one-machine"], ["--zone", "a", "--zone", "b"]])
def test_docker_takes_it(options: list[str]) -> None:
    """The whole file is one that `docker stack deploy` takes; where Docker is not installed, nothing is known."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], check=False).returncode:
        pytest.skip("no docker with Compose on this machine: the stack was not rendered")
    rendered = subprocess.run(
        [str(ROOT / "deploy/swarm/deploy"), "--render", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert rendered.returncode == 0, rendered.stderr
    taken = subprocess.run(
        [docker, "stack", "config", "--compose-file", "-"],
        input=rendered.stdout,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert taken.returncode == 0, taken.stderr
    assert not re.search("unsupported|ignoring", taken.stderr, re.IGNORECASE), taken.stderr
