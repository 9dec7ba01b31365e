"""Graphs of tiny models, and requests driven through their runners step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from services.native_library import OPERATORS, compiler
from services.worker.llm.adapters import operators
from services.worker.llm.adapters.graph_files import read_facts, write_graph
from services.worker.llm.adapters.graph_runner import open_runner
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.step import Array, StepInput
from services.worker.llm.ports.runner import Runner
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

SETTINGS = EngineSettings(kv_cache_bytes=4 * 1024**2, max_running_requests=8)
CPU_TARGETS = (Target.NATIVE, Target.PORTABLE)


def library() -> Path:
    """The operators', built if it need be; without a compiler the test is skipped."""
    found = operators.library()
    if found is not None:
        return found
    command = compiler()
    if command is None:
        pytest.skip("there is no C++ compiler to build the operators with")
    return OPERATORS.build(command)


def tiny_runner(
    folder: Path,
    tiny: Tiny,
    target: Target,
    *,
    exact: bool = False,
    settings: EngineSettings = SETTINGS,
) -> Runner:
    """The runner of a tiny model, whose file is `model.gguf` in the folder."""
    file = folder / "model.gguf"
    if not file.exists():
        write_tiny(file, tiny)
    graph = folder / f"{target.value}{exact}"
    if not graph.exists():
        graph.mkdir()
        write_graph(file, graph, target, exact=exact)
    facts = read_facts(graph)
    assert facts is not None
    built = library() if target is Target.NATIVE else None
    return open_runner(graph, facts, settings, SessionSettings(threads=1, operators=built))


@dataclass(slots=True)
class Request:
    """Tokens, how many of them are in the cache, and the blocks they lie in."""

    tokens: list[int]
    blocks: Sequence[int]
    past: int = 0
    logits: list[Array] = field(default_factory=list)  # of every wanted row

    def take(self, count: int) -> list[int]:
        """The next tokens to compute."""
        return self.tokens[self.past : self.past + count]


def request(runner: Runner, tokens: Sequence[int], place: int = 0) -> Request:
    """A request with as many blocks as the context has, from the `place`-th such range on."""
    count = runner.capacity.max_blocks
    return Request(list(tokens), range(place * count, (place + 1) * count))


def step(runner: Runner, parts: Sequence[tuple[Request, int]], *, all_rows: bool = False) -> None:
    """Compute so many tokens of each request; logits of the last token that it has, or of all tokens."""
    pieces = [asked.take(count) for asked, count in parts]
    starts = np.cumsum([0, *(len(piece) for piece in pieces)])
    rows: list[int] = []
    owners: list[Request] = []
    for (asked, count), end in zip(parts, starts[1:].tolist(), strict=True):
        is_last = asked.past + count >= len(asked.tokens)
        wanted = range(end - count, end) if all_rows else range(end - 1, end) if is_last else ()
        rows += wanted
        owners += [asked] * len(wanted)
    logits = runner.step(
        StepInput(
            ids=np.concatenate(pieces).astype(np.int64),
            starts=starts.astype(np.int32),
            past=np.array([asked.past for asked, _ in parts], np.int32),
            blocks=np.array([list(asked.blocks) for asked, _ in parts], np.int32),
            rows=np.array(rows, np.int64),
        )
    )
    assert logits.shape == (len(rows), runner.capacity.vocabulary_size)
    for asked, row in zip(owners, logits, strict=True):
        asked.logits.append(row.copy())
    for asked, count in parts:
        asked.past += count


def in_pieces(runner: Runner, asked: Request, sizes: Sequence[int]) -> None:
    """The request alone, its tokens in pieces of these sizes and then the rest."""
    for size in sizes:
        step(runner, [(asked, size)])
    if rest := len(asked.tokens) - asked.past:
        step(runner, [(asked, rest)])


def go_on(runner: Runner, asked: Sequence[Request], count: int) -> None:
    """All requests together, one likeliest token at a time."""
    for _ in range(count):
        for one in asked:
            one.tokens.append(int(one.logits[-1].argmax()))
        step(runner, [(one, 1) for one in asked])
