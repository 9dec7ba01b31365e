"""Whether rows may share a run: batches of several sizes against each row alone, of requests of unlike lengths too.

Which axis counts rows is established here, not read from a leading dimension: a sequence has a free one too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.rpc.errors import InferplaneError
from services.worker.domain import varied_inputs
from services.worker.domain.assignment import PaddedInput
from services.worker.domain.batch_arrays import RowCountError
from services.worker.domain.contents import Array
from services.worker.domain.example import Run, shape_lies
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import FREE, Signature
from services.worker.domain.tolerance import largest_of, widest_gap
from services.worker.domain.varied_inputs import Variation

Outputs = Mapping[str, Array]

_SIZES = (2, 3)  # and the largest
_UNLIKE = (3, 5, 9)  # lengths of requests that are padded together; the second has two rows
_MOST_PADDED = 1 + 2 + 1  # rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check found."""

    off_reason: str = ""  # why no requests may share a run; empty: they may
    padding_reason: str = ""  # why those of unlike lengths may not
    warnings: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()  # batches that were compared


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBounds:
    """How much is compared."""

    max_rows: int
    seconds: float  # after which no larger batch is begun
    clock: Callable[[], float]


class _DifferenceError(Exception):
    """A batch is not its rows; the text says where."""


def no_batch_axis(signature: Signature) -> str | None:
    """Why no batch can be made at all; None: all inputs have a first dimension that is free."""
    if not signature.inputs:
        return "it has no inputs"
    for spec in signature.inputs:
        if not spec.has_free_rows:
            return f"input {spec} has no free first dimension: a request is one run"
    return None


class BatchCheck:
    """One version's check; `run` computes all outputs."""

    def __init__(self, signature: Signature, run: Run, bounds: CheckBounds) -> None:
        """Nothing is compared yet."""
        self._signature = signature
        self._run = run
        self._bounds = bounds
        self._end = bounds.clock() + bounds.seconds
        self._alone: list[Outputs] = []  # of row 0, 1 …
        self._seconds_per_row = 0.0
        self._sizes: list[int] = []
        self._lies: list[str] = []

    def verdict(self, padded: tuple[PaddedInput, ...], padding: Padding | None) -> Verdict:
        """Compare, until something differs or the time is over."""
        off = no_batch_axis(self._signature)
        padding_off = None
        if off is None:
            try:
                variation = varied_inputs.settle(self._signature, self._run, padded)
                off = self._rows_problem(variation)
                if off is None and padding is not None:
                    padding_off = self._padding_problem(variation, padding)
            except InferplaneError as error:
                off = f"rows of varied values are refused: {error.message}"
        return Verdict(
            off_reason=off or "",
            padding_reason=padding_off or "",
            warnings=tuple(self._lies),
            sizes=tuple(self._sizes),
        )

    def _rows_problem(self, variation: Variation) -> str | None:
        try:
            self._check_repeatable(variation)
            for size in dict.fromkeys((*_SIZES, self._bounds.max_rows)):
                affordable = self._affordable(size)
                if affordable > max(self._sizes, default=1):
                    self._check_size(variation, affordable)
        except _DifferenceError as different:
            return str(different)
        return None

    def _affordable(self, size: int) -> int:
        """So many rows, or fewer if they would take too long; two always."""
        size = min(size, self._bounds.max_rows)
        left = self._end - self._bounds.clock()
        while size > _SIZES[0]:
            runs = max(0, size - len(self._alone)) + size  # a batch takes no longer than its rows
            if runs * self._seconds_per_row <= left:
                break
            size = max(_SIZES[0], size // 2)
        return size

    def _check_repeatable(self, variation: Variation) -> None:
        self._know_alone(variation, 1)
        again = self._run(varied_inputs.rows_of(self._signature, variation, 0))
        for name, array in again.items():
            first = self._alone[0][name]
            if first.shape != array.shape or widest_gap(first, array, largest_of(first)):
                raise _DifferenceError(f"output {name!r} differs between two runs of the same row")

    def _know_alone(self, variation: Variation, rows: int) -> None:
        clock = self._bounds.clock
        while len(self._alone) < rows:
            began = clock()
            feeds = varied_inputs.rows_of(self._signature, variation, len(self._alone))
            self._alone.append(self._run(feeds))
            self._seconds_per_row = clock() - began

    def _check_size(self, variation: Variation, size: int) -> None:
        self._know_alone(variation, size)
        try:
            together = self._run(varied_inputs.rows_of(self._signature, variation, 0, size))
        except InferplaneError as error:
            raise _DifferenceError(f"{size} rows together are refused: {error.message}") from error
        self._note_lies(together)
        self._sizes.append(size)
        for name, array in together.items():
            _compare(name, [alone[name] for alone in self._alone[:size]], array)

    def _note_lies(self, outputs: Outputs) -> None:
        if not self._lies:
            self._lies = shape_lies(self._signature, outputs)

    def _padding_problem(self, variation: Variation, padding: Padding) -> str | None:
        """Why requests of unlike lengths may not share a run; None: padded they give what they give alone."""
        if self._bounds.max_rows < _MOST_PADDED:
            return f"max_batch_size is less than {_MOST_PADDED}, so it could not be checked"
        try:
            lengths, requests, alone = self._unlike(variation)
        except InferplaneError as error:
            return f"requests of unlike lengths are refused: {error.message}"
        if len({padding.group(feeds, padding.lengths(feeds)) for feeds in requests}) > 1:
            return "an axis of any size is not among padded_inputs: " + ", ".join(
                self._not_padded(padding)
            )
        words = f"requests of lengths {', '.join(map(str, lengths))} padded together"
        try:
            together = padding.split(self._run(padding.join(requests)), requests)
            for number, (own, cut) in enumerate(zip(alone, together, strict=True)):
                _compare_request(
                    f"{words} differs from that of each alone: request {number}", own, cut
                )
        except (InferplaneError, RowCountError) as error:
            return f"{words} failed: {error}"
        except _DifferenceError as different:
            return str(different)
        return None

    def _not_padded(self, padding: Padding) -> list[str]:
        padded = {(one.name, one.axis) for one in padding.axes}
        return [
            f"axis {axis} of {spec.name!r}"
            for spec in self._signature.inputs
            for axis, size in enumerate(spec.shape)
            if axis and size == FREE and (spec.name, axis) not in padded
        ]

    def _unlike(
        self, variation: Variation
    ) -> tuple[Sequence[int], list[dict[str, Array]], list[Outputs]]:
        """Requests of lengths that the model accepts, and what each gives alone."""
        step = variation.length
        refused: InferplaneError | None = None
        for lengths in (_UNLIKE, (step, 2 * step, 3 * step)):
            requests = [
                varied_inputs.rows_of(
                    self._signature, varied_inputs.with_length(variation, length), n, 1 + n % 2
                )
                for n, length in enumerate(lengths)
            ]
            try:
                return lengths, requests, [self._run(feeds) for feeds in requests]
            except InferplaneError as error:
                refused = error
        assert refused is not None
        raise refused


def _compare(name: str, alone: Sequence[Array], together: Array) -> None:
    """Raises _DifferenceError."""
    rows = len(alone)
    for array in alone:
        if array.shape[:1] != (1,):
            raise _DifferenceError(f"output {name!r} of one row has shape {list(array.shape)}")
    if together.shape[:1] != (rows,):
        raise _DifferenceError(f"output {name!r} of {rows} rows has shape {list(together.shape)}")
    for number, array in enumerate(alone):
        if array.shape[1:] != together.shape[1:]:
            raise _DifferenceError(
                f"output {name!r} of a batch of {rows} differs from that of single runs: row {number}"
                f" has shape {list(array.shape[1:])} alone, {list(together.shape[1:])} together"
            )
    all_alone = np.concatenate(alone)
    gap = widest_gap(all_alone, together, largest_of(all_alone))
    if gap is not None:
        raise _DifferenceError(
            f"output {name!r} of a batch of {rows} differs from that of single runs:"
            f" row {gap.index[0]}{_place(gap.index)} is {gap}"
        )


def _compare_request(words: str, alone: Outputs, together: Outputs) -> None:
    """Raises _DifferenceError."""
    for name, array in together.items():
        own = alone[name]
        if own.shape != array.shape:
            raise _DifferenceError(
                f"output {name!r} of {words} has shape {list(own.shape)} alone, {list(array.shape)}"
                " together (settings.trimmed_outputs says which axes are cut)"
            )
        gap = widest_gap(own, array, largest_of(own))
        if gap is not None:
            row = f"row {gap.index[0]}" if gap.index else "its value"
            raise _DifferenceError(f"output {name!r} of {words}, {row}{_place(gap.index)} is {gap}")


def _place(index: tuple[int, ...]) -> str:
    return f" at {list(index[1:])}" if len(index) > 1 else ""
