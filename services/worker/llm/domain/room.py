"""How many requests fit: blocks from bytes."""

from dataclasses import dataclass

from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.step import RunnerCapacity

_WANTED_SLOTS = 4  # rather than fewer, slots hold less than the model's context


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheForm:
    """How keys and values are kept."""

    bytes_per_number: int
    block_size: int = 0  # tokens; 0: a block is a request's slot


def capacity_of(shape: ModelShape, settings: EngineSettings, form: CacheForm) -> RunnerCapacity:
    """What the cache has room for. Raises LoadError if that is nothing."""
    token = token_bytes(shape, form)
    tokens = settings.kv_cache_bytes // token
    context = context_length(shape, settings)
    size = form.block_size or min(context, max(tokens // _WANTED_SLOTS, 1))
    blocks = tokens // size
    if not blocks:
        raise LoadError(
            f"kv_cache_bytes is {settings.kv_cache_bytes}: not even one block of {size} tokens fits, which takes"
            f" {token * size} bytes; a request of {context} tokens takes {token * context}"
        )
    return RunnerCapacity(
        blocks=blocks if form.block_size else min(blocks, settings.max_running_requests),
        block_size=size,
        max_tokens=settings.max_step_tokens,
        max_requests=settings.max_running_requests,
        max_blocks=-(-context // size) if form.block_size else 1,
        vocabulary_size=shape.vocabulary_size,
        slots=not form.block_size,
    )


def token_bytes(shape: ModelShape, form: CacheForm) -> int:
    """Of one token's keys and values in all layers."""
    return 2 * shape.layers * shape.kv_heads * shape.head_size * form.bytes_per_number


def context_length(shape: ModelShape, settings: EngineSettings) -> int:
    """Tokens of prompt and answer together."""
    return min(settings.context_length or shape.context_length, shape.context_length)
