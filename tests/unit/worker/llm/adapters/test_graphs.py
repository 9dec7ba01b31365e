"""Graphs of every family on every target of CPUs, against a plain forward pass and against themselves."""

import contextlib
import threading
from pathlib import Path

import numpy as np
import pytest

from services.rpc.errors import InternalError
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.model_files import open_weights
from services.worker.llm.domain.engine_settings import EngineSettings, Target
from services.worker.llm.domain.step import Array, StepInput
from services.worker.llm.ports.runner import Runner
from tests.unit.worker.llm.adapters.graph_steps import (
    CPU_TARGETS,
    Request,
    go_on,
    in_pieces,
    request,
    step,
    tiny_runner,
)
from tests.unit.worker.llm.reference_forward import reference_logits
from tests.unit.worker.llm.tiny_models import ALL, Tiny, vocabulary

PROMPT = [int(token) for token in (np.arange(1, 46) * 97) % len(vocabulary())]
WAIT = 30.0  # seconds, at most
OTHER = PROMPT[::-1][:21]

targets = pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: target.value)
families = pytest.mark.parametrize("tiny", ALL.values(), ids=ALL.keys())
precisions = pytest.mark.parametrize("precision", ["F32", "Q8_0", "Q4_0", "Q4_1"])


@targets
@families
def test_a_float_graph_computes_what_a_plain_forward_pass_does(
    tmp_path: Path, tiny: Tiny, target: Target
) -> None:
    """Logits after each token of a prompt, and after each of an answer, are those of the layers' own definition."""
    runner = tiny_runner(tmp_path, tiny, target, exact=True)
    asked = request(runner, PROMPT)
    step(runner, [(asked, 17)], all_rows=True)
    step(runner, [(asked, len(PROMPT) - 17)], all_rows=True)
    go_on(runner, [asked], 5)
    weights = open_weights(tmp_path / "model.gguf", exact=True)
    expected = reference_logits(weights, asked.tokens)
    np.testing.assert_allclose(np.array(asked.logits), expected, atol=2e-4, rtol=1e-4)


@targets
@precisions
def test_a_quantised_graph_is_near_its_weights(
    tmp_path: Path, precision: str, target: Target
) -> None:
    """What 8-bit activations cost is little beside how far logits are apart."""
    runner = tiny_runner(tmp_path, Tiny(precision=precision, tied=False, biases=True), target)
    asked = request(runner, PROMPT)
    step(runner, [(asked, len(PROMPT))], all_rows=True)
    expected = reference_logits(open_weights(tmp_path / "model.gguf"), PROMPT)
    off = np.array(asked.logits) - expected
    assert np.abs(off).max() < 0.12 * expected.std()
    assert np.sqrt((off**2).mean()) < 0.03 * expected.std()


@targets
@families
def test_answers_are_the_same_bits_however_a_prompt_is_cut_and_whatever_is_beside_it(
    tmp_path: Path, tiny: Tiny, target: Target
) -> None:
    """Alone, in pieces of any size, single tokens among them, and in company that comes and goes."""
    runner = tiny_runner(tmp_path, tiny, target)
    whole = _answer(runner, [])
    for cuts in ([1], [1, 1, 1], [16, 16], [7, 1, 9, 1], [len(PROMPT) - 1]):
        assert np.array_equal(_answer(runner, cuts), whole), cuts
    assert np.array_equal(_answer_in_company(runner), whole)


@targets
def test_a_request_may_fill_the_context_to_its_last_token(tmp_path: Path, target: Target) -> None:
    """The last position computes what the plain pass does there."""
    tiny = Tiny(context=64)
    runner = tiny_runner(tmp_path, tiny, target, exact=True)
    tokens = [token % 200 + 3 for token in range(63)]
    asked = request(runner, tokens)
    in_pieces(runner, asked, [40])
    go_on(runner, [asked], 1)
    expected = reference_logits(open_weights(tmp_path / "model.gguf", exact=True), asked.tokens)
    np.testing.assert_allclose(asked.logits[-1], expected[-1], atol=2e-4, rtol=1e-4)


@targets
def test_a_step_may_want_no_logits(tmp_path: Path, target: Target) -> None:
    """There are none, and keys and values are in the cache all the same."""
    runner = tiny_runner(tmp_path, Tiny(), target)
    asked = request(runner, PROMPT)
    step(runner, [(asked, 10)])
    assert asked.logits == []
    in_pieces(runner, asked, [])
    again = request(runner, PROMPT)
    in_pieces(runner, again, [])
    assert np.array_equal(asked.logits[0], again.logits[0])


def test_a_block_that_is_not_there_is_an_error_and_harms_no_other(tmp_path: Path) -> None:
    """The step fails with InternalError; what is in the cache stays as it was."""
    runner = tiny_runner(tmp_path, Tiny(), Target.NATIVE)
    kept = request(runner, PROMPT)
    in_pieces(runner, kept, [])
    bad = Request(list(OTHER), [runner.capacity.blocks] * runner.capacity.max_blocks)
    with pytest.raises(InternalError, match="failed in a step"):
        step(runner, [(bad, len(OTHER))])
    go_on(runner, [kept], 3)
    expected = request(runner, PROMPT, 1)
    in_pieces(runner, expected, [])
    go_on(runner, [expected], 3)
    assert np.array_equal(np.array(kept.logits), np.array(expected.logits))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("starts", [0, 3]),
        ("starts", [0, 9, 5]),
        ("past", [-1]),
        ("past", [10_000]),
        ("blocks", [[-1] * 16]),
        ("rows", [5]),
    ],
)
def test_steps_that_do_not_add_up_are_errors(
    tmp_path: Path, field: str, value: list[int] | list[list[int]]
) -> None:
    """The operators look at each number before they use it."""
    runner = tiny_runner(tmp_path, Tiny(), Target.NATIVE)
    fields = {"starts": [0, 5], "past": [0], "blocks": [list(range(16))], "rows": [4], field: value}
    wrong = StepInput(
        ids=np.arange(5, dtype=np.int64),
        starts=np.array(fields["starts"], np.int32),
        past=np.array(fields["past"], np.int32),
        blocks=np.array(fields["blocks"], np.int32),
        rows=np.array(fields["rows"], np.int64),
    )
    with pytest.raises(InternalError, match="failed in a step"):
        runner.step(wrong)


@targets
def test_a_cache_without_room_for_a_block_is_refused_with_the_sizes(
    tmp_path: Path, target: Target
) -> None:
    """It says what was given, and what a request takes."""
    settings = EngineSettings(kv_cache_bytes=100)
    with pytest.raises(LoadError, match=r"kv_cache_bytes is 100: .* a request of 256 tokens takes"):
        tiny_runner(tmp_path, Tiny(), target, settings=settings)


def test_slots_hold_less_than_the_context_rather_than_being_too_few(tmp_path: Path) -> None:
    """A cache of two contexts has four slots of half a context."""
    # Keys and values of two layers, two heads of 16 floats each.
    settings = EngineSettings(kv_cache_bytes=2 * 256 * 2 * 2 * 2 * 16 * 4)
    capacity = tiny_runner(tmp_path, Tiny(), Target.PORTABLE, settings=settings).capacity
    assert (capacity.slots, capacity.blocks, capacity.block_size) == (True, 4, 128)


def _answer(runner: Runner, cuts: list[int]) -> Array:
    asked = request(runner, PROMPT)
    in_pieces(runner, asked, cuts)
    go_on(runner, [asked], 4)
    return np.array(asked.logits)


def _answer_in_company(runner: Runner) -> Array:
    """The other one begins before, its blocks lie behind, and both go on together."""
    asked, other = request(runner, PROMPT, 1), request(runner, OTHER, 2)
    step(runner, [(other, 5), (asked, 20)])
    step(runner, [(asked, 1), (other, len(OTHER) - 5)])
    in_pieces(runner, asked, [])
    go_on(runner, [asked, other], 2)
    go_on(runner, [other, asked], 2)
    return np.array(asked.logits)


@targets
def test_a_runner_may_be_closed_while_a_step_computes(tmp_path: Path, target: Target) -> None:
    """The step ends as if nothing had happened, the next one is told; nothing crashes."""
    runner = tiny_runner(tmp_path, Tiny(layers=8), target)
    asked = request(runner, PROMPT * 5)
    begun = threading.Event()
    answers: list[Request] = []

    def compute() -> None:
        begun.set()
        with contextlib.suppress(InternalError):  # it was closed before the step began
            step(runner, [(asked, len(asked.tokens))])
            answers.append(asked)

    thread = threading.Thread(target=compute)
    thread.start()
    assert begun.wait(WAIT)
    runner.close()
    thread.join(WAIT)
    assert not answers or np.isfinite(asked.logits[0]).all()
    with pytest.raises(InternalError, match="closed"):
        step(runner, [(request(runner, PROMPT), 5)])
