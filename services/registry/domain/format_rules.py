"""Rules for settings that depend on what kind of artifact a version has."""

from dataclasses import fields

from services.registry.domain.model import Format, LanguageModel
from services.registry.domain.version_settings import GenerationSettings, VersionSettings
from services.rpc.violations import Violations

_OF_BOTH = frozenset({"intra_op_threads", "execution_providers", "generation"})
_FIELD = "settings.generation"


def check_kind(violations: Violations, settings: VersionSettings, kind: Format) -> None:
    """No settings that a version of this format would never use."""
    if not kind.is_language:
        violations.require(
            settings.generation is None, _FIELD, f"is set for FORMAT_{kind.value}; allowed: unset"
        )
        return
    for field in fields(settings):
        if field.name in _OF_BOTH or getattr(settings, field.name) == field.default:
            continue
        violations.add(
            f"settings.{field.name}",
            f"is set for FORMAT_{kind.value}; allowed: unset, as it is for tensors"
            f" (language models have {_FIELD})",
        )


def check_generation_fit(
    violations: Violations, settings: GenerationSettings, model: LanguageModel
) -> None:
    """No longer context than the model was made for."""
    violations.require(
        settings.context_length <= model.context_length,
        f"{_FIELD}.context_length",
        f"{settings.context_length} tokens; allowed: at most {model.context_length},"
        " which the model was made for",
    )
