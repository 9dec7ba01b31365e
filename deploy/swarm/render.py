"""Turns what `docker compose config --format json` prints into a file that `docker stack deploy` takes.

Both read the same language, in two dialects: a stack knows no order of starts, no builds and no one-shot services
before others, writes limits and restarts elsewhere, and publishes ports on every machine. Standard library only.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

Service = dict[str, Any]

LEFT_OUT = "x-left-out"  # in deploy/swarm/stack.yml: services that a stack doesn't have
# Of one machine, or written elsewhere in a stack.
_NOT_IN_STACKS = (
    "build",
    "container_name",
    "cpus",
    "depends_on",
    "mem_limit",
    "mem_reservation",
    "memswap_limit",
    "pids_limit",
    "platform",
    "profiles",
    "pull_policy",
    "restart",
    "scale",
    "security_opt",  # a stack can't ask for no-new-privileges; the engine's own setting can (docs/swarm.md)
    "shm_size",
)


def stack(config: dict[str, Any], zones: Iterable[str] = ()) -> dict[str, Any]:
    """A stack of a Compose project.

    Args:
        config: as Compose has read and merged it.
        zones: values of the node label `zone`; each gets workers and edges of its own. None: one set of them.
    """
    left_out = set(config.get(LEFT_OUT, ()))
    services = {
        name: _service(service)
        for name, service in config["services"].items()
        if name not in left_out
    }
    services = _in_zones(services, tuple(zones))
    made: dict[str, Any] = {"version": "3.13", "services": services}
    for kind in ("networks", "volumes", "secrets", "configs"):
        used = _used(services.values(), kind)
        if entries := {
            name: _without_empty(entry)
            for name, entry in config.get(kind, {}).items()
            if name in used
        }:
            made[kind] = entries
    return made


def _service(service: Service) -> Service:
    made = {
        key: deepcopy(value)
        for key, value in service.items()
        if key not in _NOT_IN_STACKS and not key.startswith("x-") and value is not None
    }
    limits = _limits(service)
    deploy = made.setdefault("deploy", {})
    if limits:
        deploy.setdefault("resources", {}).setdefault("limits", {}).update(
            {key: value for key, value in limits.items() if key not in _limits_of(deploy)}
        )
    for limit in deploy.get("resources", {}).values():
        if "cpus" in limit:
            limit["cpus"] = str(limit["cpus"])
    made["ports"] = [_port(port) for port in made.get("ports", ())]
    made["volumes"] = [_without_empty(volume) for volume in made.get("volumes", ())]
    made["secrets"] = [_secret(secret) for secret in made.get("secrets", ())]
    return {key: value for key, value in made.items() if value not in ([], {})}


def _limits(service: Service) -> dict[str, Any]:
    told = {"cpus": service.get("cpus"), "memory": service.get("mem_limit")}
    if service.get("pids_limit"):
        told["pids"] = service["pids_limit"]
    return {key: value for key, value in told.items() if value}


def _limits_of(deploy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deploy.get("resources", {}).get("limits", {})
    return found


def _port(port: dict[str, Any]) -> dict[str, Any]:
    """A stack publishes on all addresses of its machines, whatever address is said."""
    made = {key: value for key, value in port.items() if key not in {"host_ip", "name"}}
    if "published" in made:
        made["published"] = int(made["published"])
    return made


def _secret(secret: dict[str, Any]) -> dict[str, Any]:
    made = dict(secret)
    if isinstance(made.get("mode"), str):
        made["mode"] = int(made["mode"], 8)
    return made


def _without_empty(entry: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (entry or {}).items() if value not in ({}, None)}


def _in_zones(services: dict[str, Service], zones: tuple[str, ...]) -> dict[str, Service]:
    """Services that have the variable INFERPLANE_ZONE, once per zone: templates know no labels of nodes."""
    made = {}
    for name, service in services.items():
        if not zones or "INFERPLANE_ZONE" not in service.get("environment", {}):
            made[name] = service
            continue
        for zone in zones:
            placed = deepcopy(service)
            placed["environment"]["INFERPLANE_ZONE"] = zone
            placement = placed["deploy"].setdefault("placement", {})
            placement.setdefault("constraints", []).append(f"node.labels.zone == {zone}")
            placement.pop("preferences", None)  # to spread over zones
            _share_name(placed, name)
            made[f"{name}-{zone}"] = placed
    return made


def _share_name(service: Service, name: str) -> None:
    """Others go on finding all of them by the name that they had together."""
    networks = service.get("networks") or {"default": None}
    service["networks"] = {
        network: {**(more or {}), "aliases": [name]} for network, more in networks.items()
    }


def _used(services: Iterable[Service], kind: str) -> set[str]:
    found: set[str] = set()
    for service in services:
        entries = service.get(kind, ())
        if kind == "networks":
            found |= set(entries or ("default",))
        elif kind == "volumes":
            found |= {one["source"] for one in entries if one.get("type") == "volume"}
        else:
            found |= {one["source"] for one in entries}
    return found


def main() -> None:
    """Read a project on standard input, write a stack on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zone", action="append", default=[], help="may be repeated")
    given = parser.parse_args()
    json.dump(stack(json.load(sys.stdin), given.zone), sys.stdout, indent=2)


if __name__ == "__main__":
    main()
