"""Who may call what: every method of every service has an answer, and no answer is by chance."""

import importlib
import pkgutil
from collections.abc import Iterator

import inference
import inferplane
import pytest
from google.protobuf.descriptor import MethodDescriptor

from services.router.resources import access, methods
from services.router.resources.access import Access


def every_method() -> Iterator[MethodDescriptor]:
    """Of all protos that there are."""
    for package in (inference, inferplane):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                file = importlib.import_module(module.name).DESCRIPTOR
                for service in file.services_by_name.values():
                    yield from service.methods


def path(method: MethodDescriptor) -> str:
    return methods.path(f"{method.containing_service.full_name}.{method.name}")


@pytest.mark.parametrize("method", [*every_method()], ids=path)
def test_every_method_has_an_answer(method: MethodDescriptor) -> None:
    """A method that is in a proto and not in the table is refused to everyone; that must be said, not forgotten."""
    assert path(method) in access.table()


def test_what_services_call_among_themselves_is_nobodys() -> None:
    """Registering workers, usage, leases and the policy are not for the edge."""
    nobodys = {path.rpartition(".")[2] for path, who in access.table().items() if not who.roles()}
    assert nobodys == {
        "DiscoveryService/RegisterWorker",
        "DiscoveryService/DeregisterWorker",
        "PolicyService/WatchPolicy",
        "UsageService/RecordUsage",
        "LeaseService/ExchangeLeases",
    }


READS = ("Get", "List", "Watch", "Query", "Export", "RepositoryIndex", "ModelStatistics")


@pytest.mark.parametrize(("path", "who"), [*access.table().items()])
def test_viewers_change_nothing(path: str, who: Access) -> None:
    """A viewer may call nothing that changes anything; only admins change what metering keeps."""
    name = path.rpartition("/")[2]
    if who is Access.VIEWER:
        assert name.startswith(READS)
    if path.startswith("/inferplane.metering.v1.") and not name.startswith(READS):
        assert who in (Access.ADMIN, Access.NOBODY)


def test_each_role_may_all_that_those_before_it_may() -> None:
    """Roles are in a row."""
    assert Access.CALLER.roles() == ("caller", "viewer", "deployer", "admin")
    assert Access.ADMIN.roles() == ("admin",)
    assert Access.NOBODY.roles() == ()
