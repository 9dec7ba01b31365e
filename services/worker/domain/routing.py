"""Which version a call is for: the one that Envoy's cluster stamped, or, without Envoy, the one the body names."""

from collections.abc import Iterable
from dataclasses import dataclass

from services.rpc.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from services.rpc.names import VersionName, shown


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call says about where it belongs."""

    model_name: str  # from the body: endpoint id behind Envoy, else model id
    model_version: str  # from the body; empty: any
    routed_version: str | None = None  # `x-inferplane-version`, stamped by Envoy's cluster
    routed_endpoint: str | None = None  # `x-inferplane-endpoint`, set at the edge
    retried: bool = False  # Envoy has sent it to another worker before


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version on this worker."""

    name: VersionName
    created_ns: int
    serves: bool


def check_routed(asked: Asked, version: str) -> None:
    """Raise InvalidArgumentError unless the body agrees with where Envoy sent it; `version` is the routed id."""
    if asked.routed_endpoint is not None and asked.model_name != asked.routed_endpoint:
        raise InvalidArgumentError.of_field(
            "model_name",
            f"{shown(asked.model_name)} in the body, but the call was routed for"
            f" {shown(asked.routed_endpoint)}; allowed: the same name",
        )
    if asked.model_version and asked.model_version != version:
        raise InvalidArgumentError.of_field(
            "model_version",
            f"{shown(asked.model_version)} in the body, but the call was routed to version"
            f" {version!r}; allowed: that version, or none",
        )


def choose(asked: Asked, candidates: Iterable[Candidate]) -> VersionName:
    """The version for a call that came past Envoy: newest serving one of the model, or the one named.

    Raises NotFoundError if nothing here has that name, UnavailableError if it is here but does not serve.
    """
    named = [c for c in candidates if c.name.model == asked.model_name]
    if asked.model_version:
        named = [c for c in named if c.name.version == asked.model_version]
    if not named:
        raise unknown(asked)
    serving = [c for c in named if c.serves]
    if not serving:
        raise not_ready(str(named[0].name))
    return max(serving, key=lambda c: c.created_ns).name


def unknown(asked: Asked) -> NotFoundError:
    """No such model, or no such version of it."""
    version = f" version {shown(asked.model_version)}" if asked.model_version else ""
    return NotFoundError(
        f"model {shown(asked.model_name)}{version} does not exist here",
        reason="MODEL_NOT_FOUND",
        metadata={
            "model_name": asked.model_name[:256],
            "model_version": asked.model_version[:256],
        },
    )


def not_ready(version: str) -> UnavailableError:
    """The version may well be READY on another worker."""
    return UnavailableError(
        f"{shown(version)} is not ready on this worker",
        reason="VERSION_NOT_READY",
        metadata={"version": version[:256]},
        retry_after=0.1,
    )


def is_language_model(asked: Asked) -> FailedPreconditionError:
    """A call of the Open Inference Protocol came for a model that continues texts."""
    return FailedPreconditionError(
        f"{shown(asked.model_name)} is a language model and takes no tensors; ask it with Generate (inferplane"
        " generate, inferplane.generation.v1), or POST /v1/chat/completions or /v1/completions",
        reason="LANGUAGE_MODEL",
        metadata={"model_name": asked.model_name[:256]},
    )


def is_no_language_model(asked: Asked) -> FailedPreconditionError:
    """A call for text came for a model that computes tensors."""
    return FailedPreconditionError(
        f"{shown(asked.model_name)} is not a language model; allowed: inference.GRPCInferenceService/ModelInfer,"
        " or POST /v2/models/{endpoint}/infer",
        reason="NOT_A_LANGUAGE_MODEL",
        metadata={"model_name": asked.model_name[:256]},
    )
