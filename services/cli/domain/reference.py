"""What people type for resources: `digits@2`, `champion`, `2=90`; parsed into names."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.cli.domain.exit_code import UsageError
from services.rpc import names
from services.rpc.names import AliasName, ModelName, VersionName

_WHOLE_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


def parse_model_reference(text: str) -> tuple[str, str | None]:
    """`digits` or `digits@2` (or a resource name) as model id and version id, if there is one."""
    if text.startswith("models/"):
        if text.count("/") == 1:
            return names.parse_model("model", text).model, None
        named = names.parse_version("version", text)
        return named.model, named.version
    model, at, version = text.partition("@")
    names.check_id("model", model)
    return model, names.check_id("version", version) if at else None


def parse_version_reference(text: str) -> VersionName:
    """`digits@2` or `models/digits/versions/2` as the version's name."""
    model, version = parse_model_reference(text)
    if version is None:
        raise UsageError(
            f"{text!r} names no version; allowed: MODEL@VERSION, for example {model}@1"
        )
    return VersionName(model, version)


def parse_endpoint_reference(text: str) -> str:
    """`digits` or `endpoints/digits` as the endpoint's id."""
    if text.startswith("endpoints/"):
        return names.parse_endpoint("endpoint", text).endpoint
    return names.check_id("endpoint", text)


@dataclass(frozen=True, slots=True)
class WeightedReference:
    """One `V=W` of a traffic split, as it was typed."""

    model: str | None  # None: to be found from the endpoint
    target: str  # version or alias id
    weight: float


def parse_weighted_reference(text: str) -> WeightedReference:
    """`2=90`, `champion=10` or `digits@2=90`; whether the weight makes sense is the registry's to say."""
    typed, equals, number = text.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = None
    if not equals or weight is None:
        raise UsageError(
            f"{text!r} is no share of traffic; allowed: VERSION=WEIGHT, for example 2=90"
        )
    if typed.startswith("models/"):
        named = names.parse_target("target", typed)
        target = named.version if isinstance(named, VersionName) else named.alias
        return WeightedReference(named.model, target, weight)
    model, at, target = typed.rpartition("@")
    if at:
        names.check_id("model", model)
    return WeightedReference(model if at else None, names.check_id("target", target), weight)


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` texts of a repeated option as a mapping."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {pair!r}: allowed: key=value")
        parsed[key] = value
    return parsed


def next_version(versions: Iterable[str]) -> str:
    """The whole number after the highest one among version ids; `1` if none is a whole number."""
    numbers = [int(version) for version in versions if _WHOLE_NUMBER.fullmatch(version)]
    return str(max(numbers, default=0) + 1)


def model_of_targets(targets: Iterable[str]) -> ModelName | None:
    """The one model that all targets of an endpoint belong to; None if there are several or none."""
    models = {names.parse_target("target", target).model for target in targets}
    return ModelName(models.pop()) if len(models) == 1 else None


def parse_alias_reference(text: str) -> AliasName:
    """`digits@champion` or `models/digits/aliases/champion` as the alias's name."""
    if text.startswith("models/"):
        return names.parse_alias("alias", text)
    model, at, alias = text.partition("@")
    if not at:
        raise UsageError(
            f"{text!r} names no alias; allowed: MODEL@ALIAS, for example digits@champion"
        )
    return AliasName(names.check_id("model", model), names.check_id("alias", alias))
