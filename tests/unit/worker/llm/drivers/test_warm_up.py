"""What is found out about a runner before anybody's request."""

from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs

from services.rpc.errors import InternalError
from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.step import Array, RunnerCapacity, StepInput
from services.worker.llm.drivers.warm_up import warm_up

CAPACITY = RunnerCapacity(
    blocks=8, block_size=16, max_tokens=64, max_requests=4, max_blocks=4, vocabulary_size=50
)


class Sums:
    """A runner whose logits depend on the tokens in a request's block; `noise` is added per request in a step."""

    def __init__(self, capacity: RunnerCapacity = CAPACITY, noise: float = 0.0) -> None:
        self.capacity = capacity
        self.noise = noise
        self.steps: list[StepInput] = []
        self._cache = np.zeros((capacity.blocks, capacity.block_size), np.float32)

    def step(self, step: StepInput) -> Array:
        self.steps.append(step)
        logits = []
        for request, past in enumerate(step.past.tolist()):
            begin, end = step.starts[request : request + 2].tolist()
            block = self._cache[step.blocks[request, 0]]
            block[past : past + end - begin] = step.ids[begin:end]
            for row in range(begin, end):
                if row in step.rows:
                    total = block[: past + row - begin + 1].sum() + self.noise * len(step.past)
                    logits.append(np.sin(np.arange(self.capacity.vocabulary_size) + total))
        return np.array(logits, np.float32).reshape(-1, self.capacity.vocabulary_size)

    def close(self) -> None:
        """Nothing is held."""


def test_a_runner_that_answers_alike_is_warm() -> None:
    """No word is said; a prompt was computed whole and in pieces, alone and in company."""
    runner = Sums()
    with capture_logs() as logs:
        warm_up(runner)
    assert logs == []
    assert [len(step.past) for step in runner.steps] == [1, 1, 1, 2, 2]


def test_answers_that_depend_on_company_are_told() -> None:
    """It serves all the same: the texts are right, only not always the same."""
    with capture_logs() as logs:
        warm_up(Sums(noise=1e-3))
    assert [log["event"] for log in logs] == [
        "answers of this model depend on what is computed beside them"
    ]


def test_logits_that_are_no_numbers_are_a_failed_load() -> None:
    """Such a model answers nobody."""
    with pytest.raises(LoadError, match="its logits are not numbers"):
        warm_up(Sums(noise=float("nan")))


def test_a_first_step_that_fails_is_a_failed_load() -> None:
    """The reason is the runtime's."""
    runner = Sums()

    def fail(step: StepInput) -> Array:
        raise InternalError("head size 24")

    runner.step = fail  # type: ignore[method-assign]
    with pytest.raises(LoadError, match="its first step fails: head size 24"):
        warm_up(runner)


@pytest.mark.parametrize(
    "capacity",
    [
        replace(CAPACITY, blocks=1),
        replace(CAPACITY, max_requests=1),
        replace(CAPACITY, block_size=3, max_blocks=1),
        replace(CAPACITY, block_size=1, max_blocks=1),
        replace(CAPACITY, max_tokens=1),
    ],
    ids=["one block", "one request", "three tokens", "one token", "a step of one token"],
)
def test_the_smallest_runners_are_not_asked_for_more_than_they_have(
    capacity: RunnerCapacity,
) -> None:
    """Steps stay within tokens, requests and blocks."""
    runner = Sums(capacity)
    warm_up(runner)
    for step in runner.steps:
        assert len(step.ids) <= capacity.max_tokens
        assert len(step.past) <= capacity.max_requests
        assert step.blocks.max() < capacity.blocks
        assert (step.past + np.diff(step.starts)).max() <= capacity.block_size
