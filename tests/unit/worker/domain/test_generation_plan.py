"""How a language model is run: its settings before the worker's defaults."""

import dataclasses

from services.worker.domain.assignment import GenerationSettings, RunSettings
from services.worker.domain.generation_plan import engine_settings, fitted, remarks
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.step import RunnerCapacity

DEFAULTS = EngineSettings(threads=2)
SHAPE = ModelShape(
    architecture="llama",
    layers=2,
    hidden_size=64,
    feed_forward_size=128,
    heads=4,
    kv_heads=2,
    head_size=16,
    vocabulary_size=300,
    context_length=2048,
    rms_epsilon=1e-5,
    rope_base=10_000.0,
    rope_size=16,
    tied_embedding=True,
)


def test_what_settings_do_not_say_is_the_workers() -> None:
    """Settings that say nothing leave every default as it is."""
    assert engine_settings(RunSettings(), DEFAULTS) == DEFAULTS


def test_every_setting_comes_before_the_default() -> None:
    """Each value that a version's settings have is the one that is used."""
    given = RunSettings(
        intra_op_threads=1,
        execution_providers=("CUDAExecutionProvider",),
        generation=GenerationSettings(
            kv_cache_bytes=1,
            max_running_requests=2,
            max_step_tokens=3,
            max_queue_requests=4,
            context_length=5,
            max_output_tokens=6,
            prefix_cache=False,
            max_tenant_share=0.5,
            target=Target.CUDA,
        ),
    )
    found = engine_settings(given, DEFAULTS)
    same = [
        f.name
        for f in dataclasses.fields(found)
        if getattr(found, f.name) == getattr(DEFAULTS, f.name)
    ]
    assert same == []
    assert (found.kv_cache_bytes, found.target, found.threads) == (1, Target.CUDA, 1)


CAPACITY = RunnerCapacity(
    blocks=1000,
    block_size=16,
    max_tokens=128,
    max_requests=8,
    max_blocks=128,
    vocabulary_size=300,
)


def test_the_context_is_never_longer_than_the_models() -> None:
    """A setting may shorten it; unset, it is the model's own."""
    assert fitted(DEFAULTS, SHAPE, CAPACITY).context_length == 2048
    short = dataclasses.replace(DEFAULTS, context_length=100)
    assert fitted(short, SHAPE, CAPACITY).context_length == 100
    long = dataclasses.replace(DEFAULTS, context_length=10_000)
    assert fitted(long, SHAPE, CAPACITY).context_length == 2048


def test_the_context_is_no_longer_than_one_request_has_room_for() -> None:
    """Neither a request's slot nor all of the cache may be too small for what callers are promised."""
    slots = dataclasses.replace(CAPACITY, blocks=4, block_size=700, max_blocks=1)
    assert fitted(DEFAULTS, SHAPE, slots).context_length == 700
    small = dataclasses.replace(CAPACITY, blocks=10)
    assert fitted(DEFAULTS, SHAPE, small).context_length == 160


def test_what_is_otherwise_than_one_would_think_is_told() -> None:
    """A context that the cache cuts short, and a path that nobody asked for; nothing else."""
    assert remarks(DEFAULTS, fitted(DEFAULTS, SHAPE, CAPACITY), SHAPE, CAPACITY) == ()
    slots = dataclasses.replace(CAPACITY, blocks=4, block_size=700, max_blocks=1, slots=True)
    short, path = remarks(DEFAULTS, fitted(DEFAULTS, SHAPE, slots), SHAPE, slots)
    assert short == "a request has room for 700 tokens, not for 2048: kv_cache_bytes is 536870912"
    assert path.startswith("our operators are not built here")
    asked = dataclasses.replace(DEFAULTS, target=Target.PORTABLE, context_length=600)
    assert remarks(asked, fitted(asked, SHAPE, slots), SHAPE, slots) == ()
