"""The likeliest continuation of one prompt, by a graph of ours and its runner alone: no scheduler, no server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from services.worker.llm.adapters import operators
from services.worker.llm.adapters.graph_files import read_facts, write_graph
from services.worker.llm.adapters.graph_names import GRAPH_FILE
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.adapters.native_runner import NativeRunner
from services.worker.llm.adapters.portable_runner import PortableRunner
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.step import StepInput
from services.worker.llm.ports.runner import Runner

_CONTEXT = 1024  # tokens
_SETTINGS = EngineSettings(
    max_running_requests=1,
    max_step_tokens=_CONTEXT,
    context_length=_CONTEXT,
    kv_cache_bytes=256 * 1024**2,
)


@dataclass(frozen=True, slots=True)
class Greedy:
    """One runner, one text at a time."""

    runner: Runner
    banned: frozenset[int]  # tokens that are never chosen: the likeliest of the others is

    @classmethod
    @contextmanager
    def open(
        cls,
        place: Path,
        target: Target,
        *,
        exact: bool,
        banned: frozenset[int] = frozenset(),
        threads: int = 0,
    ) -> Iterator[Greedy]:
        """Of a model's file; with `exact`, everything in 32-bit floats."""
        with tempfile.TemporaryDirectory(prefix="ip-g-") as name:
            folder = Path(name)
            write_graph(place, folder, target, exact=exact)
            facts = read_facts(folder)
            assert facts is not None, "just written"
            graph, shape = folder / GRAPH_FILE, facts.shape
            runner: Runner
            if target is Target.NATIVE:
                session = SessionSettings(threads=threads, operators=operators.library())
                runner = NativeRunner(graph, shape, _SETTINGS, session, facts.cache_dtype)
            else:
                runner = PortableRunner(graph, shape, _SETTINGS, SessionSettings(threads=threads))
            try:
                yield cls(runner, banned)
            finally:
                runner.close()

    def continued(self, prompt: Sequence[int], new: int) -> list[int]:
        """The next `new` tokens."""
        capacity = self.runner.capacity
        blocks = np.arange(capacity.max_blocks, dtype=np.int32)[None] % capacity.blocks
        ids, past = list(prompt), 0
        chosen: list[int] = []
        while len(chosen) < new:
            step = StepInput(
                ids=np.array(ids, np.int64),
                starts=np.array([0, len(ids)], np.int32),
                past=np.array([past], np.int32),
                blocks=blocks,
                rows=np.array([len(ids) - 1], np.int64),
            )
            past += len(ids)
            logits = self.runner.step(step)[0]
            logits[list(self.banned)] = -np.inf
            ids = [int(logits.argmax())]
            chosen += ids
        return chosen
