"""How a language model is run here: what its settings say, else the worker's defaults."""

from dataclasses import replace

from services.worker.domain.assignment import RunSettings
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.step import RunnerCapacity


def engine_settings(given: RunSettings, defaults: EngineSettings) -> EngineSettings:
    """Settings without zeros, but for two that the loader reads: 0 threads are all CPUs, a context of 0 the model's."""
    wanted = given.generation
    return replace(
        defaults,
        kv_cache_bytes=wanted.kv_cache_bytes or defaults.kv_cache_bytes,
        max_running_requests=wanted.max_running_requests or defaults.max_running_requests,
        max_step_tokens=wanted.max_step_tokens or defaults.max_step_tokens,
        max_queue_requests=wanted.max_queue_requests or defaults.max_queue_requests,
        context_length=wanted.context_length,
        max_output_tokens=wanted.max_output_tokens or defaults.max_output_tokens,
        prefix_cache=wanted.prefix_cache and defaults.prefix_cache,
        max_tenant_share=wanted.max_tenant_share or defaults.max_tenant_share,
        target=defaults.target if wanted.target is Target.AUTO else wanted.target,
        threads=given.intra_op_threads or defaults.threads,
        execution_providers=given.execution_providers or defaults.execution_providers,
    )


def fitted(wanted: EngineSettings, shape: ModelShape, capacity: RunnerCapacity) -> EngineSettings:
    """The settings for a model: its context's length is the most, as far as one request has room for it."""
    room = capacity.block_size * min(capacity.max_blocks, capacity.blocks)
    length = min(wanted.context_length or shape.context_length, shape.context_length, room)
    return replace(wanted, context_length=length)


def remarks(
    wanted: EngineSettings, used: EngineSettings, shape: ModelShape, capacity: RunnerCapacity
) -> tuple[str, ...]:
    """What is otherwise than one would think who sees the settings and the model alone."""
    found = []
    length = min(wanted.context_length or shape.context_length, shape.context_length)
    if used.context_length < length:
        found.append(
            f"a request has room for {used.context_length} tokens, not for {length}:"
            f" kv_cache_bytes is {wanted.kv_cache_bytes}"
        )
    if capacity.slots and wanted.target is Target.AUTO:
        found.append(
            "our operators are not built here (`inferplane operators` does): the portable path computes,"
            " slower, and shares no prefixes"
        )
    return tuple(found)
