"""Resource names: what is accepted, what is refused, and what a refusal says."""

from collections.abc import Callable

import pytest

from services.rpc import names
from services.rpc.errors import InvalidArgumentError


@pytest.mark.parametrize("value", ["a", "0", "digits", "a.b-c_d", "x" * 63, "v1.2.3"])
def test_id_is_accepted(value: str) -> None:
    """Ids of the documented form pass unchanged."""
    assert names.check_id("model_id", value) == value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="empty"),
        pytest.param("a/b", id="slash"),
        pytest.param("..", id="dots"),
        pytest.param("a..b", id="dots inside"),
        pytest.param("%2e", id="percent"),
        pytest.param("a\x00", id="NUL"),
        pytest.param("a\n", id="newline at the end"),
        pytest.param("Digits", id="capital"),
        pytest.param("-a", id="begins with a dash"),
        pytest.param("a.", id="ends with a dot"),
        pytest.param("é", id="not ASCII"),
        pytest.param("x" * 300, id="300 characters"),
    ],
)
def test_id_is_refused(value: str) -> None:
    """Anything else is refused with the field, the value given and the rule."""
    with pytest.raises(InvalidArgumentError) as caught:
        names.check_id("model_id", value)
    error = caught.value
    assert error.violations[0].field == "model_id"
    assert names.ID_RULE in error.message
    assert names.shown(value) in error.message
    assert error.message.isprintable()
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("parse", "text", "parsed"),
    [
        (names.parse_model, "models/m", names.ModelName("m")),
        (names.parse_version, "models/m/versions/1", names.VersionName("m", "1")),
        (names.parse_alias, "models/m/aliases/best", names.AliasName("m", "best")),
        (names.parse_target, "models/m/aliases/best", names.AliasName("m", "best")),
        (names.parse_target, "models/m/versions/1", names.VersionName("m", "1")),
        (names.parse_endpoint, "endpoints/e", names.EndpointName("e")),
        (names.parse_pool, "pools/p", names.PoolName("p")),
        (
            names.parse_placement,
            "pools/p/placements/m@1",
            names.PlacementName("p", names.VersionName("m", "1")),
        ),
        (names.parse_worker, "workers/w", names.WorkerName("w")),
    ],
)
def test_name_round_trips(parse: Callable[[str, str], object], text: str, parsed: object) -> None:
    """A name parses to its parts, and its parts print the same name."""
    assert parse("name", text) == parsed
    assert str(parsed) == text


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (names.parse_model, "models/"),
        (names.parse_model, "models/a/b"),
        (names.parse_model, "model/a"),
        (names.parse_version, "models/m/version/1"),
        (names.parse_version, "models/../versions/1"),
        (names.parse_target, "models/m"),
        (names.parse_placement, "pools/p/placements/m"),
        (names.parse_placement, "pools/p/placements/m@"),
        (names.parse_placement, "pools/p/placements/m@1@2"),
        (names.parse_endpoint, "endpoints/%2e%2e"),
    ],
)
def test_name_of_wrong_form_is_refused(parse: Callable[[str, str], object], text: str) -> None:
    """A name that does not fit the pattern is refused, naming the field."""
    with pytest.raises(InvalidArgumentError, match=r"^parent: "):
        parse("parent", text)
