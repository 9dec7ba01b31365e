"""The contract between scheduler and runner: what one step computes.

Tokens of all requests lie flat, one after the other, without padding: the next token of a running request, a piece of
a long prompt and a whole short one are the same case.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class StepInput:
    """B requests with T tokens together; R places whose logits are wanted."""

    ids: Array  # int64 [T]
    starts: Array  # int32 [B + 1]: where each request's tokens begin; ends with T
    past: Array  # int32 [B]: tokens of each request that are in the cache already
    blocks: Array  # int32 [B, M]: ids of each request's blocks in order; unused places are 0
    rows: Array  # int64 [R]: places in `ids`, ascending; may be none


@dataclass(frozen=True, slots=True)
class RunnerCapacity:
    """What a runner has room for."""

    blocks: int
    block_size: int  # tokens
    max_tokens: int  # T of a step
    max_requests: int  # B of a step
    max_blocks: int  # M: blocks that one request may have
    vocabulary_size: int
    # A block is a whole request's slot and can't be shared: the portable path. Then there is no prefix cache.
    slots: bool = False
