"""A Compose project as a stack of Swarm: what is dropped, moved, and multiplied by zones."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", ROOT / "deploy/swarm/render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
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
            {"secrets": [{"source": "s", "target": "/run/x", "mode": "0400"}]},
            {"secrets": [{"source": "s", "target": "/run/x", "mode": 0o400}]},
            id="modes are numbers",
        ),
    ],
)
def test_a_service(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    """What a stack can't have is dropped, what it has elsewhere is moved there."""
    assert stack_of(given) == wanted


def test_what_is_left_out() -> None:
    """Services that a stack doesn't have are gone, and so is what only they used."""
    made = render.stack(
        {
            "x-left-out": ["setup"],
            "services": {
                "setup": {"volumes": [{"type": "volume", "source": "secrets", "target": "/s"}]},
                "one": {"volumes": [{"type": "volume", "source": "state", "target": "/s"}]},
            },
            "volumes": {"secrets": {"name": "x_secrets"}, "state": {"name": "x_state"}},
        }
    )
    assert list(made["services"]) == ["one"]
    assert made["volumes"] == {"state": {"name": "x_state"}}


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
        zones=["a", "b"],
    )
    assert sorted(made["services"]) == ["router", "worker-a", "worker-b"]
    for zone in ("a", "b"):
        worker = made["services"][f"worker-{zone}"]
        assert worker["environment"]["INFERPLANE_ZONE"] == zone
        assert worker["deploy"]["placement"] == {"constraints": [f"node.labels.zone == {zone}"]}
        assert worker["networks"] == {"mesh": {"aliases": ["worker"]}}
