"""The services' parts of a backup: programs of theirs that are run one after the other."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from services.cli.adapters.mesh import environment_for_services
from services.cli.domain.exit_code import StatusError, UsageError
from services.rpc.errors import InternalError

SERVICES = ("registry", "metering")
_SERVICE = "{service}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Where the services have what is to be saved, or where it is put. `{service}` stands for each one's name."""

    state_dir: str
    url: str  # empty: SQLite in the state directory
    password_file: str  # empty: none

    def state_of(self, service: str) -> Path:
        """A service's state directory; `mesh` has what belongs to none of them."""
        return Path(self.state_dir.replace(_SERVICE, service)).expanduser().absolute()

    @property
    def are_apart(self) -> bool:
        """Whether each service has a state directory of its own, as in a cluster, and not `up` one for all."""
        return _SERVICE in self.state_dir

    def environment(self, service: str) -> dict[str, str]:
        """The settings of a service's program."""
        password_file = self.password_file.replace(_SERVICE, service)
        return environment_for_services(
            state_dir=str(self.state_of(service)),
            store_url=self.url.replace(_SERVICE, service),
            **({"store_password_file": password_file} if password_file else {}),
        )

    def check(self) -> None:
        """UsageError if both services would have the same database."""
        if self.url and _SERVICE not in self.url:
            raise UsageError(
                f"--store-url {self.url}: each service has a database of its own;"
                " allowed: an address with {service} in it"
            )


class BackupParts(Protocol):
    """What the services do of a backup."""

    @property
    def stores(self) -> Stores:
        """What is saved, or where it is put."""
        ...

    def run(self, service: str, act: str, folder: Path) -> Any:
        """Have a service do one act on one backup; what it answers. Raises what it says is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class PartPrograms:
    """BackupParts as processes, so that no service is part of the command line."""

    stores: Stores
    artifacts: Path  # contents that backups share

    def run(self, service: str, act: str, folder: Path) -> Any:
        done = subprocess.run(
            [
                *(sys.executable, "-m", f"services.{service}.backup"),
                *(act, str(folder), str(self.artifacts)),
            ],
            env=self.stores.environment(service),
            stdout=subprocess.PIPE,
            check=False,
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError as error:
            raise InternalError(
                f"services.{service}.backup ended with {done.returncode}, without an answer"
            ) from error
        if "error" in answer:
            raise _meant(answer["error"])
        return answer["done"]


def _meant(told: Mapping[str, Any]) -> StatusError:
    error = StatusError(told["kind"], told["message"])
    error.reason, error.metadata = told["reason"], dict(told["metadata"])
    return error
