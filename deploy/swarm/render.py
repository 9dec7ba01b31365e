"""Turns what `docker compose config --format json` prints into a file that `docker stack deploy` takes.

Both read the same language, in two dialects: a stack knows no order of starts, no builds and no one-shot services
before others, writes limits and restarts elsewhere, publishes ports on every machine, and has secrets of its own in
place of volumes that only one machine has. Standard library only.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Service = dict[str, Any]

_FILES = "x-secrets"  # in stack.yml: by holder, the files that are secrets
_VOLUME = "-secrets"  # how the Compose file calls the volume of a holder
_USER = "10001"  # all containers run as this user
_MODE = 0o400
# Of one machine, or written elsewhere in a stack.
_NOT_IN_STACKS = (
    "build",
    "container_name",
    "cpus",
    "depends_on",
    "mem_limit",
    "mem_reservation",
    "memswap_limit",
    "network_mode",
    "pids_limit",
    "platform",
    "profiles",
    "pull_policy",
    "restart",
    "scale",
    "security_opt",  # a stack can't ask for no-new-privileges; the engine's own setting can
    "shm_size",
    "tmpfs",
)


@dataclass(frozen=True, slots=True)
class Order:
    """What the stack is to be."""

    zones: tuple[
        str, ...
    ] = ()  # values of the node label `zone`; none: one set of workers and edges
    release: str = "1"  # of the secrets; the next one replaces them without an end to what runs


def secret_name(project: str, holder: str, file: str, release: str) -> str:
    """What Swarm calls a secret."""
    return f"{project}-{holder}-{file.replace('/', '-')}-{release}"


def stack(config: dict[str, Any], order: Order = Order()) -> dict[str, Any]:
    """A stack of a Compose project, as Compose has read and merged it."""
    secrets = _Secrets(config, order.release)
    services = {name: _service(one, secrets) for name, one in config["services"].items()}
    services = _in_zones(services, order.zones)
    made: dict[str, Any] = {"version": "3.13", "services": services}
    for kind in ("networks", "volumes", "configs"):
        used = _used(services.values(), kind)
        entries = {
            name: _without_empty(entry)
            for name, entry in config.get(kind, {}).items()
            if name in used
        }
        if entries:
            made[kind] = entries
    for entry in made.get("configs", {}).values():
        entry["name"] += "-" + _digest(Path(entry["file"]))
    if secrets.used:
        made["secrets"] = {
            source: {"name": name, "external": True}
            for source, name in sorted(secrets.used.items())
        }
    return made


class _Secrets:
    """Volumes of secrets, as Swarm's secrets; `used` grows as services ask for theirs."""

    def __init__(self, config: dict[str, Any], release: str) -> None:
        self._project = config.get("name", "")
        self._files: dict[str, list[str]] = config.get(_FILES, {})
        self._release = release
        self.used: dict[str, str] = {}

    def instead_of(self, volume: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The files of a volume of secrets; None: it is an ordinary one."""
        holder = volume.get("source", "").removesuffix(_VOLUME)
        if volume.get("source") != holder + _VOLUME or holder not in self._files:
            return None
        made = []
        for file in self._files[holder]:
            source = f"{holder}-{file.replace('/', '-')}"
            self.used[source] = secret_name(self._project, holder, file, self._release)
            target = f"{volume['target']}/{file}"
            made.append(
                {"source": source, "target": target, "uid": _USER, "gid": _USER, "mode": _MODE}
            )
        return made


def _service(service: Service, secrets: _Secrets) -> Service:
    made = {
        key: deepcopy(value)
        for key, value in service.items()
        if key not in _NOT_IN_STACKS and not key.startswith("x-") and value is not None
    }
    _put_limits(made, service)
    made["ports"] = [_port(port) for port in made.get("ports", ())]
    volumes = made.pop("volumes", [])
    made["volumes"], made["secrets"] = [], []
    for volume in volumes:
        files = secrets.instead_of(volume)
        if files is None:
            made["volumes"].append(_without_empty(volume))
        else:
            made["secrets"] += files
    # Swarm takes no owner and no mode: root's, with the mode that the folder has in the image.
    made["volumes"] += [
        {"type": "tmpfs", "target": entry.partition(":")[0]} for entry in service.get("tmpfs") or ()
    ]
    return {key: value for key, value in made.items() if value not in ([], {})}


def _put_limits(made: Service, service: Service) -> None:
    told = {
        "cpus": service.get("cpus"),
        "memory": service.get("mem_limit"),
        "pids": service.get("pids_limit"),
    }
    told = {key: value for key, value in told.items() if value}
    deploy = made.setdefault("deploy", {})
    if told:
        resources = deploy.setdefault("resources", {})
        resources["limits"] = {**told, **resources.get("limits", {})}
    for bound in deploy.get("resources", {}).values():
        if "cpus" in bound:
            bound["cpus"] = str(bound["cpus"])


def _port(port: dict[str, Any]) -> dict[str, Any]:
    """A stack publishes on all addresses of its machines, whatever address is said."""
    made = {key: value for key, value in port.items() if key not in {"host_ip", "name"}}
    if "published" in made:
        made["published"] = int(made["published"])
    return made


def _digest(file: Path) -> str:
    """A configuration can't be changed under its name, so its content is part of the name."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


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
        else:
            found |= {one["source"] for one in entries if "source" in one}
    return found


def main() -> None:
    """Read a project on standard input, write a stack on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zone", action="append", default=[], help="may be repeated")
    parser.add_argument("--secrets", default="1", help="release of the secrets (%(default)s)")
    given = parser.parse_args()
    order = Order(tuple(given.zone), given.secrets)
    json.dump(stack(json.load(sys.stdin), order), sys.stdout, indent=2)


if __name__ == "__main__":
    main()
