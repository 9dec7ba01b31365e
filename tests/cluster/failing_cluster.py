"""The compose cluster as it is broken: which containers there are, and what may be done to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.failures.network import bad_network, no_network
from tests.e2e.mesh import ROOT, eventually

SECONDS = 120.0  # until something is as it was
_COMMAND = 120.0
_LABEL = "com.docker.compose"
_GUESTS = {"demo"}  # in the network of the edge, and so gone from it when that starts again


@dataclass(frozen=True, slots=True)
class Container:
    """One container as the engine knows it."""

    ident: str
    name: str
    service: str
    pid: int  # of its first process; 0: it does not run
    is_well: bool  # runs, and is healthy where it tells, by when it was last asked
    check: tuple[str, ...]  # asks it for that now; empty: it is not asked, or does not run
    restarts: int  # by the engine, as it had ended by itself
    addresses: frozenset[str]  # in its networks


@dataclass(frozen=True, slots=True)
class FailingCluster:
    """A project of compose that runs."""

    project: str
    address: str  # the edge's
    admin: str = field(repr=False)  # key of an admin
    engine: httpx.Client  # commands to ask it many times a second would take a core
    environment: Mapping[str, str]  # in which `docker compose` finds the project's files and tags
    crashes: Counter[str] = field(default_factory=Counter)  # of containers, by their names

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`inferplane ARGUMENTS` against the edge, with the admin's key."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("INFERPLANE_")}
        own = {"INFERPLANE_ADDRESS": self.address, "INFERPLANE_API_KEY": self.admin}
        done = subprocess.run(
            [sys.executable, "-m", "services.cli", *arguments],
            env={**kept, **own, "COLUMNS": "200"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_COMMAND,
        )
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stderr}")
        return done

    def containers(self, *services: str) -> list[Container]:
        """Those of some services, in the order of their numbers; of all without any."""
        made = [_container(one) for one in self._told()]
        found = [one for one in made if not services or one.service in services]
        return sorted(found, key=lambda one: one.name)

    def _told(self) -> Iterator[Mapping[str, Any]]:
        of_project = json.dumps({"label": [f"{_LABEL}.project={self.project}"]})
        listed = self.engine.get("/containers/json", params={"all": "1", "filters": of_project})
        for one in listed.raise_for_status().json():
            told = self.engine.get(f"/containers/{one['Id']}/json")
            if told.status_code != httpx.codes.NOT_FOUND:  # gone since
                yield told.raise_for_status().json()

    def one(self, service: str) -> Container:
        """A container of a service that runs."""
        return next(one for one in self.containers(service) if one.pid)

    def crash(self, *victims: Container) -> None:
        """`kill -9` of all that runs in them, as the kernel would: the engine starts them again."""
        for victim in victims:
            self.crashes[victim.name] += 1
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
        for victim in victims:
            self.started_again(victim)

    def started_again(self, victim: Container) -> None:
        """Wait until another process is in the place of one that has ended."""

        def again() -> bool:
            now = next((c for c in self.containers(victim.service) if c.name == victim.name), None)
            return now is not None and now.pid not in {0, victim.pid}

        eventually(again, seconds=SECONDS, what=f"{victim.name} is started again")
        self.well()

    def well(self) -> None:
        """Wait until all containers that serve are well."""

        def all_well() -> bool:
            serving = (one for one in self.containers() if one.service not in _GUESTS)
            return all(one.is_well or _answers(one) for one in serving)

        eventually(all_well, seconds=SECONDS, what="all containers are well")

    @contextmanager
    def frozen(self, victim: Container) -> Iterator[None]:
        """Within, none of its processes runs."""
        _docker("pause", victim.ident)
        try:
            yield
        finally:
            _docker("unpause", victim.ident)

    @contextmanager
    def cut_off(self, victim: Container) -> Iterator[None]:
        """Within, no packet reaches it and none of its own gets anywhere, and nobody is told so."""
        with no_network(victim.pid):
            yield

    @contextmanager
    def moved(self, victim: Container) -> Iterator[None]:
        """Within, it is in no network; afterwards it has another address in it."""
        network = f"{self.project}_mesh"
        _docker("network", "disconnect", network, victim.ident)
        try:
            yield
        finally:
            _docker("network", "connect", "--alias", victim.service, network, victim.ident)

    @contextmanager
    def bad_network(self, victim: Container, *, delay: float, loss: float) -> Iterator[None]:
        """Within, what it sends comes later, and some of it not at all."""
        with bad_network(victim.pid, delay=delay, loss=loss):
            yield

    def sql(self, database: str, statement: str) -> str:
        """One statement in Postgres."""
        return _docker(
            *("exec", self.one("postgres").ident, "psql", "--no-psqlrc", "-tA"),
            *("--username", "postgres", "--dbname", database, "--command", statement),
        )

    def active_registry(self) -> Container:
        """The one that holds the lock."""
        holder = (
            "SELECT DISTINCT host(client_addr) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND granted AND datname = 'registry'"
        )
        found: list[Container] = []

        def is_one() -> bool:
            addresses = set(self.sql("postgres", holder).split())
            found[:] = [c for c in self.containers("registry") if c.addresses & addresses]
            return len(found) == 1

        eventually(is_one, seconds=SECONDS, what="one registry is active")
        return found[0]

    def roll(self, service: str, tag: str) -> None:
        """Containers of the new image come beside the old ones, which then drain and go."""
        old = self.containers(service)
        words = ("up", "--detach", "--no-deps", "--no-build", "--no-recreate")
        self.compose(*words, "--scale", f"{service}={2 * len(old)}", service, INFERPLANE_TAG=tag)
        self.well()
        if service == "worker":
            self.loaded(*({one.name for one in self.containers(service)} - {o.name for o in old}))
        for one in old:
            _docker("stop", one.ident)
            _docker("rm", one.ident)
        self.well()

    def loaded(self, *names: str) -> None:
        """Wait until workers have all that is placed on them; they are well already if some of it has failed."""

        def all_loaded() -> bool:
            told = json.loads(self.cli("status", "--once", "--output", "json").stdout)
            found = {
                worker["address"].rpartition(":")[0]: {v["state"] for v in worker["versions"]}
                for worker in told["workers"]
            }
            mine = [one for one in self.containers("worker") if one.name in names]
            return all(
                found.get(address) == {"LOAD_STATE_READY"}
                for one in mine
                for address in one.addresses
            )

        eventually(all_loaded, seconds=SECONDS, what="the new workers have loaded everything")

    def replace(self, service: str, tag: str) -> None:
        """The container of a service of which there is one is made anew, of the new image."""
        self.compose("up", "--detach", "--no-deps", "--no-build", service, INFERPLANE_TAG=tag)
        self.well()

    def compose(self, *arguments: str, **variables: str) -> str:
        """What `docker compose ARGUMENTS` on the project prints."""
        done = subprocess.run(
            ["docker", "compose", *arguments],
            env={**os.environ, **self.environment, **variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=2 * _COMMAND,
        )
        if done.returncode:
            raise AssertionError(f"compose {arguments}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


def _answers(one: Container) -> bool:
    """Whether its own check of health passes; the engine makes it every few seconds only."""
    asked = ["docker", "exec", one.ident, *one.check]
    return bool(one.check) and subprocess.run(asked, capture_output=True).returncode == 0


def _container(told: Mapping[str, Any]) -> Container:
    state, labels = told["State"], told["Config"]["Labels"]
    networks = told["NetworkSettings"]["Networks"]
    ended_well = state["Status"] == "exited" and state["ExitCode"] == 0  # what sets up, and ends
    runs = bool(state["Running"]) and not state["Paused"]
    healthy = state.get("Health", {}).get("Status", "healthy") == "healthy"
    how, *check = told["Config"].get("Healthcheck", {}).get("Test", ["NONE"])
    return Container(
        ident=told["Id"],
        name=str(told["Name"]).removeprefix("/"),
        service=labels[f"{_LABEL}.service"],
        pid=int(state["Pid"]),
        is_well=ended_well or (runs and healthy),
        check=((*(("sh", "-c") if how == "CMD-SHELL" else ()), *check) if runs else ()),
        restarts=int(told["RestartCount"]),
        addresses=frozenset(n["IPAddress"] for n in networks.values() if n["IPAddress"]),
    )


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=_COMMAND)
    if done.returncode:
        raise AssertionError(f"docker {arguments}: {done.stderr}")
    return done.stdout
