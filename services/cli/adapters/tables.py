"""What tables show of resources."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp
from inferplane.registry.v1 import endpoint_pb2, model_pb2

from services.cli.adapters.catalog import WholeModel
from services.cli.adapters.rollout import split_of
from services.cli.adapters.settings_table import settings_fields, tuning_line
from services.cli.domain.split import short

_RetryField = Literal["num_retries", "budget_percent", "min_retry_concurrency"]
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def when(stamp: Timestamp) -> str:
    """A time as people here read it; empty if unset."""
    if not stamp.seconds:
        return ""
    return datetime.fromtimestamp(stamp.seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """A number of bytes with a fitting unit."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit fits everything")


def pairs(found: Iterable[tuple[str, str]]) -> str:
    """Words with their values, such as tags."""
    return ", ".join(f"{key}={value}" for key, value in sorted(found))


def _tensors(specs: Iterable[model_pb2.TensorSpec]) -> str:
    def shape(spec: model_pb2.TensorSpec) -> str:
        return ", ".join("?" if size < 0 else str(size) for size in spec.shape)

    return ", ".join(f"{spec.name} {spec.datatype}[{shape(spec)}]" for spec in specs)


def is_text(version: model_pb2.ModelVersion) -> bool:
    """Whether it is a language model."""
    return version.format in (model_pb2.FORMAT_GGUF, model_pb2.FORMAT_SAFETENSORS)


def _inputs(version: model_pb2.ModelVersion) -> str:
    if not is_text(version):
        return _tensors(version.inputs)
    model = version.language_model
    known = f" ({model.architecture}, {model.precision}, {model.context_length:,} tokens)"
    return "text" + (known if version.HasField("language_model") else "")


def _language_fields(version: model_pb2.ModelVersion) -> dict[str, str]:
    """What a language model is; nothing of others."""
    if not version.HasField("language_model"):
        return {}
    model = version.language_model
    return {
        "architecture": f"{model.architecture}, {model.layer_count} layers",
        "parameters": f"{model.parameter_count:,}",
        "precision": model.precision,
        "context": f"{model.context_length:,} tokens",
        "vocabulary": f"{model.vocabulary_size:,} tokens",
        "conversations": "by its chat template" if model.has_chat_template else "no chat template",
    }


def _state(version: model_pb2.ModelVersion) -> str:
    name = model_pb2.VersionState.Name(version.state)
    return name.removeprefix("VERSION_STATE_").lower()


def models(
    versions: Iterable[model_pb2.ModelVersion],
) -> list[tuple[str, Callable[[model_pb2.Model], str]]]:
    """Columns of models, with what versions each has."""
    of_model: dict[str, list[str]] = defaultdict(list)
    for version in versions:
        model, _, number = version.name.rpartition("/versions/")
        of_model[model].append(number)
    return [
        ("NAME", lambda model: short(model.name)),
        ("VERSIONS", lambda model: ", ".join(of_model[model.name])),
        ("DESCRIPTION", lambda model: model.description),
        ("TAGS", lambda model: pairs(model.tags.items())),
        ("CREATED", lambda model: when(model.create_time)),
    ]


VERSIONS: list[tuple[str, Callable[[model_pb2.ModelVersion], str]]] = [
    ("VERSION", lambda version: short(version.name)),
    ("STATE", _state),
    ("SIZE", lambda version: size(version.size_bytes)),
    ("INPUTS", lambda version: _inputs(version)),
    ("OUTPUTS", lambda version: "text" if is_text(version) else _tensors(version.outputs)),
    ("DIGEST", lambda version: version.digest[:12]),
    ("CREATED", lambda version: when(version.create_time)),
]

ALIASES: list[tuple[str, Callable[[model_pb2.Alias], str]]] = [
    ("ALIAS", lambda alias: short(alias.name)),
    ("VERSION", lambda alias: short(alias.version)),
    ("MOVED", lambda alias: when(alias.update_time)),
]

ENDPOINTS: list[tuple[str, Callable[[endpoint_pb2.Endpoint], str]]] = [
    ("NAME", lambda endpoint: short(endpoint.name)),
    ("TRAFFIC", split_of),
    ("MIRROR", lambda endpoint: _mirror(endpoint)),
    ("STICKY", lambda endpoint: endpoint.sticky_header),
    ("UPDATED", lambda endpoint: when(endpoint.update_time)),
]


def version_fields(version: model_pb2.ModelVersion) -> dict[str, str]:
    """One version."""
    files = [f"{file.path} ({size(file.size_bytes)})" for file in version.files]
    return {
        "version": short(version.name),
        "state": _state(version),
        "digest": version.digest,
        "files": ", ".join(files),
        **_language_fields(version),
        "inputs": _tensors(version.inputs),
        "outputs": _tensors(version.outputs),
        **settings_fields(version.settings),
        "tuning": tuning_line(version),
        "lineage": pairs(version.lineage.items()),
        "created": when(version.create_time),
    }


def model_fields(whole: WholeModel) -> dict[str, str]:
    """One model with its versions and aliases."""
    model = whole.model
    aliases = [(short(alias.name).partition("@")[2], alias) for alias in whole.aliases]
    return {
        "model": short(model.name),
        "description": model.description,
        "tags": pairs(model.tags.items()),
        "versions": ", ".join(f"{short(v.name)} {_state(v)}" for v in whole.versions),
        "aliases": ", ".join(f"{name} → {short(alias.version)}" for name, alias in aliases),
        "created": when(model.create_time),
        "updated": when(model.update_time),
    }


def alias_fields(alias: model_pb2.Alias) -> dict[str, str]:
    """One alias."""
    return {"alias": short(alias.name), "version": short(alias.version)}


def endpoint_fields(endpoint: endpoint_pb2.Endpoint) -> dict[str, str]:
    """One endpoint, with what is set of its policy."""
    return {
        "endpoint": short(endpoint.name),
        "description": endpoint.description,
        "traffic": split_of(endpoint),
        "sticky": endpoint.sticky_header,
        "mirror": _mirror(endpoint),
        "timeout": _timeout(endpoint),
        "tags": pairs(endpoint.tags.items()),
        "updated": when(endpoint.update_time),
    }


def policy_fields(endpoint: endpoint_pb2.Endpoint) -> dict[str, str]:
    """One endpoint with its whole policy, also what is not set."""
    fields = endpoint_fields(endpoint)
    last = {key: fields.pop(key) for key in ("tags", "updated")}
    policy = {
        "sticky": endpoint.sticky_header or "off: each call by chance",
        "mirror": _mirror(endpoint) or "off",
        "timeout": _timeout(endpoint) or "60 s (default)",
        "retries": _retries(endpoint.retry_policy),
        "limits": _limits(endpoint.circuit_limits),
    }
    return fields | policy | last


def _retries(policy: endpoint_pb2.RetryPolicy) -> str:
    def given(field: _RetryField, default: int) -> str:
        is_set = policy.HasField(field)
        return f"{getattr(policy, field):g}" if is_set else f"{default} (default)"

    if policy.HasField("num_retries") and policy.num_retries == 0:
        return "off"
    return (
        f"{given('num_retries', 2)} of a call; in flight at once {given('budget_percent', 50)} %"
        f" of the calls, and always {given('min_retry_concurrency', 256)}"
    )


def _limits(limits: endpoint_pb2.CircuitLimits) -> str:
    def given(value: int, default: int) -> str:
        return str(value) if value else f"{default} (default)"

    return (
        f"calls in flight {given(limits.max_requests, 1024)},"
        f" mirrored {given(limits.max_mirror_requests, 64)}"
    )


def _timeout(endpoint: endpoint_pb2.Endpoint) -> str:
    seconds = endpoint.timeout.ToTimedelta().total_seconds()
    return f"{seconds:g} s" if seconds else ""


def _mirror(endpoint: endpoint_pb2.Endpoint) -> str:
    if not endpoint.HasField("mirror"):
        return ""
    return f"{endpoint.mirror.percent:g} % to {short(endpoint.mirror.target)}"
