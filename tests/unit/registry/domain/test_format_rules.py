"""Settings that depend on what kind of artifact a version has."""

import pytest

from services.registry.domain.format_rules import check_generation_fit, check_kind
from services.registry.domain.generation_rules import check_generation
from services.registry.domain.model import Format, LanguageModel
from services.registry.domain.version_settings import GenerationSettings, VersionSettings
from services.rpc.violations import Violations
from tests.unit.registry.full_settings import FULL_SETTINGS

MODEL = LanguageModel(
    architecture="llama",
    parameter_count=1,
    context_length=2048,
    vocabulary_size=1,
    layer_count=1,
    precision="Q4_1",
    has_chat_template=False,
)
OF_TENSORS = {
    "max_batch_size", "max_queue_delay_us", "preferred_batch_sizes", "max_queue_rows",
    "max_queue_bytes", "queue_timeout_us", "priority_levels", "default_priority",
    "oversize_policy", "batch_axis", "padded_inputs", "trimmed_outputs", "instances", "cpus",
    "tuning_mode", "response_cache", "sequence",
}  # fmt: skip


@pytest.mark.parametrize("kind", [Format.GGUF, Format.SAFETENSORS])
def test_language_models_have_no_settings_of_tensors(kind: Format) -> None:
    """What a language model would never use is refused, every field by its name; the rest is taken."""
    violations = Violations()
    check_kind(violations, FULL_SETTINGS, kind)
    assert {one.field for one in violations.found} == {f"settings.{name}" for name in OF_TENSORS}
    taken = Violations()
    both = VersionSettings(
        intra_op_threads=2,
        execution_providers=("CPUExecutionProvider",),
        generation=GenerationSettings(max_step_tokens=64),
    )
    check_kind(taken, both, kind)
    assert taken.found == ()


def test_tensor_models_have_no_generation() -> None:
    """Settings of generation belong to language models."""
    violations = Violations()
    check_kind(violations, VersionSettings(generation=GenerationSettings()), Format.ONNX)
    (found,) = violations.found
    assert found.field == "settings.generation"
    assert "FORMAT_ONNX" in found.description


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (GenerationSettings(kv_cache_bytes=-1), "kv_cache_bytes"),
        (GenerationSettings(max_running_requests=4097), "max_running_requests"),
        (GenerationSettings(max_step_tokens=65_537), "max_step_tokens"),
        (GenerationSettings(max_queue_requests=1_000_001), "max_queue_requests"),
        (GenerationSettings(context_length=-5), "context_length"),
        (GenerationSettings(max_output_tokens=10**9 + 1), "max_output_tokens"),
        (GenerationSettings(max_tenant_percent=101), "max_tenant_percent"),
    ],
)
def test_numbers_have_ranges(settings: GenerationSettings, field: str) -> None:
    """What is out of range is refused with what was given."""
    violations = Violations()
    check_generation(violations, settings)
    (found,) = violations.found
    assert found.field == f"settings.generation.{field}"
    assert "allowed: 0 to" in found.description


def test_the_context_is_no_longer_than_the_model_s() -> None:
    """Both numbers are said; equal is allowed."""
    fits, too_long = Violations(), Violations()
    check_generation_fit(fits, GenerationSettings(context_length=2048), MODEL)
    check_generation_fit(too_long, GenerationSettings(context_length=2049), MODEL)
    assert fits.found == ()
    assert "2049 tokens; allowed: at most 2048" in too_long.found[0].description
