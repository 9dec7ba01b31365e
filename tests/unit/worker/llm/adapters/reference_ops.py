"""The operators again in plain numpy, in double precision, one token and one head at a time."""

from dataclasses import dataclass

import numpy as np

from services.worker.llm.domain.quantised import BLOCK, Array, QuantisedMatrix

TOKENS = 16  # of a block of the cache


def random_matrix(
    random: np.random.Generator, rows: int, columns: int, bits: int
) -> QuantisedMatrix:
    """A matrix whose scales and minima float16 holds exactly."""
    blocks = (rows, columns // BLOCK)
    return QuantisedMatrix(
        q=random.integers(0, 2**bits, (*blocks, BLOCK), dtype=np.uint8),
        scale=random.uniform(0.001, 0.02, blocks).astype(np.float16).astype(np.float32),
        minimum=random.uniform(-0.2, 0.05, blocks).astype(np.float16).astype(np.float32),
        bits=bits,
    )


def rounded(x: Array) -> Array:
    """Activations as QLinear takes them: whole numbers from -127 to 127 times a scale, per row and block of 32."""
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK).astype(np.float32)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    factor = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), 0)
    whole = np.rint(blocks * factor.astype(np.float32)).astype(np.float64)
    result: Array = (whole * (largest / np.float32(127)).astype(np.float64)).reshape(x.shape)
    return result


def qlinear(x: Array, matrix: QuantisedMatrix, bias: Array | None = None) -> Array:
    """Outputs for activations that are rounded first."""
    full = matrix.scale[..., None].astype(np.float64) * matrix.q + matrix.minimum[..., None]
    y: Array = rounded(x) @ full.reshape(matrix.rows, matrix.columns).T
    return y if bias is None else y + bias


def swiglu(gate_up: Array, activation: str = "silu") -> Array:
    """activation(gate) × up."""
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    if activation == "silu":
        activated: Array = gate / (1 + np.exp(-gate))
    else:
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        activated = 0.5 * gate * (1 + np.tanh(inner))
    return np.asarray(activated * up)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCase:
    """Sizes and attributes of a layer's attention."""

    heads: int
    kv_heads: int
    head_size: int
    rope_size: int | None = None  # None: the whole head
    window: int = 0
    softcap: float = 0.0
    scale: float = 0.0
    normed: bool = False
    epsilon: float = 1e-6
    layer: int = 0

    @property
    def rotated(self) -> int:
        return self.head_size if self.rope_size is None else self.rope_size


def rope_tables(positions: int, size: int) -> tuple[Array, Array]:
    """Cosines and sines, float32 [positions, size / 2]."""
    frequency = 10000.0 ** (-np.arange(0, size, 2) / size) if size else np.zeros(0)
    angle = np.arange(positions)[:, None] * frequency[None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


class ReferenceAttention:
    """Attention over lists of keys and values, one list per request: what paging must not change."""

    def __init__(
        self, case: AttentionCase, cos: Array, sin: Array, norms: tuple[Array, Array] | None = None
    ) -> None:
        self.case = case
        self.cos = cos.astype(np.float64)
        self.sin = sin.astype(np.float64)
        self.norms = norms

    def turned(self, x: Array, position: int, norm: int) -> Array:
        """One head's query or key: normalised, then rotated."""
        x = x.astype(np.float64)
        if self.norms is not None:
            x = x / np.sqrt((x * x).mean() + self.case.epsilon) * self.norms[norm]
        half = self.case.rotated // 2
        first, second, rest = x[:half], x[half : 2 * half], x[2 * half :]
        cos, sin = self.cos[position], self.sin[position]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest])

    def run(self, qkv: Array, kept: type[np.floating]) -> Array:
        """Outputs [tokens, heads × head_size] of one whole request; keys and values are kept as this type."""
        case = self.case
        size, group = case.head_size, case.heads // case.kv_heads
        heads = qkv.reshape(len(qkv), -1, size)
        out = np.zeros((len(qkv), case.heads, size))
        scale = case.scale or size**-0.5
        for kv_head in range(case.kv_heads):
            keys = np.array(
                [self.turned(row[case.heads + kv_head], at, 1) for at, row in enumerate(heads)]
            )
            keys = keys.astype(kept).astype(np.float64)
            values = heads[:, case.heads + case.kv_heads + kv_head].astype(kept).astype(np.float64)
            for at in range(len(qkv)):
                oldest = max(0, at + 1 - case.window) if case.window else 0
                for head in range(kv_head * group, (kv_head + 1) * group):
                    query = self.turned(heads[at, head], at, 0)
                    score = keys[oldest : at + 1] @ query * scale
                    if case.softcap:
                        score = case.softcap * np.tanh(score / case.softcap)
                    weight = np.exp(score - score.max())
                    out[at, head] = weight / weight.sum() @ values[oldest : at + 1]
        return out.reshape(len(qkv), -1)
