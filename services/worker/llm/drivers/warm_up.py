"""The first steps of a runner, before anybody's: does it answer, and the same whatever is computed beside it?"""

from collections.abc import Sequence

import numpy as np
import structlog

from services.rpc.errors import InferplaneError
from services.worker.domain.load_state import LoadError
from services.worker.llm.domain.step import Array, StepInput
from services.worker.llm.ports.runner import Runner

_log = structlog.get_logger(__name__)

_PROMPT = 7  # tokens; cut in two the second time
_CUT = 4
_STRIDE = 7919  # tokens far from each other


def warm_up(runner: Runner) -> None:
    """Raises LoadError if it can't compute or computes no text; warns if answers depend on company or cut."""
    try:
        _compare(runner)
    except InferplaneError as error:
        raise LoadError(f"its first step fails: {error.message}") from error


def _compare(runner: Runner) -> None:
    capacity = runner.capacity
    room = min(capacity.block_size * capacity.max_blocks, capacity.max_tokens // 2)
    length = min(_PROMPT, room - 1)
    if length < 1:
        return  # no room for a prompt and its answer
    prompt = (np.arange(1, length + 1) * _STRIDE) % capacity.vocabulary_size
    alone = _alone(runner, prompt)
    if not all(np.isfinite(logits).all() for logits in alone):
        raise LoadError("its logits are not numbers: its weights are damaged, or too large for it")
    if capacity.blocks < 2 or capacity.max_requests < 2:
        return
    together = _together(runner, prompt)
    if not all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True)):
        _log.warning("answers of this model depend on what is computed beside them")


def _alone(runner: Runner, prompt: Array) -> tuple[Array, Array]:
    """Logits after the prompt and after one token more, each a step of its own."""
    first = runner.step(_step(((prompt, 0, 0),))).copy()
    more = first.argmax(axis=-1)
    return first, runner.step(_step(((more, len(prompt), 0),))).copy()


def _together(runner: Runner, prompt: Array) -> tuple[Array, Array]:
    """The same in another block, the prompt cut in two, beside another request."""
    cut, other = min(_CUT, len(prompt)), prompt[::-1]
    runner.step(_step(((prompt[:cut], 0, 1),), wanted=()))
    rest = prompt[cut:]
    if not len(rest):
        return _alone(runner, prompt)
    both = runner.step(_step(((other, 0, 0), (rest, cut, 1)))).copy()
    more = both[1:].argmax(axis=-1)
    step = _step(((more, len(other), 0), (more, len(prompt), 1)))
    return both[1:], runner.step(step)[1:].copy()


def _step(
    requests: Sequence[tuple[Array, int, int]], wanted: Sequence[int] | None = None
) -> StepInput:
    """Of requests' tokens, how many each has in the cache, and its block; logits of all last tokens."""
    starts = np.cumsum([0, *(len(tokens) for tokens, _, _ in requests)])
    rows = starts[1:] - 1
    if wanted is not None:
        rows = rows[list(wanted)]
    return StepInput(
        ids=np.concatenate([tokens for tokens, _, _ in requests]).astype(np.int64),
        starts=starts.astype(np.int32),
        past=np.array([past for _, past, _ in requests], np.int32),
        blocks=np.array([[block] for _, _, block in requests], np.int32),
        rows=rows.astype(np.int64),
    )
