"""What people type for resources: parsed into names, or refused with what is allowed."""

import pytest

from services.cli.domain.exit_code import UsageError
from services.cli.domain.reference import (
    WeightedReference,
    model_of_targets,
    next_version,
    parse_alias_reference,
    parse_endpoint_reference,
    parse_model_reference,
    parse_pairs,
    parse_version_reference,
    parse_weighted_reference,
)
from services.rpc.errors import InvalidArgumentError
from services.rpc.names import AliasName, ModelName, VersionName


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("digits", ("digits", None)),
        ("digits@2", ("digits", "2")),
        ("models/digits", ("digits", None)),
        ("models/digits/versions/2", ("digits", "2")),
    ],
)
def test_model_reference(text: str, parsed: tuple[str, str | None]) -> None:
    """Short and long forms of models and versions."""
    assert parse_model_reference(text) == parsed


@pytest.mark.parametrize("text", ["", "@1", "digits@", "a/b", "../x", "a@b@c", "D@1", "x" * 64])
def test_bad_model_reference_is_refused(text: str) -> None:
    """Texts that name no model are refused, naming the field."""
    with pytest.raises(InvalidArgumentError, match=r"^(model|version)"):
        parse_model_reference(text)


def test_version_reference_needs_a_version() -> None:
    """A model alone is no version, and the message shows how one is written."""
    assert parse_version_reference("digits@2") == VersionName("digits", "2")
    with pytest.raises(UsageError, match="digits@1"):
        parse_version_reference("digits")


def test_alias_and_endpoint_references() -> None:
    """Short and long forms."""
    assert parse_alias_reference("digits@champion") == AliasName("digits", "champion")
    assert parse_alias_reference("models/digits/aliases/a") == AliasName("digits", "a")
    assert parse_endpoint_reference("endpoints/digits") == "digits"
    assert parse_endpoint_reference("digits") == "digits"
    with pytest.raises(UsageError, match="MODEL@ALIAS"):
        parse_alias_reference("digits")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2=90", WeightedReference(None, "2", 90)),
        ("champion=0.5", WeightedReference(None, "champion", 0.5)),
        ("digits@2=1e3", WeightedReference("digits", "2", 1000)),
        ("models/digits/versions/2=9", WeightedReference("digits", "2", 9)),
        ("models/digits/aliases/a=9", WeightedReference("digits", "a", 9)),
        ("2=-1", WeightedReference(None, "2", -1)),
    ],
)
def test_weighted_reference(text: str, parsed: WeightedReference) -> None:
    """Every form of a share; whether the weight makes sense is left to the registry."""
    assert parse_weighted_reference(text) == parsed


@pytest.mark.parametrize("text", ["2", "2=", "2=x", "=", "2=9=x"])
def test_bad_weighted_reference_is_a_usage_error(text: str) -> None:
    """What is no V=W is refused with an example."""
    with pytest.raises(UsageError, match="2=90"):
        parse_weighted_reference(text)


@pytest.mark.parametrize(
    ("versions", "following"),
    [
        pytest.param([], "1", id="the first is 1"),
        pytest.param(["1", "2", "10"], "11", id="numbers are compared as numbers"),
        pytest.param(["rc", "3", "v9", "3.1"], "4", id="other ids don't count"),
        pytest.param(["007"], "1", id="a number with zeros in front is another id"),
    ],
)
def test_next_version(versions: list[str], following: str) -> None:
    """The whole number after the highest."""
    assert next_version(versions) == following


def test_model_of_targets() -> None:
    """One model is found; several are not guessed between."""
    one = ["models/a/versions/1", "models/a/aliases/best"]
    assert model_of_targets(one) == ModelName("a")
    assert model_of_targets([*one, "models/b/versions/1"]) is None
    assert model_of_targets([]) is None


def test_pairs() -> None:
    """Values may hold `=`; a pair without one is refused with the option's name."""
    assert parse_pairs("--tag", ["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UsageError, match="--tag 'a'"):
        parse_pairs("--tag", ["a"])
