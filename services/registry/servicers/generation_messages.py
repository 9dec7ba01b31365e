"""Settings of language models between messages and the domain."""

from collections.abc import Mapping

from inferplane.registry.v1 import model_pb2 as pb

from services.registry.domain.version_settings import (
    GenerationSettings,
    GenerationTarget,
    PrefixCacheMode,
)
from services.registry.servicers.enum_messages import read_enum
from services.rpc.violations import Violations

_CACHE: Mapping[PrefixCacheMode | None, pb.PrefixCacheMode.ValueType] = {
    None: pb.PREFIX_CACHE_MODE_UNSPECIFIED,
    PrefixCacheMode.ON: pb.PREFIX_CACHE_MODE_ON,
    PrefixCacheMode.OFF: pb.PREFIX_CACHE_MODE_OFF,
}
_TARGET: Mapping[GenerationTarget | None, pb.GenerationTarget.ValueType] = {
    None: pb.GENERATION_TARGET_UNSPECIFIED,
    GenerationTarget.NATIVE: pb.GENERATION_TARGET_NATIVE,
    GenerationTarget.PORTABLE: pb.GENERATION_TARGET_PORTABLE,
    GenerationTarget.CUDA: pb.GENERATION_TARGET_CUDA,
}


def generation_message(settings: GenerationSettings) -> pb.GenerationSettings:
    """The settings as a message."""
    return pb.GenerationSettings(
        kv_cache_bytes=settings.kv_cache_bytes,
        max_running_requests=settings.max_running_requests,
        max_step_tokens=settings.max_step_tokens,
        max_queue_requests=settings.max_queue_requests,
        context_length=settings.context_length,
        max_output_tokens=settings.max_output_tokens,
        prefix_cache=_CACHE[settings.prefix_cache],
        max_tenant_percent=settings.max_tenant_percent,
        target=_TARGET[settings.target],
    )


def read_generation(
    violations: Violations, message: pb.VersionSettings
) -> GenerationSettings | None:
    """The settings as the caller wrote them; values of enums that are none are noted."""
    if not message.HasField("generation"):
        return None
    given = message.generation
    return GenerationSettings(
        kv_cache_bytes=given.kv_cache_bytes,
        max_running_requests=given.max_running_requests,
        max_step_tokens=given.max_step_tokens,
        max_queue_requests=given.max_queue_requests,
        context_length=given.context_length,
        max_output_tokens=given.max_output_tokens,
        prefix_cache=read_enum(violations, "generation.prefix_cache", given.prefix_cache, _CACHE),
        max_tenant_percent=given.max_tenant_percent,
        target=read_enum(violations, "generation.target", given.target, _TARGET),
    )
