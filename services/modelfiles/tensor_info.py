"""A tensor in a file: its name, type and shape, and where its bytes lie."""

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class TensorType(Enum):
    """Types that can be served: GGML's number, elements of a block, bytes of a block."""

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    BF16 = (30, 1, 2)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q4_K = (12, 256, 144)
    Q5_K = (13, 256, 176)
    Q6_K = (14, 256, 210)

    @property
    def number(self) -> int:
        """GGML's."""
        return self.value[0]

    @property
    def block(self) -> int:
        """Elements that are stored together."""
        return self.value[1]

    @property
    def block_bytes(self) -> int:
        """What a block takes."""
        return self.value[2]


TYPES = ", ".join(kind.name for kind in TensorType)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. Its bytes are inside the file, and no other tensor's."""

    name: str
    type_name: str
    type: TensorType | None  # None: one that can't be served
    shape: tuple[int, ...]  # the last size is that of neighbours in memory
    file: Path
    offset: int  # from the file's beginning

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """0 if the type is unknown."""
        if self.type is None:
            return 0
        return self.elements // self.type.block * self.type.block_bytes
