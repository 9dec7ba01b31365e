"""Resource names and ids: the one place that knows their patterns.

`models/{model}` · `models/{model}/versions/{version}` · `models/{model}/aliases/{alias}` · `endpoints/{endpoint}` ·
`pools/{pool}/placements/{model}@{version}` · `workers/{worker}` · `projects/{project}` ·
`projects/{project}/keys/{key}`. Ids are safe in URLs, file names and Envoy resources.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

from services.rpc.errors import InvalidArgumentError

ID_RULE = (
    "1 to 63 characters of a-z, 0-9, '-', '_' and '.', beginning and ending with a letter or digit"
)
_ID = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_SHOWN = 80  # characters of a refused value that an error repeats


def shown(value: str) -> str:
    """The value as an error message shows it: quoted, escaped, cut."""
    if len(value) <= _SHOWN:
        return ascii(value)
    return f"{value[:_SHOWN]!a}… ({len(value)} characters)"


def check_id(field: str, value: str) -> str:
    """Return `value` if it is an id; otherwise raise InvalidArgumentError naming `field`."""
    if not _ID.fullmatch(value) or ".." in value:
        allowed = f"{ID_RULE}, without '..'" if ".." in value else ID_RULE
        raise InvalidArgumentError.of_field(
            field, f"{shown(value)} is not an id; allowed: {allowed}"
        )
    return value


@dataclass(frozen=True, slots=True, order=True)
class ModelName:
    """`models/{model}`."""

    model: str

    def __str__(self) -> str:
        return f"models/{self.model}"


@dataclass(frozen=True, slots=True, order=True)
class VersionName:
    """`models/{model}/versions/{version}`."""

    model: str
    version: str

    def __str__(self) -> str:
        return f"models/{self.model}/versions/{self.version}"

    @property
    def parent(self) -> ModelName:
        """The model that it is a version of."""
        return ModelName(self.model)

    @property
    def short(self) -> str:
        """`{model}@{version}`, as the command line writes it."""
        return f"{self.model}@{self.version}"


@dataclass(frozen=True, slots=True, order=True)
class AliasName:
    """`models/{model}/aliases/{alias}`."""

    model: str
    alias: str

    def __str__(self) -> str:
        return f"models/{self.model}/aliases/{self.alias}"

    @property
    def parent(self) -> ModelName:
        """The model whose versions it names."""
        return ModelName(self.model)


@dataclass(frozen=True, slots=True, order=True)
class EndpointName:
    """`endpoints/{endpoint}`."""

    endpoint: str

    def __str__(self) -> str:
        return f"endpoints/{self.endpoint}"


@dataclass(frozen=True, slots=True, order=True)
class PoolName:
    """`pools/{pool}`."""

    pool: str

    def __str__(self) -> str:
        return f"pools/{self.pool}"


@dataclass(frozen=True, slots=True, order=True)
class PlacementName:
    """`pools/{pool}/placements/{model}@{version}`."""

    pool: str
    version: VersionName

    def __str__(self) -> str:
        return f"pools/{self.pool}/placements/{self.version.short}"


@dataclass(frozen=True, slots=True, order=True)
class WorkerName:
    """`workers/{worker}`."""

    worker: str

    def __str__(self) -> str:
        return f"workers/{self.worker}"


@dataclass(frozen=True, slots=True, order=True)
class ProjectName:
    """`projects/{project}`."""

    project: str

    def __str__(self) -> str:
        return f"projects/{self.project}"


@dataclass(frozen=True, slots=True, order=True)
class KeyName:
    """`projects/{project}/keys/{key}`; `{key}` is the `jti` of the key's token."""

    project: str
    key: str

    def __str__(self) -> str:
        return f"projects/{self.project}/keys/{self.key}"

    @property
    def parent(self) -> ProjectName:
        """The project that pays for its calls."""
        return ProjectName(self.project)


TargetName: TypeAlias = VersionName | AliasName


def _segments(field: str, name: str, pattern: str) -> list[str]:
    """The variable parts of `name`, which must have the form of `pattern` (`models/{}/versions/{}`)."""
    parts, wanted = name.split("/"), pattern.split("/")
    fits = len(parts) == len(wanted) and all(
        w.startswith("{") or p == w for p, w in zip(parts, wanted, strict=True)
    )
    if not fits:
        raise InvalidArgumentError.of_field(
            field, f"{shown(name)} is not a resource name; allowed: {pattern}"
        )
    return [p for p, w in zip(parts, wanted, strict=True) if w.startswith("{")]


def parse_model(field: str, name: str) -> ModelName:
    """Parse `models/{model}`; InvalidArgumentError names `field`."""
    (model,) = _segments(field, name, "models/{model}")
    return ModelName(check_id(field, model))


def parse_version(field: str, name: str) -> VersionName:
    """Parse `models/{model}/versions/{version}`; InvalidArgumentError names `field`."""
    model, version = _segments(field, name, "models/{model}/versions/{version}")
    return VersionName(check_id(field, model), check_id(field, version))


def parse_alias(field: str, name: str) -> AliasName:
    """Parse `models/{model}/aliases/{alias}`; InvalidArgumentError names `field`."""
    model, alias = _segments(field, name, "models/{model}/aliases/{alias}")
    return AliasName(check_id(field, model), check_id(field, alias))


def parse_target(field: str, name: str) -> TargetName:
    """Parse the name of a version or an alias; InvalidArgumentError names `field`."""
    parts = name.split("/")
    if len(parts) == 4 and parts[0] == "models" and parts[2] == "aliases":
        return parse_alias(field, name)
    if len(parts) == 4 and parts[0] == "models" and parts[2] == "versions":
        return parse_version(field, name)
    raise InvalidArgumentError.of_field(
        field,
        f"{shown(name)} is not a target; allowed: models/{{model}}/versions/{{version}}"
        " or models/{model}/aliases/{alias}",
    )


def parse_endpoint(field: str, name: str) -> EndpointName:
    """Parse `endpoints/{endpoint}`; InvalidArgumentError names `field`."""
    (endpoint,) = _segments(field, name, "endpoints/{endpoint}")
    return EndpointName(check_id(field, endpoint))


def parse_pool(field: str, name: str) -> PoolName:
    """Parse `pools/{pool}`; InvalidArgumentError names `field`."""
    (pool,) = _segments(field, name, "pools/{pool}")
    return PoolName(check_id(field, pool))


def parse_placement(field: str, name: str) -> PlacementName:
    """Parse `pools/{pool}/placements/{model}@{version}`; InvalidArgumentError names `field`."""
    pool, placed = _segments(field, name, "pools/{pool}/placements/{model}@{version}")
    model, at, version = placed.partition("@")
    if not at:
        raise InvalidArgumentError.of_field(
            field, f"{shown(placed)} is not a placement id; allowed: {{model}}@{{version}}"
        )
    return PlacementName(
        check_id(field, pool), VersionName(check_id(field, model), check_id(field, version))
    )


def parse_worker(field: str, name: str) -> WorkerName:
    """Parse `workers/{worker}`; InvalidArgumentError names `field`."""
    (worker,) = _segments(field, name, "workers/{worker}")
    return WorkerName(check_id(field, worker))


def parse_project(field: str, name: str) -> ProjectName:
    """Parse `projects/{project}`; InvalidArgumentError names `field`."""
    (project,) = _segments(field, name, "projects/{project}")
    return ProjectName(check_id(field, project))


def parse_key(field: str, name: str) -> KeyName:
    """Parse `projects/{project}/keys/{key}`; InvalidArgumentError names `field`."""
    project, key = _segments(field, name, "projects/{project}/keys/{key}")
    return KeyName(check_id(field, project), check_id(field, key))
