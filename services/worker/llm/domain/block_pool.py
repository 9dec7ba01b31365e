"""The blocks of the cache: which are free, how many hold each, and which are kept because somebody may want them again.

A block is free, used (somebody holds it) or cached (nobody does, but its contents have a name); there is no fourth.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

from services.worker.llm.domain.block_hash import BlockHash
from services.worker.llm.domain.generation import TokenId

BlockId = NewType("BlockId", int)


@dataclass(frozen=True, slots=True)
class _Content:
    """What a named block holds."""

    name: BlockHash
    tokens: tuple[TokenId, ...]  # looked at on each hit: a name alone is believed nothing


class BlockPool:
    """Knows ids, holders and names; not who the holders are."""

    def __init__(self, total: int, *, keeps: bool = True) -> None:
        """All are free. `keeps`: named blocks that nobody holds are cached; otherwise they are free again."""
        self._total = total
        self._keeps = keeps
        # A stack: what was freed last is still in the processor's caches.
        self._free = [BlockId(number) for number in reversed(range(total))]
        self._holders = [0] * total
        self._cached: OrderedDict[BlockId, None] = OrderedDict()  # let go longest ago first
        self._named: dict[BlockHash, BlockId] = {}
        self._contents: dict[BlockId, _Content] = {}

    @property
    def total(self) -> int:
        """All there are."""
        return self._total

    @property
    def free(self) -> int:
        """Blocks without contents."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks that nobody holds, with contents that may be wanted."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that could be taken now."""
        return len(self._free) + len(self._cached)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self._total - self.available

    def find(self, name: BlockHash, tokens: Sequence[TokenId]) -> BlockId | None:
        """The block with this name, if it really has these tokens."""
        block = self._named.get(name)
        if block is None or self._contents[block].tokens != tuple(tokens):
            return None
        return block

    def is_idle(self, block: BlockId) -> bool:
        """Whether nobody holds it."""
        return not self._holders[block]

    def take(self) -> BlockId:
        """A block for one holder; if none is free, the cached one that was let go longest ago. There must be one."""
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        self._holders[block] = 1
        return block

    def hold(self, block: BlockId) -> bool:
        """One holder more of a named block; whether it is the first."""
        self._holders[block] += 1
        if self._holders[block] > 1:
            return False
        del self._cached[block]
        return True

    def release(self, block: BlockId) -> bool:
        """One holder less; whether it was the last."""
        self._holders[block] -= 1
        if self._holders[block]:
            return False
        if block in self._contents and self._keeps:
            self._cached[block] = None
        else:
            self._forget(block)
            self._free.append(block)
        return True

    def name(self, block: BlockId, name: BlockHash, tokens: Sequence[TokenId]) -> None:
        """It is full of these tokens, for others to find. The first block of a name keeps it."""
        if name not in self._named and block not in self._contents:
            self._named[name] = block
            self._contents[block] = _Content(name, tuple(tokens))

    def holders(self, block: BlockId) -> int:
        """How many hold it."""
        return self._holders[block]

    def check(self) -> None:
        """Raise AssertionError unless each block is in exactly one state, and free + used + cached = total."""
        free, cached = set(self._free), set(self._cached)
        used = {block for block, holders in enumerate(self._holders) if holders}
        assert len(free) == len(self._free), "a block is free twice"
        assert min(self._holders, default=0) >= 0, "a block was released too often"
        assert not free & cached, "a block is both free and cached"
        assert not used & (free | cached), "a block in use can be taken"
        assert len(free) + len(used) + len(cached) == self._total, "free + used + cached = total"
        assert cached <= self._contents.keys(), "a cached block has no name"
        assert not free & self._contents.keys(), "a free block has a name"
        assert len(self._named) == len(self._contents), "names and contents"
        for block, content in self._contents.items():
            assert self._named[content.name] == block, "a name leads elsewhere"

    def _forget(self, block: BlockId) -> None:
        content = self._contents.pop(block, None)
        if content is not None:
            del self._named[content.name]
