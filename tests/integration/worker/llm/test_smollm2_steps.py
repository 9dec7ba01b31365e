"""SmolLM2's logits: the same bits whatever the threads, the pieces and the company."""

from pathlib import Path

import numpy as np
import pytest

from services.worker.llm.adapters import operators
from services.worker.llm.adapters.graph_files import GraphFacts, read_facts, write_graph
from services.worker.llm.adapters.graph_runner import open_runner
from services.worker.llm.adapters.graph_session import SessionSettings
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.step import Array
from services.worker.llm.ports.runner import Runner
from tests.language_model import smollm2_file
from tests.unit.worker.llm.adapters.graph_steps import (
    CPU_TARGETS,
    go_on,
    in_pieces,
    library,
    request,
    step,
)

pytestmark = pytest.mark.extended

PROMPT = [int(token) for token in (np.arange(1, 71) * 7919) % 49_000]
OTHERS = [PROMPT[begin : begin + 20] for begin in range(0, 50, 10)]
NEW = 2
SETTINGS = EngineSettings(kv_cache_bytes=512 * 1024**2, context_length=256, max_running_requests=8)

Graph = tuple[Path, GraphFacts]


@pytest.fixture(scope="module", params=CPU_TARGETS, ids=lambda target: target.value)
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Written once for each target."""
    folder = tmp_path_factory.mktemp("smollm2")
    write_graph(smollm2_file(), folder, request.param)
    facts = read_facts(folder)
    assert facts is not None
    return folder, facts


def opened(graph: Graph, threads: int) -> Runner:
    folder, facts = graph
    if facts.target is Target.NATIVE:
        library()
    session = SessionSettings(threads=threads, operators=operators.library())
    return open_runner(folder, facts, SETTINGS, session)


def answered(runner: Runner, sizes: list[int]) -> Array:
    """The prompt in pieces of these sizes and then the rest; a few tokens more."""
    asked = request(runner, PROMPT)
    in_pieces(runner, asked, sizes)
    go_on(runner, [asked], NEW)
    return np.array(asked.logits)


def test_the_same_bits_by_one_thread_and_three_in_any_pieces_and_company(graph: Graph) -> None:
    """At sizes where work is shared out between threads, and rows between tiles."""
    runner = opened(graph, 1)
    expected = answered(runner, [])
    runner.close()
    runner = opened(graph, 3)
    for sizes in ([16] * 4, [1, 33, 1]):
        assert np.array_equal(answered(runner, sizes), expected), sizes
    asked = request(runner, PROMPT, len(OTHERS))
    others = [request(runner, tokens, place) for place, tokens in enumerate(OTHERS)]
    step(runner, [(other, 20) for other in others])
    step(runner, [(asked, 50)])
    step(runner, [(asked, 20)])
    go_on(runner, [*others, asked], NEW)
    assert np.array_equal(np.array(asked.logits), expected)
    runner.close()
