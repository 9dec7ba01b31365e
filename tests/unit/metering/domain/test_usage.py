"""Batches are checked as a whole, and all that is wrong is told at once."""

from dataclasses import replace

import numpy as np
import pytest

from services.metering.domain.usage import Outcome, UsageBatch, check_batch
from services.rpc.errors import InvalidArgumentError
from tests.metering_usage import PROJECT, Told, batch_of

GOOD = batch_of([Told(request=1), Told(request=2)])


def with_column(name: str, *values: int) -> UsageBatch:
    return replace(GOOD, columns={**GOOD.columns, name: np.array(values, dtype=np.int64)})


@pytest.mark.parametrize(
    ("batch", "field"),
    [
        pytest.param(replace(GOOD, source=""), "source", id="no source"),
        pytest.param(replace(GOOD, request_ids=b"x"), "batch.request_ids", id="ids cut"),
        pytest.param(with_column("rows", 1), "batch.rows", id="a column too short"),
        pytest.param(with_column("outcome", 1, 0), "batch.outcome", id="no outcome"),
        pytest.param(with_column("outcome", 1, 6), "batch.outcome", id="an unknown outcome"),
        pytest.param(with_column("output_tokens", 1, -1), "batch.output_tokens", id="negative"),
        pytest.param(with_column("rows", 1, 2**41), "batch.rows", id="absurdly many"),
        pytest.param(
            replace(GOOD, subject=np.array([0, 1])),
            "batch.subject",
            id="a subject that isn't there",
        ),
        pytest.param(
            replace(GOOD, subjects=[replace(PROJECT, project="No Id")]),
            "batch.subjects[0].project",
            id="a project that is no id",
        ),
        pytest.param(
            replace(GOOD, subjects=[replace(PROJECT, key="k" * 256)]),
            "batch.subjects[0].key",
            id="a key too long",
        ),
        pytest.param(batch_of([Told(request=1)]).after(1), "batch.subject", id="no row at all"),
    ],
)
def test_what_is_wrong_is_named(batch: UsageBatch, field: str) -> None:
    """A batch that breaks a rule is refused, with the field that does."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_batch(batch)
    assert field in {violation.field for violation in caught.value.violations}


def test_what_can_be_put_right_is() -> None:
    """Small slips don't stop an outbox: the first attempt is 1, and cached tokens are input tokens."""
    batch = replace(
        GOOD,
        columns={
            **GOOD.columns,
            "attempt": np.array([0, 3]),
            "cached_tokens": np.array([5, 5]),
            "input_tokens": np.array([9, 2]),
        },
    )
    checked = check_batch(batch)
    assert checked.columns["attempt"].tolist() == [1, 3]
    assert checked.columns["cached_tokens"].tolist() == [5, 2]


def test_the_beginning_can_be_taken_off() -> None:
    """Rows that are known are cut off, with all that belongs to them."""
    rest = batch_of([Told(request=1), Told(request=2, outcome=Outcome.FAILED)], first=7).after(1)
    assert (rest.first_sequence, len(rest)) == (8, 1)
    assert rest.request_ids == (2).to_bytes(16, "big")
    assert rest.columns["outcome"].tolist() == [Outcome.FAILED]
