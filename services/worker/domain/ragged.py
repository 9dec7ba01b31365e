"""Inputs of unlike lengths: padded to share a run, and answers cut to their own lengths again."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.worker.domain.assignment import PaddedInput, RunSettings, TrimmedOutput
from services.worker.domain.batch_arrays import RowCountError, check_rows
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BYTES, Datatype
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import FREE, Signature, TensorSpec

Lengths = tuple[int, ...]  # of a request's padded axes, in the order of `Padding.axes`


@dataclass(frozen=True, slots=True)
class _Trim:
    """An axis of an output that is as long as one of the padded axes."""

    output: str
    axis: int
    of: int  # index in `Padding.axes`


@dataclass(frozen=True, slots=True)
class Padding:
    """Which axes of which inputs are padded, and with what; which axes of outputs follow them."""

    axes: tuple[PaddedInput, ...]
    trims: tuple[_Trim, ...]
    _by_input: Mapping[str, tuple[tuple[int, int], ...]]  # (axis, index in `axes`)

    @classmethod
    def of(cls, signature: Signature, settings: RunSettings) -> "Padding | None":
        """What a version's settings say; None: nothing is padded. Raises LoadError that names the field."""
        axes = settings.padded_inputs
        seen: dict[tuple[str, int], int] = {}
        for index, padded in enumerate(axes):
            _check_padded(f"padded_inputs[{index}]", padded, signature)
            if (padded.name, padded.axis) in seen:
                text = f"axis {padded.axis} of {padded.name!r} given twice; allowed: once"
                raise LoadError(f"padded_inputs[{index}]: {text}")
            seen[padded.name, padded.axis] = index
        trims = tuple(
            _trim(f"trimmed_outputs[{index}]", trimmed, signature, seen)
            for index, trimmed in enumerate(settings.trimmed_outputs)
        )
        if not axes:
            return None
        by_input = {
            name: tuple((axis, index) for (n, axis), index in seen.items() if n == name)
            for name in {padded.name for padded in axes}
        }
        return cls(axes, trims, by_input)

    def lengths(self, feeds: Mapping[str, Array]) -> Lengths:
        """A request's own lengths."""
        return tuple(feeds[padded.name].shape[padded.axis] for padded in self.axes)

    def group(self, feeds: Mapping[str, Array], lengths: Lengths) -> Hashable:
        """With whom a request may be padded: equal shapes but for the padded axes, whose lengths are ordered alike.

        Axes that are equal in one request and not in another may not become equal by padding: what a model refuses
        alone (an attention mask shorter than its tokens), it must refuse among others too.
        """
        shapes = tuple(
            self._row_shape(name, array.shape) if name in self._by_input else array.shape[1:]
            for name, array in feeds.items()
        )
        return shapes, _order(lengths)

    def area(self, lengths: Lengths) -> int:
        """Cells of a row that are given by its lengths."""
        return sum(
            math.prod(lengths[index] for _, index in places) for places in self._by_input.values()
        )

    def cells(self, feeds: Mapping[str, Array]) -> int:
        """Elements of the padded inputs."""
        return sum(feeds[name].size for name in self._by_input)

    def join(self, requests: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
        """Inputs of all requests below each other, each padded at its ends to the longest."""
        if len(requests) == 1:
            return requests[0]
        longest = self._longest(requests)
        return {
            name: self._join_padded(name, [feeds[name] for feeds in requests], longest)
            if name in self._by_input
            else np.concatenate([feeds[name] for feeds in requests])
            for name in requests[0]
        }

    def split(
        self, outputs: Mapping[str, Array], requests: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Each request's own rows, cut to its own lengths. Raises RowCountError."""
        rows = [next(iter(feeds.values())).shape[0] for feeds in requests]
        check_rows(outputs, sum(rows))
        if len(requests) == 1:  # nothing was padded
            return [dict(outputs)]
        longest = self._longest(requests)
        for trim in self.trims:
            self._check_length(trim, outputs, longest)
        answers = []
        start = 0
        for feeds, count in zip(requests, rows, strict=True):
            own = {name: array[start : start + count] for name, array in outputs.items()}
            answers.append(self._trimmed(own, self.lengths(feeds)))
            start += count
        return answers

    def _row_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        free = list(shape)
        for axis, _ in self._by_input[name]:
            free[axis] = FREE
        return tuple(free[1:])

    def _longest(self, requests: Sequence[Mapping[str, Array]]) -> Lengths:
        return tuple(
            max(feeds[padded.name].shape[padded.axis] for feeds in requests) for padded in self.axes
        )

    def _join_padded(self, name: str, arrays: Sequence[Array], longest: Lengths) -> Array:
        shape = list(arrays[0].shape)
        shape[0] = sum(array.shape[0] for array in arrays)
        pad: float | str = ""
        for axis, index in self._by_input[name]:
            shape[axis] = longest[index]
            if arrays[0].dtype != object:
                pad = self.axes[index].pad_value
        joined = np.full(shape, pad, arrays[0].dtype)
        start = 0
        for array in arrays:
            own = tuple(slice(size) for size in array.shape[1:])
            joined[(slice(start, start + array.shape[0]), *own)] = array
            start += array.shape[0]
        return joined

    def _check_length(self, trim: _Trim, outputs: Mapping[str, Array], longest: Lengths) -> None:
        array = outputs.get(trim.output)
        if array is None:  # nobody wants it
            return
        if trim.axis >= array.ndim or array.shape[trim.axis] != longest[trim.of]:
            raise RowCountError(
                f"output {trim.output!r} has shape {list(array.shape)};"
                f" axis {trim.axis} should be {longest[trim.of]} long"
            )

    def _trimmed(self, own: dict[str, Array], lengths: Lengths) -> dict[str, Array]:
        for trim in self.trims:
            if trim.output in own:
                cut = (slice(None),) * trim.axis + (slice(lengths[trim.of]),)
                own[trim.output] = own[trim.output][cut]
        return own


def _order(lengths: Lengths) -> Lengths:
    """Which lengths are equal, and which are longer than others; none is apart."""
    if lengths.count(lengths[0]) == len(lengths) and lengths[0]:
        return ()
    ranks = {length: rank for rank, length in enumerate(sorted(set(lengths) | {0}))}
    return tuple(ranks[length] for length in lengths)


def _check_padded(field: str, padded: PaddedInput, signature: Signature) -> None:
    spec = _spec(f"{field}.name", padded.name, "input", signature.inputs)
    _check_axis(f"{field}.axis", padded.axis, spec)
    if spec.shape[padded.axis] != FREE:
        raise LoadError(
            f"{field}.axis: {padded.axis} given, but that dimension of {spec} is fixed; allowed: a free one (-1)"
        )
    if padded.mask and padded.pad_value:
        raise LoadError(f"{field}.pad_value: {padded.pad_value} given; allowed: 0, as it is a mask")
    if not _holds(spec.datatype, padded.pad_value):
        raise LoadError(
            f"{field}.pad_value: {padded.pad_value} given; allowed: a value of {spec.datatype.name}"
        )


def _holds(datatype: Datatype, value: float) -> bool:
    if datatype is BYTES:
        return value == 0
    if datatype.dtype.kind == "b":
        return value in (0, 1)
    if datatype.is_integer:
        low, high = datatype.bounds
        return math.isfinite(value) and value == int(value) and low <= value <= high
    return True


def _trim(
    field: str, trimmed: TrimmedOutput, signature: Signature, padded: Mapping[tuple[str, int], int]
) -> _Trim:
    spec = _spec(f"{field}.name", trimmed.name, "output", signature.outputs)
    _check_axis(f"{field}.axis", trimmed.axis, spec)
    index = padded.get((trimmed.input, trimmed.input_axis))
    if index is None:
        allowed = ", ".join(f"{axis} of {name!r}" for name, axis in padded) or "none"
        raise LoadError(
            f"{field}.input: axis {trimmed.input_axis} of {trimmed.input!r} given;"
            f" allowed: a padded axis ({allowed})"
        )
    return _Trim(trimmed.name, trimmed.axis, index)


def _spec(field: str, name: str, kind: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    allowed = ", ".join(repr(spec.name) for spec in specs)
    raise LoadError(f"{field}: {name!r} given, which is not an {kind}; allowed: {allowed}")


def _check_axis(field: str, axis: int, spec: TensorSpec) -> None:
    if not 1 <= axis < len(spec.shape):
        raise LoadError(f"{field}: {axis} given; allowed: 1 to {len(spec.shape) - 1} ({spec})")
