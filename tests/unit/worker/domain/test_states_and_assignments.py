"""Load states, assignments of a pool, and which version a call is for."""

import pytest

from services.rpc.errors import InvalidArgumentError, NotFoundError, UnavailableError
from services.rpc.names import PlacementName, VersionName
from services.worker.domain.artifact_path import beside, is_digest, is_inside
from services.worker.domain.assignment import (
    AssignmentTable,
    ChangeBatch,
    PlacementChange,
    VersionChange,
    VersionSpec,
)
from services.worker.domain.load_state import FOLLOWS, Life, LoadState, TransitionError
from services.worker.domain.routing import Asked, Candidate, check_routed, choose
from services.worker.domain.signature import Signature, disagreements, spec_of

S = LoadState
V1, V2 = VersionName("m", "1"), VersionName("m", "2")


def test_the_way_to_ready_and_out() -> None:
    """Each state follows the one before it."""
    life = Life()
    for state in (S.PULLING, S.LOADING, S.WARMING, S.READY, S.DRAINING, S.GONE):
        life.to(state)
    assert life.state is S.GONE


def test_a_failure_has_a_reason_until_an_attempt_succeeds() -> None:
    """While the next attempt runs the reason stays, marked as the last one's."""
    life = Life()
    life.to(S.PULLING)
    life.to(S.FAILED, "disk full")
    assert life.reason == "disk full"
    for state in (S.PULLING, S.LOADING, S.WARMING):
        life.to(state)
        assert life.reason == "last attempt: disk full"
    life.to(S.READY)
    assert not life.reason


@pytest.mark.parametrize(
    ("state", "follower"),
    [(s, f) for s in S for f in S if f not in FOLLOWS[s]],
    ids=lambda s: s.name,
)
def test_nothing_else_may_follow(state: LoadState, follower: LoadState) -> None:
    """A state that the table does not allow raises and changes nothing."""
    life = Life(state)
    with pytest.raises(TransitionError):
        life.to(follower)
    assert life.state is state


def spec(name: VersionName, digest: str = "d") -> VersionSpec:
    return VersionSpec(name=name, digest=digest, files=(), signature=Signature((), ()))


def placed(name: VersionName, incarnation: str | None = "1", pool: str = "p") -> PlacementChange:
    return PlacementChange(PlacementName(pool, name), incarnation)


def test_a_placement_counts_once_its_version_is_known() -> None:
    """Placements and versions may come in any order; other pools' placements are nothing to us."""
    table = AssignmentTable("p")
    table.apply(ChangeBatch([placed(V1), placed(V2, pool="q")], 3, synced=True))
    assert table.assigned() == {}
    table.apply(
        ChangeBatch([VersionChange(V1, spec(V1)), VersionChange(V2, spec(V2))], 4, synced=True)
    )
    assert list(table.assigned()) == [V1]
    table.apply(ChangeBatch([placed(V1, None)], 5, synced=True))
    assert table.assigned() == {}
    assert table.revision == 5


def test_a_revision_counts_once_everything_up_to_it_is_here() -> None:
    """A stream that breaks in its first state is begun anew."""
    table = AssignmentTable("p")
    table.apply(ChangeBatch([placed(V1)], 9, synced=False))
    assert table.revision == 0


def test_a_new_incarnation_is_seen() -> None:
    """Removing and placing again differs from having been there all the time."""
    table = AssignmentTable("p")
    table.apply(ChangeBatch([VersionChange(V1, spec(V1)), placed(V1, "1")], 1, synced=True))
    before = table.assigned()[V1]
    table.apply(ChangeBatch([placed(V1, "2")], 2, synced=True))
    assert table.assigned()[V1] != before


CANDIDATES = [
    Candidate(V1, 10, serves=True),
    Candidate(V2, 20, serves=True),
    Candidate(VersionName("m", "3"), 30, serves=False),
]


@pytest.mark.parametrize(
    ("version", "expected"), [("", V2), ("1", V1)], ids=["newest that serves", "named"]
)
def test_without_envoy_the_body_chooses(version: str, expected: VersionName) -> None:
    """model_name is a model id then."""
    assert choose(Asked("m", version), CANDIDATES) == expected


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        pytest.param(Asked("other", ""), NotFoundError, id="unknown model"),
        pytest.param(Asked("m", "9"), NotFoundError, id="unknown version"),
        pytest.param(Asked("m", "3"), UnavailableError, id="not ready"),
        pytest.param(Asked("../etc/passwd", ""), NotFoundError, id="path"),
        pytest.param(Asked("m\0", ""), NotFoundError, id="NUL"),
        pytest.param(Asked("m" * 300, ""), NotFoundError, id="300 characters"),
    ],
)
def test_what_cannot_be_chosen(asked: Asked, error: type[Exception]) -> None:
    """Unknown names are NOT_FOUND, known ones that do not serve UNAVAILABLE."""
    with pytest.raises(error):
        choose(asked, CANDIDATES)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        pytest.param(Asked("b", "", "models/m/versions/1", "a"), "model_name", id="other endpoint"),
        pytest.param(
            Asked("a", "2", "models/m/versions/1", "a"), "model_version", id="other version"
        ),
    ],
)
def test_the_body_must_agree_with_the_route(asked: Asked, field: str) -> None:
    """What was authorised and routed is what is computed."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_routed(asked, "1")
    assert caught.value.violations[0].field == field


def test_agreement_passes() -> None:
    """Same endpoint, same or no version."""
    check_routed(Asked("a", "1", "models/m/versions/1", "a"), "1")
    check_routed(Asked("a", "", "models/m/versions/1", None), "1")


@pytest.mark.parametrize(
    "path",
    ["a.onnx", "a/b.bin", "ä", "..a/b"],
    ids=["plain", "folder", "umlaut", "two dots in a name"],
)
def test_paths_inside(path: str) -> None:
    """Relative paths that stay in their folder."""
    assert is_inside(path)


@pytest.mark.parametrize(
    "path", ["", "/a", "../a", "a/../b", "a//b", "./a", "a\\b", "a\0b", "a/", "x" * 256], ids=repr
)
def test_paths_outside(path: str) -> None:
    """Everything that could lead elsewhere."""
    assert not is_inside(path)


def test_external_data_lies_beside_its_graph() -> None:
    """Locations are relative to the graph's file."""
    assert beside("m/model.onnx", "w.bin") == "m/w.bin"
    assert beside("model.onnx", "w.bin") == "w.bin"
    assert is_digest("a" * 64)
    assert not is_digest("../" + "a" * 61)


def test_disagreements_in_words() -> None:
    """A loaded model that is not what was registered is told apart by name, type and shape."""
    said = Signature((spec_of("x", "FP32", (-1, 2)),), (spec_of("y", "FP32", (-1, 2)),))
    same = Signature((spec_of("x", "FP32", (-1, 2)),), (spec_of("y", "FP32", (-1, -1)),))
    other = Signature((spec_of("x", "FP64", (-1, 2)),), (spec_of("q", "FP32", (-1, 2)),))
    assert disagreements(said, same) == []
    assert disagreements(said, other) == [
        "the model's input is 'x' FP64 [-1, 2], registered 'x' FP32 [-1, 2]",
        "the model's outputs are ['q'], registered ['y']",
    ]
