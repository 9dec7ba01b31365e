"""Which text holds which blocks, what it can share with others of its tenant, and how much a tenant may hold.

Asking changes nothing: `prefix`, `needed`, `room`. Doing: `adopt`, `grow`, `wrote`, `release`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.worker.llm.domain.block_hash import BlockHash, BlockHasher
from services.worker.llm.domain.block_pool import BlockId, BlockPool
from services.worker.llm.domain.generation import TokenId
from services.worker.llm.domain.step import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSizes:
    """What is there, and how much of it one text and one tenant may hold."""

    blocks: int
    block_size: int  # tokens
    max_blocks: int  # of one text
    tenant_blocks: int  # of one tenant's running texts together


@dataclass(slots=True, eq=False)
class BlockTable:
    """The blocks of one text, in order; equal only to itself."""

    tenant: str
    priority: int
    root: BlockHash | None  # where its chain of names begins; None: it shares nothing
    row: Array  # int32, as the runner reads it; the first `count` are held
    # Of full blocks, as far as they were asked for.
    names: list[BlockHash] = field(default_factory=list)
    blocks: list[BlockId] = field(default_factory=list)
    places: int = 0  # tokens that its blocks have room for
    next_name: int = 0  # with so many tokens computed another block can be named
    awaits: BlockHash | None = None  # the last block that another text computes for it


@dataclass(frozen=True, slots=True)
class Prefix:
    """What is there already of a text's tokens."""

    blocks: tuple[BlockId, ...] = ()
    awaited: BlockHash | None = None  # another text computes what comes next, up to this block


class KvCache:
    """All texts' blocks."""

    def __init__(self, sizes: CacheSizes, hasher: BlockHasher | None, *, keeps: bool) -> None:
        """Nothing is held.

        Args:
            sizes: of the runner's memory, and bounds.
            hasher: names blocks, so that they can be shared; None: nothing is shared.
            keeps: whether named blocks stay when nobody holds them.
        """
        self.sizes = sizes
        self.pool = BlockPool(sizes.blocks, keeps=keeps)
        self._hasher = hasher
        # Blocks in use, by tenant: nothing is shared between tenants.
        self._held: Counter[str] = Counter()
        # Blocks that running texts are going to compute.
        self._coming: dict[BlockHash, BlockTable] = {}

    def table(self, tenant: str, priority: int, salt: str | None) -> BlockTable:
        """An empty one. Tables with the same `salt` share what is the same; None: it shares nothing."""
        root = None if salt is None or self._hasher is None else self._hasher.root(salt)
        row = np.zeros(self.sizes.max_blocks, np.int32)
        return BlockTable(tenant, priority, root, row)

    def blocks_of(self, tokens: int) -> int:
        """How many blocks so many tokens take."""
        return -(-tokens // self.sizes.block_size)

    def prefix(self, table: BlockTable, tokens: Sequence[TokenId]) -> Prefix:
        """What an empty table could adopt of these tokens; the last of them is always computed anew."""
        if table.root is None:
            return Prefix()
        if table.awaits in self._coming:
            return Prefix(awaited=table.awaits)
        size = self.sizes.block_size
        count = (len(tokens) - 1) // size
        names = self._names(table, tokens, count)
        found: list[BlockId] = []
        for place, name in enumerate(names[:count]):
            block = self.pool.find(name, tokens[place * size : (place + 1) * size])
            if block is None:
                break
            found.append(block)
        table.awaits = self._last_coming(table, names[len(found) : count])
        return Prefix(tuple(found), table.awaits)

    def needed(self, tokens: int, prefix: Prefix) -> int:
        """How many available blocks a text takes that begins with so many tokens."""
        idle = sum(1 for block in prefix.blocks if self.pool.is_idle(block))
        return self.blocks_of(tokens) - len(prefix.blocks) + idle

    def room(self, table: BlockTable) -> int:
        """How many blocks more it can get."""
        return min(self.pool.available, self.tenant_room(table.tenant))

    def tenant_room(self, tenant: str) -> int:
        """How many blocks more a tenant may hold."""
        return self.sizes.tenant_blocks - self._held[tenant]

    def adopt(self, table: BlockTable, found: Iterable[BlockId], tokens: Sequence[TokenId]) -> int:
        """A text begins with what `prefix` found, and is going to compute the rest; how many tokens are there."""
        for block in found:
            if self.pool.hold(block):
                self._held[table.tenant] += 1
            self._put(table, block)
        if table.root is not None:
            table.next_name = table.places + self.sizes.block_size
            names = self._names(table, tokens, len(tokens) // self.sizes.block_size)
            for name in names[len(table.blocks) :]:
                self._coming.setdefault(name, table)
        return table.places

    def grow(self, table: BlockTable, tokens: int) -> None:
        """Hold blocks for so many tokens; there must be room."""
        while table.places < tokens:
            self._held[table.tenant] += 1
            self._put(table, self.pool.take())

    def wrote(self, table: BlockTable, tokens: Sequence[TokenId], computed: int) -> None:
        """So many of the tokens are in the blocks now: those that are full can be found by others."""
        if table.root is None:
            return
        size = self.sizes.block_size
        full = computed // size
        names = self._names(table, tokens, full)
        for place in range(table.next_name // size - 1, full):
            name = names[place]
            self.pool.name(table.blocks[place], name, tokens[place * size : (place + 1) * size])
            if self._coming.get(name) is table:
                del self._coming[name]
        table.next_name = (full + 1) * size

    def release(self, table: BlockTable) -> None:
        """It holds nothing any more and computes nothing for others. Its last blocks are forgotten first."""
        for block in reversed(table.blocks):
            if self.pool.release(block):
                self._held[table.tenant] -= 1
        for name in table.names:
            if self._coming.get(name) is table:
                del self._coming[name]
        if not self._held[table.tenant]:
            del self._held[table.tenant]
        table.blocks.clear()
        table.places = table.next_name = 0
        table.awaits = None

    def check(self, tables: Sequence[BlockTable]) -> None:
        """Raise AssertionError unless these tables hold exactly what is in use."""
        self.pool.check()
        holders: Counter[BlockId] = Counter()
        held: dict[str, set[BlockId]] = {}
        for table in tables:
            assert table.places == len(table.blocks) * self.sizes.block_size, "places of a table"
            assert list(table.row[: len(table.blocks)]) == table.blocks, "the runner's row"
            holders.update(table.blocks)
            held.setdefault(table.tenant, set()).update(table.blocks)
        assert self.pool.used == len(holders), "a block is used by nobody"
        for block, count in holders.items():
            assert self.pool.holders(block) == count, "holders of a block"
        assert {t: n for t, n in self._held.items() if n} == {
            tenant: len(blocks) for tenant, blocks in held.items() if blocks
        }, "blocks of a tenant"
        assert all(table in tables for table in self._coming.values()), "nobody computes it"

    def _put(self, table: BlockTable, block: BlockId) -> None:
        table.row[len(table.blocks)] = block
        table.blocks.append(block)
        table.places += self.sizes.block_size

    def _names(self, table: BlockTable, tokens: Sequence[TokenId], count: int) -> list[BlockHash]:
        """Names of at least its first `count` blocks, which the tokens fill."""
        names, size = table.names, self.sizes.block_size
        if len(names) < count:
            assert table.root is not None
            assert self._hasher is not None
            last = names[-1] if names else table.root
            for place in range(len(names), count):
                last = self._hasher.after(last, tokens[place * size : (place + 1) * size])
                names.append(last)
        return names

    def _last_coming(self, table: BlockTable, missing: Sequence[BlockHash]) -> BlockHash | None:
        """The last block of those that one other text computes next and that isn't less urgent; None: none does."""
        owner = self._coming.get(missing[0]) if missing else None
        if owner is None or owner.priority > table.priority:
            return None
        last = missing[0]
        for name in missing[1:]:
            if self._coming.get(name) is not owner:
                break
            last = name
        return last
