"""Putting requests' arrays together row by row, and taking a batch's outputs apart again."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from services.worker.domain.batch import Waiting
from services.worker.domain.contents import Array
from services.worker.domain.signature import Signature


class RowCountError(Exception):
    """A model gave other rows than it was given: its batch cannot be split."""


def group_of(feeds: Mapping[str, Array]) -> tuple[int, Hashable]:
    """Rows of a request and its group: equal shapes of single rows. None: inputs differ in rows, compute it alone."""
    shapes = [array.shape for array in feeds.values()]
    rows = shapes[0][0]
    if any(shape[0] != rows for shape in shapes):
        return 1, None
    return rows, tuple(shape[1:] for shape in shapes)


def join(batch: Sequence[Waiting]) -> Mapping[str, Array]:
    """Inputs of all requests below each other."""
    if len(batch) == 1:
        return batch[0].feeds
    return {
        name: np.concatenate([request.feeds[name] for request in batch]) for name in batch[0].feeds
    }


def chunks(feeds: Mapping[str, Array], rows: int, max_rows: int) -> list[Mapping[str, Array]]:
    """The same inputs in pieces of at most `max_rows`."""
    if rows <= max_rows:
        return [feeds]
    return [
        {name: array[start : start + max_rows] for name, array in feeds.items()}
        for start in range(0, rows, max_rows)
    ]


def join_outputs(pieces: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    """Outputs of chunks below each other."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def split(outputs: Mapping[str, Array], batch: Sequence[Waiting]) -> list[dict[str, Array]]:
    """Each request's own rows of the outputs that it wants, in order. Raises RowCountError."""
    rows = sum(request.rows for request in batch)
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise RowCountError(f"output {name!r} has shape {list(array.shape)} for {rows} rows")
    answers = []
    start = 0
    for request in batch:
        end = start + request.rows
        answers.append({name: outputs[name][start:end] for name in request.outputs})
        start = end
    return answers


def wanted_outputs(signature: Signature, batch: Sequence[Waiting]) -> tuple[str, ...]:
    """The outputs that at least one request wants, in the model's order."""
    if len(batch) == 1:
        return batch[0].outputs
    names = {name for request in batch for name in request.outputs}
    return tuple(spec.name for spec in signature.outputs if spec.name in names)
