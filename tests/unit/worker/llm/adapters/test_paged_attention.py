"""The operator PagedAttention in each variant: right, the same bits however it is cut, and strict about its tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.worker.llm.adapters.operators import VARIANTS
from services.worker.llm.domain.quantised import Array
from tests.unit.worker.llm.adapters.native_variants import built_library, variant_in_use
from tests.unit.worker.llm.adapters.one_operator import PagedCache
from tests.unit.worker.llm.adapters.reference_ops import (
    AttentionCase,
    ReferenceAttention,
    rope_tables,
)

RANDOM = np.random.default_rng(9)
LENGTH = 150  # more than one span of 128 keys, and not whole blocks
CASES = {
    "smollm2": AttentionCase(heads=9, kv_heads=3, head_size=64),
    "one-kv-head-of-twelve": AttentionCase(heads=12, kv_heads=1, head_size=32),
    "more-heads-than-a-tile-has-rows": AttentionCase(heads=50, kv_heads=1, head_size=16),
    "normed-and-partly-turned": AttentionCase(
        heads=4, kv_heads=2, head_size=80, rope_size=40, normed=True, epsilon=1e-5
    ),
    "not-turned": AttentionCase(heads=2, kv_heads=1, head_size=96, rope_size=0),
    "window": AttentionCase(heads=2, kv_heads=2, head_size=128, window=20, layer=1),
    "window-over-spans": AttentionCase(heads=4, kv_heads=1, head_size=48, window=140),
    "soft-cap-and-scale": AttentionCase(
        heads=7, kv_heads=7, head_size=256, softcap=3.0, scale=0.11
    ),
}


@pytest.fixture(params=VARIANTS)
def library(request: pytest.FixtureRequest) -> Iterator[Path]:
    with variant_in_use(request.param) as path:
        yield path


def new_rows(case: AttentionCase, tokens: int) -> Array:
    width = (case.heads + 2 * case.kv_heads) * case.head_size
    return RANDOM.normal(size=(tokens, width)).astype(np.float32)


def norms_of(case: AttentionCase) -> tuple[Array, Array] | None:
    if not case.normed:
        return None
    q_norm, k_norm = RANDOM.uniform(0.5, 2, (2, case.head_size)).astype(np.float32)
    return q_norm, k_norm


def some_blocks(requests: int, most: int = 12) -> Array:
    """Blocks of requests, scattered over the cache."""
    return RANDOM.permutation(64)[: requests * most].reshape(requests, most)


@pytest.mark.parametrize("kept", [np.float16, np.float32])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_outputs(library: Path, case: AttentionCase, kept: Any) -> None:
    """Outputs of requests of several lengths in one step are those of the reference."""
    tables, norms = rope_tables(LENGTH, case.rotated), norms_of(case)
    counts = [LENGTH, 1, 17]
    rows = [new_rows(case, count) for count in counts]
    cache = PagedCache(library, case, tables, kept=kept, norms=norms, threads=2)
    made = cache.step(np.concatenate(rows), counts, [0, 0, 0], some_blocks(3))
    reference = ReferenceAttention(case, *tables, norms=norms)
    expected = np.concatenate([reference.run(each, kept) for each in rows])
    # A key that is rounded the other way, once in a while, is all that float16 may change.
    np.testing.assert_allclose(made, expected, atol=2e-3 if kept is np.float16 else 2e-5)


@pytest.mark.parametrize(
    "case",
    [
        CASES[name]
        for name in ("smollm2", "window", "window-over-spans", "normed-and-partly-turned")
    ],
    ids=("smollm2", "window", "window-over-spans", "normed"),
)
@pytest.mark.parametrize(
    "pieces",
    [[1] * LENGTH, [7] * 21 + [3], [100, 1, 49], [16, 112, 22]],
    ids=["one-by-one", "sevens", "uneven", "at-blocks"],
)
def test_how_a_prompt_is_cut_does_not_matter(
    library: Path, case: AttentionCase, pieces: list[int]
) -> None:
    """A token's outputs are the same bits in a whole prompt, in pieces of it, alone, and beside another request."""
    tables, norms = rope_tables(LENGTH, case.rotated), norms_of(case)
    rows, blocks = new_rows(case, LENGTH), some_blocks(2)
    whole = PagedCache(library, case, tables, norms=norms).step(rows, [LENGTH], [0], blocks[:1])
    cache = PagedCache(library, case, tables, norms=norms, threads=3)
    done = 0
    for count in pieces:
        beside = new_rows(case, 5)
        both = np.concatenate([beside, rows[done : done + count]])
        made = cache.step(both, [5, count], [3, done], blocks[::-1])
        np.testing.assert_array_equal(made[5:], whole[done : done + count])
        done += count
    assert done == LENGTH


def test_what_lies_beyond_a_requests_tokens_does_not_matter(library: Path) -> None:
    """Whatever a block held before, NaN included, is not in a result: a fresh cache and a full one give the same."""
    case = CASES["smollm2"]
    tables, rows, blocks = rope_tables(40, 64), new_rows(case, 21), some_blocks(1)
    fresh = PagedCache(library, case, tables)
    full = PagedCache(library, case, tables)
    full.kv[:] = RANDOM.normal(size=full.kv.shape)
    made = fresh.step(rows, [21], [0], blocks)
    np.testing.assert_array_equal(full.step(rows, [21], [0], blocks), made)
    assert np.isfinite(made).all()


def test_only_a_requests_own_places_are_written(library: Path) -> None:
    """A step writes the new tokens' places of one layer and nothing else."""
    case = AttentionCase(heads=2, kv_heads=1, head_size=32, layer=1)
    cache = PagedCache(library, case, rope_tables(40, 32), blocks=8, layers=3, kept=np.float32)
    cache.step(new_rows(case, 3), [3], [15], np.array([[5, 2]]))
    written = ~np.isnan(cache.kv)
    assert not written[[0, 2]].any()
    keys = written[1, 0].reshape(8, 32, 16).all(axis=1)
    values = written[1, 1].reshape(8, 16, 32).all(axis=2)
    expected = np.zeros((8, 16), bool)
    expected[5, 15] = expected[2, :2] = True
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(values, expected)
    assert written.sum() == 2 * 3 * 32


def test_a_token_without_numbers_spoils_nothing_before_it(library: Path) -> None:
    """Infinity in a token's keys and values reaches those that see it, and no others."""
    case = CASES["smollm2"]
    rows = new_rows(case, 30)
    clean = PagedCache(library, case, rope_tables(40, 64)).step(rows, [30], [0], some_blocks(1))
    rows[20] = np.inf
    spoilt = PagedCache(library, case, rope_tables(40, 64)).step(rows, [30], [0], some_blocks(1))
    np.testing.assert_array_equal(spoilt[:20], clean[:20])
    assert not np.isfinite(spoilt[20:]).any()


def test_nothing_to_do(library: Path) -> None:
    """No tokens, or a request without new ones, is no mistake; such a request's table is not looked at."""
    case = CASES["smollm2"]
    cache = PagedCache(library, case, rope_tables(40, 64))
    assert cache.step(new_rows(case, 0), [], [], np.zeros((0, 4))).shape == (0, 9 * 64)
    assert cache.step(new_rows(case, 0), [0], [7], np.full((1, 4), 99)).shape == (0, 9 * 64)


SMALL = AttentionCase(heads=2, kv_heads=1, head_size=32)
GOOD: dict[str, Array] = {
    "qkv": new_rows(SMALL, 4),
    "starts": np.array([0, 3, 4], np.int32),
    "past": np.array([0, 20], np.int32),
    "blocks": np.array([[1, 0], [2, 3]], np.int32),
}


def changed(name: str, value: Any) -> dict[str, Array]:
    return {name: np.array(value, GOOD[name].dtype if name in GOOD else np.float32)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(changed("blocks", [[8, 0], [2, 3]]), "block 0 of request 0 is 8, but kv has 8", id="block-8"),
        pytest.param(changed("blocks", [[1, 0], [2, -1]]), "block 1 of request 1 is -1", id="block-below"),
        pytest.param(changed("blocks", [[1], [2]]), "request 1 has 21 tokens, but its 1 blocks hold 16", id="blocks"),
        pytest.param(changed("blocks", [1, 2]), "2 dimensions", id="flat-blocks"),
        pytest.param(changed("blocks", [[1, 2]]), r"blocks has the shape \[1, 2\]", id="few-tables"),
        pytest.param(changed("past", [0, -1]), "past is -1", id="past-below"),
        pytest.param(changed("past", [0, 2**31 - 1]), "request 1 has 2147483648 tokens", id="past-above"),
        pytest.param(changed("past", [0]), r"starts has the shape \[3\], not \[2\]", id="few-pasts"),
        pytest.param(changed("past", [0, 31]), "cos and sin have 30 positions", id="positions"),
        pytest.param(changed("starts", [0, 5, 4]), "starts descends from 5 to 4 at request 1", id="descending"),
        pytest.param(changed("starts", [0, -3, 4]), "starts descends", id="start-below"),
        pytest.param(changed("starts", [1, 3, 4]), "starts goes from 1 to 4", id="first-start"),
        pytest.param(changed("starts", [0, 3, 5]), "not from 0 to the 4 tokens", id="last-start"),
        pytest.param(changed("starts", []), "starts has the shape", id="no-starts"),
        pytest.param(changed("qkv", np.zeros((4, 100))), "its width is not 4 times", id="width"),
        pytest.param(changed("qkv", np.zeros((4, 4 * 272))), "its width is not 4 times", id="large-heads"),
        pytest.param(changed("qkv", np.zeros((4, 0))), "its width is not 4 times", id="no-width"),
        pytest.param(changed("qkv", np.zeros((4, 4 * 48))), "kv has the shape", id="other-heads"),
        pytest.param(changed("sin", np.zeros((40, 8))), "sin has the shape", id="sin"),
        pytest.param(
            changed("cos", np.zeros((40, 17))) | changed("sin", np.zeros((40, 17))),
            "rope of 34 elements in heads of 32",
            id="rope",
        ),
        pytest.param(changed("q_norm", np.ones(31)), r"q_norm has the shape \[31\]", id="q-norm"),
        pytest.param(changed("k_norm", np.ones((1, 32))), "k_norm has the shape", id="k-norm"),
        pytest.param({"kv": np.zeros((1, 2, 8, 2, 512), np.float16)}, "kv has the shape", id="kv-heads"),
        pytest.param({"kv": np.zeros((1, 3, 8, 1, 512), np.float16)}, "kv has the shape", id="kv-thirds"),
        pytest.param({"kv": np.zeros((0, 2, 8, 1, 512), np.float16)}, "layer is 0, but kv has 0", id="layers"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(wrong: dict[str, Array], said: str) -> None:
    """Whatever does not fit is named before anything is read or written there."""
    norms = (np.ones(32, np.float32), np.ones(32, np.float32))
    cache = PagedCache(built_library(), SMALL, rope_tables(30, 32), blocks=8, layers=1, norms=norms)
    if said.startswith("cos and sin"):
        wrong = {
            **wrong,
            "blocks": np.array([[1, 0], [2, 3]], np.int32),
            "past": np.array([0, 30], np.int32),
        }
    with pytest.raises(Exception, match=said):
        cache.run(**{**GOOD, **wrong})
    assert np.isnan(cache.kv).all()
    cache.run(**GOOD)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (AttentionCase(heads=3, kv_heads=2, head_size=32), "kv_num_heads is 2, no divisor"),
        (AttentionCase(heads=2, kv_heads=0, head_size=32), "kv_num_heads is 0"),
        (AttentionCase(heads=2, kv_heads=1, head_size=32, window=-1), "window is -1"),
        (AttentionCase(heads=2, kv_heads=1, head_size=32, softcap=float("nan")), "softcap"),
        (AttentionCase(heads=2, kv_heads=1, head_size=32, scale=-1.0), "scale"),
        (AttentionCase(heads=2, kv_heads=1, head_size=32, layer=-1), "layer is -1"),
    ],
)
def test_attributes_out_of_range(case: AttentionCase, said: str) -> None:
    """A graph with attributes that mean nothing is not loaded."""
    with pytest.raises(Exception, match=said):
        PagedCache(built_library(), case, rope_tables(4, 32))
