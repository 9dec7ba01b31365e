"""Putting requests' arrays together row by row, and taking a batch's outputs apart again."""

from collections.abc import Mapping, Sequence

import numpy as np

from services.worker.domain.contents import Array


class RowCountError(Exception):
    """A model gave other rows or lengths than it was given: its batch cannot be split."""


def join(requests: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    """Inputs of all requests below each other."""
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([feeds[name] for feeds in requests]) for name in requests[0]}


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


def check_rows(outputs: Mapping[str, Array], rows: int) -> None:
    """Raise RowCountError unless every output has so many rows."""
    for name, array in outputs.items():
        if array.ndim == 0 or array.shape[0] != rows:
            raise RowCountError(f"output {name!r} has shape {list(array.shape)} for {rows} rows")


def split(
    outputs: Mapping[str, Array], rows: Sequence[int], names: Sequence[Sequence[str]]
) -> list[Mapping[str, Array]]:
    """Each request's own rows of the outputs that it wants, in order; `check_rows` has passed."""
    answers: list[Mapping[str, Array]] = []
    start = 0
    for count, wanted in zip(rows, names, strict=True):
        end = start + count
        answers.append({name: outputs[name][start:end] for name in wanted})
        start = end
    return answers
