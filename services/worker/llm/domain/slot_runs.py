"""How a step becomes runs where each request has a slot: which requests go together, and what each run computes.

All requests that go on by one token share a run over neighbouring slots, in which others idle; each piece of a prompt
has a run of its own. Together in one run all would be padded to the longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from services.rpc.errors import InternalError
from services.worker.llm.domain.step import Array, StepInput

_IDLE_SLOTS = 3  # in a row between slots of one run: dearer than that is a run of their own


@dataclass(frozen=True, slots=True)
class SlotRun:
    """Requests in slots beside each other."""

    first: int  # slot
    ids: Array  # int64 [slots, S]
    past: Array  # int32 [slots]
    lengths: Array  # int32 [slots]: tokens in this run; 0: it idles
    rows: Array  # int64: places in `ids`, flat
    answers: Array  # int64: which of the step's rows these are


class SlotRuns:
    """Cuts steps up; remembers of each slot's request what it needs for that.

    Runtimes compute one token of a request in another way than several, with other roundings. A request's answers must
    not depend on how its prompt was cut: a piece of one token is computed together with the token before it.
    """

    def __init__(self, slots: int, size: int) -> None:
        """So many slots of so many tokens."""
        self._slots = slots
        self._size = size
        self._last: dict[int, int] = {}  # by slot: the last token
        self._prompts: set[int] = set()  # slots whose prompt goes on: nobody has wanted logits yet

    def of(self, step: StepInput) -> list[SlotRun]:
        """The runs of a step; their order doesn't matter. Raises InternalError if it reaches outside of slots."""
        self._check(step)
        lengths = np.diff(step.starts)
        slots = step.blocks[:, 0]
        self._prompts.update(slots[step.past == 0].tolist())
        is_piece = (lengths > 1) | ((step.past > 0) & np.isin(slots, list(self._prompts)))
        runs = [
            _together(step, slots, group)
            for group in _neighbours(slots, np.flatnonzero(~is_piece & (lengths == 1)))
        ]
        runs += [self._piece(step, int(request)) for request in np.flatnonzero(is_piece)]
        self._note(step, slots)
        return runs

    def _check(self, step: StepInput) -> None:
        """Every number before it is used: the runtime trusts some of them."""
        lengths, slots = np.diff(step.starts), step.blocks[:, :1]
        if not len(step.past) == len(slots) == len(lengths) or step.blocks.shape[1] != 1:
            raise _wrong("sizes of its parts", len(lengths), "one of each for a request")
        if step.starts[0] != 0 or lengths.min() < 1 or step.starts[-1] != len(step.ids):
            raise _wrong("starts", step.starts.tolist(), f"ascending from 0 to {len(step.ids)}")
        if slots.min() < 0 or slots.max() >= self._slots or len(np.unique(slots)) < len(slots):
            raise _wrong("slots", slots[:, 0].tolist(), f"different ones below {self._slots}")
        ends = step.past.astype(np.int64) + lengths
        if step.past.min() < 0 or ends.max() > self._size:
            raise _wrong("tokens", ends.tolist(), f"at most {self._size} in a slot")
        if len(step.rows) and (step.rows.min() < 0 or step.rows.max() >= len(step.ids)):
            raise _wrong("rows", step.rows.tolist(), f"places below {len(step.ids)}")

    def _piece(self, step: StepInput, request: int) -> SlotRun:
        begin, end = int(step.starts[request]), int(step.starts[request + 1])
        slot, past = int(step.blocks[request, 0]), int(step.past[request])
        ids = step.ids[begin:end]
        answers = np.flatnonzero((step.rows >= begin) & (step.rows < end))
        rows = step.rows[answers] - begin
        if len(ids) == 1:
            ids, past, rows = np.array([self._last[slot], ids[0]]), past - 1, rows + 1
        return SlotRun(
            first=slot,
            ids=np.ascontiguousarray(ids[None], np.int64),
            past=np.array([past], np.int32),
            lengths=np.array([len(ids)], np.int32),
            rows=rows.astype(np.int64),
            answers=answers,
        )

    def _note(self, step: StepInput, slots: Array) -> None:
        for slot, end in zip(slots.tolist(), step.starts[1:].tolist(), strict=True):
            self._last[slot] = int(step.ids[end - 1])
        owners = np.searchsorted(step.starts, step.rows, side="right") - 1
        self._prompts.difference_update(slots[owners].tolist())


def _wrong(what: str, given: object, allowed: str) -> InternalError:
    return InternalError(
        f"a step doesn't add up: {what}: {given}; allowed: {allowed}", reason="STEP_FAILED"
    )


def _neighbours(slots: Array, requests: Array) -> Iterator[Sequence[int]]:
    """Requests by slot, cut where too many slots between them would idle."""
    group: list[int] = []
    for request in sorted(requests.tolist(), key=lambda request: int(slots[request])):
        if group and slots[request] - slots[group[-1]] > _IDLE_SLOTS + 1:
            yield group
            group = []
        group.append(request)
    if group:
        yield group


def _together(step: StepInput, slots: Array, group: Sequence[int]) -> SlotRun:
    """One token of each, by slot."""
    requests = np.asarray(group)
    first = int(slots[group[0]])
    count = int(slots[group[-1]]) - first + 1
    places, begins = slots[requests] - first, step.starts[requests]
    ids = np.zeros((count, 1), np.int64)
    past = np.zeros(count, np.int32)
    lengths = np.zeros(count, np.int32)
    ids[places, 0] = step.ids[begins]
    past[places] = step.past[requests]
    lengths[places] = 1
    is_wanted = np.isin(begins, step.rows)
    return SlotRun(
        first=first,
        ids=ids,
        past=past,
        lengths=lengths,
        rows=places[is_wanted].astype(np.int64),
        answers=np.searchsorted(step.rows, begins[is_wanted]),
    )
