"""How many blocks and slots fit into bytes."""

import pytest

from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.engine_settings import EngineSettings
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.room import CacheForm, capacity_of

SHAPE = ModelShape(
    architecture="llama",
    layers=3,
    hidden_size=64,
    feed_forward_size=64,
    heads=4,
    kv_heads=2,
    head_size=16,
    vocabulary_size=288,
    context_length=100,
    rms_epsilon=1e-5,
    rope_base=10_000.0,
    rope_size=16,
    tied_embedding=True,
)
TOKEN = 2 * 3 * 2 * 16 * 2  # bytes: keys and values, layers, heads, elements of 2 bytes
PAGED = CacheForm(block_size=16, bytes_per_number=2)
SLOTS = CacheForm(bytes_per_number=2)


def settings(tokens: int, **fields: int) -> EngineSettings:
    """A cache of so many tokens."""
    return EngineSettings(kv_cache_bytes=tokens * TOKEN, **fields)  # type: ignore[arg-type]


def test_blocks_are_as_many_as_fit_and_a_request_has_as_many_as_its_context() -> None:
    """A block that doesn't fit whole is none; a context of 100 tokens takes seven blocks of 16."""
    capacity = capacity_of(SHAPE, settings(1000), PAGED)
    assert (capacity.blocks, capacity.block_size, capacity.max_blocks) == (62, 16, 7)
    assert not capacity.slots


def test_a_shorter_context_of_the_settings_counts() -> None:
    """Never a longer one than the model was made for."""
    assert capacity_of(SHAPE, settings(1000, context_length=40), PAGED).max_blocks == 3
    assert capacity_of(SHAPE, settings(1000, context_length=4000), PAGED).max_blocks == 7


def test_slots_are_contexts_no_more_of_them_than_requests() -> None:
    """Ten contexts fit, eight requests run at once."""
    capacity = capacity_of(SHAPE, settings(1000, max_running_requests=8), SLOTS)
    assert (capacity.blocks, capacity.block_size, capacity.max_blocks) == (8, 100, 1)
    assert capacity.slots


def test_rather_than_few_slots_there_are_short_ones() -> None:
    """Two contexts become four slots of half of one."""
    capacity = capacity_of(SHAPE, settings(200), SLOTS)
    assert (capacity.blocks, capacity.block_size) == (4, 50)


@pytest.mark.parametrize("form", [PAGED, SLOTS], ids=["paged", "slots"])
def test_a_cache_of_nothing_is_refused(form: CacheForm) -> None:
    """It says how large a request is."""
    with pytest.raises(LoadError, match=f"a request of 100 tokens takes {100 * TOKEN}"):
        capacity_of(SHAPE, settings(0), form)
