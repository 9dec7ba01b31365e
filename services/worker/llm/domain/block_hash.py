"""Names for what blocks hold: a chain of keyed hashes, so that equal names mean equal tokens from the beginning on.

The secret lives as long as the process and the chain begins with the tenant: nobody can make two prompts meet on
purpose, and prompts of two tenants never have a name in common.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

from services.worker.llm.domain.generation import TokenId

BlockHash = NewType("BlockHash", bytes)

_SIZE = 16  # bytes


class BlockHasher:
    """Names blocks with one secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: 16 to 64 random bytes."""
        self._secret = secret

    def root(self, salt: str) -> BlockHash:
        """Where the chain of a tenant, or of whoever else shares nothing with others, begins."""
        salted = salt.encode("utf-8", "surrogatepass")
        digest = blake2b(salted, digest_size=_SIZE, key=self._secret, person=b"root").digest()
        return BlockHash(digest)

    def after(self, before: BlockHash, tokens: Sequence[TokenId]) -> BlockHash:
        """The name of a block with these tokens, behind the one with the name `before`."""
        content = before + array("i", tokens).tobytes()
        return BlockHash(blake2b(content, digest_size=_SIZE, key=self._secret).digest())
