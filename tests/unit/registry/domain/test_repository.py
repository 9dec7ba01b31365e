"""The repository as Triton's clients see it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from services.registry.domain.endpoint import Endpoint, Mirror, Target
from services.registry.domain.repository import (
    IndexEntry,
    RepositoryState,
    index_entry,
    is_as_made,
    is_loaded,
    made_by_load,
)
from services.registry.domain.repository_parameters import version_to_load, version_to_unload
from services.registry.domain.worker import LoadState, Worker, WorkerVersion
from services.rpc.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from services.rpc.names import AliasName, VersionName
from tests.unit.registry import records

V1 = VersionName("m", "1")
S = LoadState
R = RepositoryState


def worker(name: str, state: LoadState | None, reason: str = "", pool: str = "default") -> Worker:
    versions = () if state is None else (WorkerVersion(version=V1, state=state, reason=reason),)
    return replace(records.worker(name, pool), versions=versions)


DRAINING = replace(worker("w", S.READY), draining=True)


@pytest.mark.parametrize(
    ("pools", "workers", "state", "reason"),
    [
        pytest.param(set(), [], R.UNAVAILABLE, "unloaded", id="placed nowhere"),
        pytest.param(set(), [worker("w", S.DRAINING)], R.UNLOADING, "", id="still held"),
        pytest.param({"default"}, [worker("w", S.READY)], R.READY, "", id="ready"),
        pytest.param(
            {"default"},
            [worker("a", S.FAILED, "bad"), worker("b", S.READY)],
            R.READY,
            "",
            id="ready on one is ready",
        ),
        pytest.param({"default"}, [worker("w", None)], R.LOADING, "", id="nothing said yet"),
        pytest.param({"default"}, [worker("w", S.PULLING)], R.LOADING, "", id="on its way"),
        pytest.param(
            {"default"}, [worker("w", S.FAILED, "bad")], R.UNAVAILABLE, "bad", id="failed on all"
        ),
        pytest.param(
            {"default"},
            [worker("a", S.FAILED, "bad"), worker("b", None)],
            R.LOADING,
            "",
            id="failed on one, not heard of the other",
        ),
        pytest.param(
            {"gpu"},
            [worker("w", S.READY)],
            R.UNAVAILABLE,
            "no worker of pool gpu is live",
            id="worker of another pool",
        ),
        pytest.param(
            {"default"},
            [DRAINING],
            R.UNAVAILABLE,
            "no worker of pool default is live",
            id="the only worker drains",
        ),
    ],
)
def test_states(
    pools: set[str], workers: Sequence[Worker], state: RepositoryState, reason: str
) -> None:
    """Where a version is placed and what live workers say gives the state and why."""
    assert index_entry(V1, pools, workers) == IndexEntry(V1, state, reason)


def test_waiting_ends() -> None:
    """A version is loaded, not yet, or never will be, with the reason."""
    assert is_loaded(V1, [worker("w", S.READY)])
    assert not is_loaded(V1, [worker("w", S.WARMING)])
    with pytest.raises(FailedPreconditionError, match="failed to load m@1: no such operator"):
        is_loaded(V1, [worker("w", S.FAILED, "no such operator")])
    with pytest.raises(UnavailableError, match="no worker of pool default is live"):
        is_loaded(V1, [worker("w", S.READY, pool="gpu")])


MADE = made_by_load(V1, records.NOW)


@pytest.mark.parametrize(
    ("endpoint", "as_made"),
    [
        pytest.param(MADE, True, id="just made"),
        pytest.param(
            replace(MADE, etag="7", update_time=records.NOW + timedelta(1)),
            True,
            id="moved by load",
        ),
        pytest.param(replace(MADE, targets=(Target(V1, 100.0),)), False, id="split set by hand"),
        pytest.param(
            replace(MADE, targets=(Target(AliasName("m", "best"), 1.0),)), False, id="by alias"
        ),
        pytest.param(replace(MADE, mirror=Mirror(V1, 5.0)), False, id="mirrored"),
        pytest.param(replace(MADE, sticky_header="x-user"), False, id="sticky"),
        pytest.param(replace(MADE, tags={}), False, id="without the tag"),
        pytest.param(records.endpoint("m", V1), False, id="made by somebody"),
    ],
)
def test_whose_endpoint_it_is(endpoint: Endpoint, as_made: bool) -> None:
    """Only what loading made, and nobody has changed since, is loading's to move and to delete."""
    assert is_as_made(endpoint) is as_made


def test_parameters_that_are_allowed() -> None:
    """A version by id or number; no dependents."""
    assert version_to_load({}) is None
    assert version_to_load({"version": "7"}) == "7"
    assert version_to_load({"version": 7}) == "7"
    assert version_to_unload({"unload_dependents": False}) is None
    assert version_to_unload({"version": "7", "unload_dependents": False}) == "7"


def test_parameters_that_are_refused() -> None:
    """What would override a version, and what is unknown, is named, all at once."""
    given = {"config": "{}", "file:1/m.onnx": b"x", "preload": True, "version": True}
    with pytest.raises(InvalidArgumentError) as refused:
        version_to_load(given)
    told = {violation.field: violation.description for violation in refused.value.violations}
    assert list(told) == [f"parameters['{name}']" for name in sorted(given)]
    assert "files and settings never change" in told["parameters['config']"]
    assert "files and settings never change" in told["parameters['file:1/m.onnx']"]
    assert "is unknown; allowed: version" in told["parameters['preload']"]
    assert told["parameters['version']"] == "true; allowed: a version id as text"
    with pytest.raises(InvalidArgumentError, match="true; allowed: false"):
        version_to_unload({"unload_dependents": True})
    with pytest.raises(InvalidArgumentError, match=r"'a b' is not an id"):
        version_to_unload({"version": "a b"})
