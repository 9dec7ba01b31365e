"""A weight matrix as blocks of small integers: what GGUF's types become, and what the operators compute with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 32  # weights of a row that share scale and minimum


@dataclass(frozen=True, slots=True)
class QuantisedMatrix:
    """N rows (outputs) of K weights (inputs); weight = scale * q + minimum, per block of 32.

    Q4_0 and Q4_1 are exact with `bits` 4, Q8_0 with 8; the finer K types come as near as 8 bits do.
    """

    q: Array  # uint8 [N, K / 32, 32]; 0 to 15, or 0 to 255
    scale: Array  # float32 [N, K / 32]
    minimum: Array  # float32 [N, K / 32]
    bits: int  # 4 or 8

    @property
    def rows(self) -> int:
        return int(self.q.shape[0])

    @property
    def columns(self) -> int:
        return int(self.q.shape[1]) * BLOCK

    def dequantised(self) -> Array:
        """float32 [N, K]."""
        full = self.scale[..., None] * self.q.astype(np.float32) + self.minimum[..., None]
        return full.reshape(self.rows, self.columns)
