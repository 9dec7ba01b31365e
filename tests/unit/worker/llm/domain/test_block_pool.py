"""Blocks between free, used and cached."""

import pytest

from services.worker.llm.domain.block_hash import BlockHash, BlockHasher
from services.worker.llm.domain.block_pool import BlockId, BlockPool

A, B, C = (BlockHash(letter.encode() * 16) for letter in "abc")


def named(pool: BlockPool, name: BlockHash, tokens: tuple[int, ...] = (1, 2)) -> BlockId:
    block = pool.take()
    pool.name(block, name, tokens)
    return block


def test_blocks_are_taken_in_order_and_the_last_freed_comes_first() -> None:
    """Free blocks are a stack."""
    pool = BlockPool(4)
    assert [pool.take() for _ in range(3)] == [0, 1, 2]
    pool.release(BlockId(0))
    pool.release(BlockId(1))
    assert [pool.take(), pool.take(), pool.take()] == [1, 0, 3]
    assert (pool.free, pool.used, pool.cached) == (0, 4, 0)


def test_a_named_block_is_cached_when_nobody_holds_it_and_found_again() -> None:
    """And held again it is used."""
    pool = BlockPool(2)
    block = named(pool, A)
    assert pool.release(block)
    assert (pool.free, pool.used, pool.cached) == (1, 0, 1)
    assert pool.find(A, (1, 2)) == block
    assert pool.hold(block)
    assert not pool.hold(block)
    assert (pool.used, pool.holders(block)) == (1, 2)
    assert not pool.release(block)
    pool.check()


def test_a_name_alone_is_not_believed() -> None:
    """Other tokens under the same name are not found."""
    pool = BlockPool(1)
    named(pool, A, (1, 2))
    assert pool.find(A, (1, 3)) is None
    assert pool.find(B, (1, 2)) is None


def test_what_was_let_go_longest_ago_is_evicted_first_and_only_when_nothing_is_free() -> None:
    """And its name goes with it."""
    pool = BlockPool(3)
    first, second = named(pool, A), named(pool, B)
    pool.release(second)
    pool.release(first)
    assert pool.take() == 2
    assert pool.take() == second
    assert pool.find(B, (1, 2)) is None
    assert pool.find(A, (1, 2)) == first
    pool.check()


def test_a_hit_makes_a_block_young_again() -> None:
    """The other one goes first then."""
    pool = BlockPool(2)
    first, second = named(pool, A), named(pool, B)
    pool.release(first)
    pool.release(second)
    pool.hold(first)
    pool.release(first)
    assert pool.take() == second


def test_the_first_block_of_a_name_keeps_it() -> None:
    """A second one with the same contents is free again when it is let go."""
    pool = BlockPool(2)
    first, second = named(pool, A), named(pool, A)
    pool.release(second)
    assert (pool.free, pool.cached) == (1, 0)
    assert pool.find(A, (1, 2)) == first
    pool.check()


def test_a_pool_that_keeps_nothing_shares_only_what_is_in_use() -> None:
    """Without a holder a named block is free, and not found."""
    pool = BlockPool(1, keeps=False)
    block = named(pool, A)
    assert pool.find(A, (1, 2)) == block
    pool.release(block)
    assert (pool.free, pool.cached) == (1, 0)
    assert pool.find(A, (1, 2)) is None
    pool.check()


def test_check_finds_a_block_that_was_released_too_often() -> None:
    """It says so instead of handing it to two."""
    pool = BlockPool(2)
    block = pool.take()
    pool.release(block)
    pool.release(block)
    with pytest.raises(AssertionError, match="released too often"):
        pool.check()


def test_names_depend_on_secret_tenant_and_everything_before() -> None:
    """The same tokens have the same name only behind the same beginning."""
    hasher = BlockHasher(b"s" * 32)
    root = hasher.root("one")
    assert hasher.after(root, [1, 2]) == hasher.after(root, (1, 2))
    different = {
        hasher.after(root, [1, 2]),
        hasher.after(root, [2, 1]),
        hasher.after(hasher.root("two"), [1, 2]),
        hasher.after(hasher.after(root, [1, 2]), [1, 2]),
        BlockHasher(b"t" * 32).after(BlockHasher(b"t" * 32).root("one"), [1, 2]),
        root,
    }
    assert len(different) == 6
