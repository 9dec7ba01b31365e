"""Measures what a model's precision costs: its graph and the one of exact 32-bit floats read the same text."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import operators
from services.worker.llm.adapters.graph_files import read_facts, write_graph
from services.worker.llm.adapters.graph_runner import open_runner
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.adapters.model_words import read_words
from services.worker.llm.adapters.sample_text import SAMPLE_TEXT
from services.worker.llm.domain.accuracy import Accuracy, Comparison
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.step import StepInput
from services.worker.llm.ports.runner import Runner

_MOST_TOKENS = 512
_PIECE = 64  # tokens in a step: so many rows of logits are held twice
_FLOAT_BYTES = 4


def exact_bytes(shape: ModelShape) -> int:
    """What the graph of floats takes, on disk and in memory."""
    return shape.parameters * _FLOAT_BYTES


def measure(place: Path, shape: ModelShape) -> Accuracy:
    """Blocks for seconds to minutes. Raises LoadError."""
    words = read_words(place, shape.vocabulary_size)
    ids = words.tokenizer.encode(SAMPLE_TEXT, special=True)[
        : min(_MOST_TOKENS, shape.context_length)
    ]
    if not ids:
        raise LoadError("its tokenizer makes no tokens of an English text")
    has_operators = operators.library() is not None
    target = Target.NATIVE if has_operators else Target.PORTABLE
    comparison = Comparison()
    with ExitStack() as stack:
        measured = stack.enter_context(_runner(place, target, len(ids), exact=False))
        exact = stack.enter_context(_runner(place, target, len(ids), exact=True))
        for begin in range(0, len(ids), _PIECE):
            piece = ids[begin : begin + _PIECE]
            step = _step(piece, begin, measured.capacity.block_size)
            comparison.add(exact.step(step), measured.step(step))
    return comparison.result()


@contextmanager
def _runner(place: Path, target: Target, tokens: int, *, exact: bool) -> Iterator[Runner]:
    """Of a graph that is written for it and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="inferplane-accuracy-") as name:
        folder = Path(name)
        write_graph(place, folder, target, exact=exact)
        facts = read_facts(folder)
        assert facts is not None
        library = operators.library() if target is Target.NATIVE else None
        runner = open_runner(
            folder, facts, _settings(facts.shape, tokens), SessionSettings(operators=library)
        )
        try:
            yield runner
        finally:
            runner.close()


def _settings(shape: ModelShape, tokens: int) -> EngineSettings:
    numbers = 2 * shape.layers * shape.kv_heads * shape.head_size  # of a token
    return EngineSettings(
        # Slots are a quarter of the cache at most; blocks are whole.
        kv_cache_bytes=4 * numbers * _FLOAT_BYTES * (tokens + _PIECE),
        max_running_requests=4,
        max_step_tokens=_PIECE,
        context_length=tokens,
    )


def _step(ids: list[int], past: int, block_size: int) -> StepInput:
    """A piece of one text, with the logits of every place."""
    blocks = -(-(past + len(ids)) // block_size)
    return StepInput(
        ids=np.array(ids, np.int64),
        starts=np.array([0, len(ids)], np.int32),
        past=np.array([past], np.int32),
        blocks=np.arange(blocks, dtype=np.int32)[None],
        rows=np.arange(len(ids), dtype=np.int64),
    )
