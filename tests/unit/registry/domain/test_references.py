"""Rules about what refers to what."""

from dataclasses import replace

import pytest

from services.registry.domain.model import VersionState
from services.registry.domain.references import (
    ResolvedTarget,
    check_etag,
    check_ready,
    check_targets,
    refuse_while_used,
)
from services.rpc.errors import AbortedError, FailedPreconditionError, NotFoundError
from services.rpc.names import AliasName, EndpointName, ModelName
from tests.unit.registry import records

READY = records.version("m@1")
UPLOADING = records.version("m@2", state=VersionState.UPLOADING)
CHAMPION = AliasName("m", "champion")


def target(index: int = 0, **changes: object) -> ResolvedTarget:
    resolved = ResolvedTarget(
        f"targets[{index}].target", READY.name, READY.name, READY, placed=True
    )
    return replace(resolved, **changes)  # type: ignore[arg-type] # fields of any type


def test_etags() -> None:
    """No etag and the right one pass; another is ABORTED with both in its metadata."""
    model = replace(records.model(), etag="2")
    check_etag(model, "")
    check_etag(model, "2")
    with pytest.raises(AbortedError) as refused:
        check_etag(model, "1")
    assert refused.value.metadata == {"resource": "models/m", "given": "1", "etag": "2"}
    assert refused.value.retry_after is None


def test_users_are_listed() -> None:
    """What is used can't go, and the error says who uses it, each once, in order."""
    refuse_while_used(ModelName("m"), [])
    users = [EndpointName("b"), EndpointName("a"), EndpointName("a")]
    with pytest.raises(FailedPreconditionError) as refused:
        refuse_while_used(ModelName("m"), users)
    assert "models/m is in use by endpoints/a, endpoints/b;" in refused.value.message
    assert refused.value.reason == "IN_USE"
    assert refused.value.metadata["users"] == "2"


def test_many_users_are_counted() -> None:
    """A long list is cut, with the rest counted."""
    with pytest.raises(FailedPreconditionError, match="and 30 more"):
        refuse_while_used(ModelName("m"), [EndpointName(f"e{n}") for n in range(50)])


def test_ready() -> None:
    """Only READY versions pass; the violation names the field."""
    check_ready("alias.version", READY)
    with pytest.raises(FailedPreconditionError) as refused:
        check_ready("alias.version", UPLOADING)
    assert refused.value.violations[0].field == "alias.version"


def test_servable_targets_pass() -> None:
    """Different READY versions on pools, and a mirror to one of them."""
    other = records.version("m@3")
    mirror = replace(target(), field="mirror.target")
    check_targets([target(), target(1, version_name=other.name, version=other), mirror])


@pytest.mark.parametrize(
    ("targets", "kind", "reason", "text"),
    [
        pytest.param(
            [target(target=CHAMPION, version_name=None, version=None, placed=False)],
            NotFoundError,
            "TARGET_NOT_FOUND",
            "targets[0].target: models/m/aliases/champion does not exist",
            id="no such alias",
        ),
        pytest.param(
            [target(), target(1, version=None, placed=False)],
            NotFoundError,
            "TARGET_NOT_FOUND",
            "targets[1].target: models/m/versions/1",
            id="no such version",
        ),
        pytest.param(
            [target(version=UPLOADING)],
            FailedPreconditionError,
            "TARGET_NOT_SERVABLE",
            "models/m/versions/2 is UPLOADING; allowed: a READY version",
            id="not ready",
        ),
        pytest.param(
            [target(placed=False)],
            FailedPreconditionError,
            "TARGET_NOT_SERVABLE",
            "models/m/versions/1 is on no pool",
            id="not placed",
        ),
        pytest.param(
            [target(), target(1, target=CHAMPION)],
            FailedPreconditionError,
            "TARGETS_NOT_DISTINCT",
            "targets[1].target: models/m/aliases/champion is models/m/versions/1",
            id="the same version by an alias",
        ),
    ],
)
def test_targets_that_are_refused(
    targets: list[ResolvedTarget], kind: type[Exception], reason: str, text: str
) -> None:
    """Each is refused with its own reason, and the message names field and version."""
    with pytest.raises(kind) as refused:
        check_targets(targets)
    assert refused.value.reason == reason  # type: ignore[attr-defined] # `kind` is one of ours
    assert text in str(refused.value)
