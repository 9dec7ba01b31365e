"""Puts an engine's parts together: from a model's sizes and what the settings allow."""

import secrets
import time

from services.worker.domain.progress import Progress
from services.worker.llm.domain.block_hash import BlockHasher
from services.worker.llm.domain.door import Door
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.kv_cache import CacheSizes, KvCache
from services.worker.llm.domain.scheduler import Scheduler, SchedulerLimits
from services.worker.llm.domain.step import RunnerCapacity
from services.worker.llm.domain.text_state import Vocabulary
from services.worker.llm.drivers.stepper import Stepper, StepperParts
from services.worker.llm.ports.language_model import LanguageModel


def _tenant_blocks(capacity: RunnerCapacity, settings: EngineSettings) -> int:
    return max(1, min(capacity.blocks, int(capacity.blocks * settings.max_tenant_share)))


def door_of(model: LanguageModel, settings: EngineSettings) -> Door:
    """What one request may ask for."""
    capacity = model.runner.capacity
    tenant_blocks = _tenant_blocks(capacity, settings)
    longest = capacity.max_blocks * capacity.block_size
    return Door(
        context_length=min(settings.context_length or model.shape.context_length, longest),
        block_size=capacity.block_size,
        text_blocks=min(capacity.max_blocks, tenant_blocks),
        cache_blocks=capacity.blocks,
        vocabulary_size=model.tokenizer.vocabulary_size,
        max_output_tokens=settings.max_output_tokens,
        queue_requests=settings.max_queue_requests,
    )


def scheduler_of(capacity: RunnerCapacity, settings: EngineSettings) -> Scheduler:
    """A scheduler with an empty cache."""
    sizes = CacheSizes(
        blocks=capacity.blocks,
        block_size=capacity.block_size,
        max_blocks=capacity.max_blocks,
        tenant_blocks=_tenant_blocks(capacity, settings),
    )
    shares = settings.prefix_cache and not capacity.slots
    hasher = None if capacity.slots else BlockHasher(secrets.token_bytes(32))
    step_tokens = min(settings.max_step_tokens, capacity.max_tokens)
    limits = SchedulerLimits(
        step_tokens=step_tokens,
        running=min(settings.max_running_requests, capacity.max_requests, step_tokens),
        shares_prefixes=shares,
    )
    return Scheduler(KvCache(sizes, hasher, keeps=shares), limits)


def stepper_of(model: LanguageModel, settings: EngineSettings, progress: Progress) -> Stepper:
    """A stepper in which nothing is open."""
    tokenizer = model.tokenizer
    return Stepper(
        StepperParts(
            scheduler=scheduler_of(model.runner.capacity, settings),
            runner=model.runner,
            vocabulary=Vocabulary(
                tokenizer.vocabulary_size, tokenizer.token_bytes, tokenizer.end_ids
            ),
            progress=progress,
            clock=time.monotonic,
        )
    )
