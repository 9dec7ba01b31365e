"""A runner whose cache holds token ids instead of keys and values, and a model whose texts follow from them.

What a text's next token is depends on every token that the runner finds through the block table, so a wrong, stale or
foreign block changes the text. `continued` says what the text must be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from services.rpc.errors import InternalError
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput
from services.worker.llm.ports.language_model import LanguageModel

END = 0  # the token that ends a text
VOCABULARY = 256  # tokens are bytes
_EMPTY = -1  # a place that was never written
_MIX = np.uint64(0x9E3779B97F4A7C15)

Script = Callable[[Sequence[int]], int]  # all tokens so far to the next


def letters(tokens: Sequence[int]) -> int:
    """A letter that depends on all tokens and their places; it never ends."""
    places = np.arange(1, len(tokens) + 1, dtype=np.uint64)
    mixed = (np.asarray(tokens, np.uint64) + np.uint64(1)) * (places * _MIX | np.uint64(1))
    return ord("a") + int((mixed ^ (mixed >> np.uint64(29))).sum() >> np.uint64(17)) % 26


def ending(every: int) -> Script:
    """Letters, and the end now and then."""

    def script(tokens: Sequence[int]) -> int:
        letter = letters(tokens)
        return END if (sum(tokens) + len(tokens)) % every == 0 else letter

    return script


def continued(prompt: Sequence[int], tokens: int, script: Script = letters) -> list[int]:
    """What the model says after a prompt: at most so many tokens, without the one that ends."""
    history = list(prompt)
    for _ in range(tokens):
        token = script(history)
        if token == END:
            break
        history.append(token)
    return history[len(prompt) :]


def text_of(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode("latin-1")


@dataclass(slots=True, eq=False)
class ScriptedRunner:
    """A `Runner`. With `hold`, each step waits until it is set; `fail_steps` are the numbers of those that fail."""

    capacity: RunnerCapacity
    script: Script = letters
    hold: threading.Event | None = None
    fail_steps: set[int] = field(default_factory=set)
    on_step: Callable[[StepInput], None] | None = None
    steps: int = 0
    tokens: int = 0
    started: threading.Event = field(default_factory=threading.Event)  # a step has begun
    closed: bool = False
    _places: Array = field(init=False)

    def __post_init__(self) -> None:
        self._places = np.full((self.capacity.blocks, self.capacity.block_size), _EMPTY, np.int64)

    def step(self, step: StepInput) -> Array:
        self.steps += 1
        self.started.set()
        if self.on_step is not None:
            self.on_step(step)
        if self.hold is not None:
            assert self.hold.wait(120), "held for ever"
        self._check(step)
        if self.steps in self.fail_steps:
            raise InternalError("the script says that this step fails")
        self.tokens += len(step.ids)
        logits = np.zeros((len(step.rows), VOCABULARY), np.float32)
        ends = {int(row): place for place, row in enumerate(step.rows)}
        for request, (begin, end) in enumerate(pairwise(step.starts.tolist())):
            past = int(step.past[request])
            self._write(step.blocks[request], past, step.ids[begin:end])
            for row in range(begin, end):
                if row in ends:
                    history = self._read(step.blocks[request], past + row - begin + 1)
                    logits[ends[row], self.script(history)] = 1.0
        return logits

    def close(self) -> None:
        self.closed = True

    def _write(self, blocks: Array, past: int, ids: Array) -> None:
        size = self.capacity.block_size
        for place, token in enumerate(ids.tolist(), past):
            self._places[blocks[place // size], place % size] = token

    def _read(self, blocks: Array, count: int) -> list[int]:
        size = self.capacity.block_size
        held = self._places[blocks[: -(-count // size)]].reshape(-1)[:count]
        assert (held != _EMPTY).all(), "read before it was written"
        tokens: list[int] = held.tolist()
        return tokens

    def _check(self, step: StepInput) -> None:
        """What a real runner refuses."""
        capacity, requests = self.capacity, len(step.past)
        assert step.ids.dtype == step.rows.dtype == np.int64
        assert step.starts.dtype == step.past.dtype == step.blocks.dtype == np.int32
        assert 0 < len(step.ids) <= capacity.max_tokens
        assert 0 < requests <= capacity.max_requests
        assert step.blocks.shape[0] == requests
        assert step.blocks.shape[1] <= capacity.max_blocks
        assert step.starts[0] == 0
        assert step.starts[-1] == len(step.ids)
        assert (np.diff(step.starts) > 0).all()
        assert (np.diff(step.rows) > 0).all()
        assert ((step.blocks >= 0) & (step.blocks < capacity.blocks)).all()
        lengths = step.past + np.diff(step.starts)
        assert (lengths <= step.blocks.shape[1] * capacity.block_size).all()


@dataclass(frozen=True, slots=True)
class ByteTokenizer:
    """A `Tokenizer`: each byte is a token."""

    vocabulary_size: int = VOCABULARY
    end_ids: frozenset[int] = frozenset({END})

    def encode(self, text: str, *, special: bool = False, limit: int | None = None) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if token_id == END else bytes([token_id])

    def token_name(self, token_id: int) -> bytes:
        return b"<end>" if token_id == END else bytes([token_id])


def capacity(
    blocks: int = 64, block_size: int = 4, *, max_blocks: int = 32, slots: bool = False
) -> RunnerCapacity:
    return RunnerCapacity(
        blocks=blocks,
        block_size=block_size,
        max_tokens=512,
        max_requests=64,
        max_blocks=max_blocks,
        vocabulary_size=VOCABULARY,
        slots=slots,
    )


def scripted_model(runner: ScriptedRunner, context_length: int = 4096) -> LanguageModel:
    """A language model that says what the runner's script says."""
    shape = ModelShape(
        architecture="scripted",
        layers=1,
        hidden_size=32,
        feed_forward_size=32,
        heads=1,
        kv_heads=1,
        head_size=32,
        vocabulary_size=VOCABULARY,
        context_length=context_length,
        rms_epsilon=1e-5,
        rope_base=10000.0,
        rope_size=32,
        tied_embedding=True,
    )
    return LanguageModel(shape, runner, ByteTokenizer(), None)
