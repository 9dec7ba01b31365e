"""How steps are cut into runs over slots."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from services.rpc.errors import InternalError
from services.worker.llm.domain.slot_runs import SlotRun, SlotRuns
from services.worker.llm.domain.step import StepInput


def step(requests: Sequence[tuple[int, int, Sequence[int]]], rows: Sequence[int] = ()) -> StepInput:
    """Of slot, past and tokens of each request."""
    return StepInput(
        ids=np.concatenate([np.array(tokens, np.int64) for _, _, tokens in requests]),
        starts=np.cumsum([0, *(len(tokens) for _, _, tokens in requests)]).astype(np.int32),
        past=np.array([past for _, past, _ in requests], np.int32),
        blocks=np.array([[slot] for slot, _, _ in requests], np.int32),
        rows=np.array(rows, np.int64),
    )


def said(run: SlotRun) -> tuple[int, list[list[int]], list[int], list[int], list[int], list[int]]:
    """Everything of a run as plain values."""
    return (
        run.first,
        run.ids.tolist(),
        run.past.tolist(),
        run.lengths.tolist(),
        run.rows.tolist(),
        run.answers.tolist(),
    )


def after_prompts(runs: SlotRuns, slots: Sequence[int]) -> None:
    """Requests in these slots have had two tokens, and their logits were wanted."""
    for slot in slots:
        runs.of(step([(slot, 0, [8, 9])], rows=[1]))


def test_requests_that_go_on_share_a_run_in_which_others_idle() -> None:
    """Slots 1 and 3 are a run of three slots; the rows are in the run's order, the answers in the step's."""
    runs = SlotRuns(10, 16)
    after_prompts(runs, [1, 3])
    (run,) = runs.of(step([(3, 2, [30]), (1, 2, [10])], rows=[0, 1]))
    assert said(run) == (1, [[10], [0], [30]], [2, 0, 2], [1, 0, 1], [0, 2], [1, 0])


def test_slots_far_apart_are_runs_of_their_own() -> None:
    """Four idle slots between them are dearer than another run."""
    runs = SlotRuns(10, 16)
    after_prompts(runs, [0, 4, 9])
    both = runs.of(step([(0, 2, [1]), (4, 2, [2]), (9, 2, [3])], rows=[0, 1, 2]))
    assert [(run.first, len(run.past)) for run in both] == [(0, 5), (9, 1)]


def test_pieces_of_prompts_are_computed_alone() -> None:
    """One run for the request that goes on, one for each piece; places in `ids` count from the run's start."""
    runs = SlotRuns(10, 16)
    after_prompts(runs, [0])
    single, first, second = runs.of(
        step([(1, 0, [5, 6, 7]), (0, 2, [4]), (2, 4, [1, 2])], rows=[2, 3])
    )
    assert said(single) == (0, [[4]], [2], [1], [0], [1])
    assert said(first) == (1, [[5, 6, 7]], [0], [3], [2], [0])
    assert said(second) == (2, [[1, 2]], [4], [2], [], [])


def test_a_piece_of_one_token_goes_with_the_token_before_it() -> None:
    """As part of a longer piece it would be computed together with others, too."""
    runs = SlotRuns(10, 16)
    runs.of(step([(0, 0, [5, 6])]))
    (run,) = runs.of(step([(0, 2, [7])], rows=[0]))
    assert said(run) == (0, [[6, 7]], [1], [2], [1], [0])


def test_the_first_token_of_a_prompt_has_none_before_it() -> None:
    """It looks at itself alone, which all ways of computing agree on."""
    (run,) = SlotRuns(10, 16).of(step([(0, 0, [5])]))
    assert said(run) == (0, [[5]], [0], [1], [], [])


def test_a_slot_that_is_used_again_begins_anew() -> None:
    """Its new request's second token is of a prompt, although the one before it was answered."""
    runs = SlotRuns(10, 16)
    after_prompts(runs, [0])
    runs.of(step([(0, 0, [5])]))
    (run,) = runs.of(step([(0, 1, [6])], rows=[0]))
    assert run.ids.tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (step([(10, 0, [5])]), r"slots: \[10\]; allowed: different ones below 10"),
        (step([(-1, 0, [5])]), r"slots: \[-1\]"),
        (step([(3, 0, [5]), (3, 0, [6])]), r"slots: \[3, 3\]"),
        (step([(0, 15, [5, 6])]), r"tokens: \[17\]; allowed: at most 16 in a slot"),
        (step([(0, 2**31 - 1, [5])]), r"tokens: \[2147483648\]"),
        (step([(0, -1, [5])]), "tokens"),
        (step([(0, 0, [5])], rows=[1]), r"rows: \[1\]; allowed: places below 1"),
        (step([(0, 0, [5])], rows=[-1]), "rows"),
        (step([(0, 0, [5]), (1, 0, [])]), "starts"),
        (replace(step([(0, 0, [5])]), past=np.zeros(2, np.int32)), "sizes of its parts"),
        (replace(step([(0, 0, [5])]), starts=np.array([0, 2], np.int32)), "starts"),
        (replace(step([(0, 0, [5])]), blocks=np.zeros((1, 2), np.int32)), "sizes of its parts"),
    ],
)
def test_steps_that_reach_outside_of_slots_are_errors(wrong: StepInput, said: str) -> None:
    """Before anything is computed; the error says what was given and what is allowed."""
    with pytest.raises(InternalError, match=said):
        SlotRuns(10, 16).of(wrong)
