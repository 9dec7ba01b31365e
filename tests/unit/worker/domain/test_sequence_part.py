"""Parameters of a sequence."""

import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.request_options import PLAIN, read_options
from services.worker.domain.sequence_part import SequencePart


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"sequence_id": 0, "sequence_start": True}, None, id="zero-is-none"),
        pytest.param({"sequence_id": ""}, None, id="empty-is-none"),
        pytest.param({"sequence_id": 7}, SequencePart(7), id="number"),
        pytest.param({"sequence_id": "7"}, SequencePart("7"), id="text-is-another-sequence"),
        pytest.param({"sequence_id": 2**64 - 1}, SequencePart(2**64 - 1), id="largest"),
        pytest.param(
            {"sequence_id": 7, "sequence_start": True, "sequence_end": True},
            SequencePart(7, starts=True, ends=True),
            id="both-ends",
        ),
    ],
)
def test_read(parameters: dict[str, object], expected: SequencePart | None) -> None:
    """Id 0 and the empty text mean none, as in Triton."""
    assert read_options(parameters).sequence == expected
    assert (read_options(parameters) is PLAIN) == (expected is None)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        pytest.param({"sequence_id": -1}, "parameters.sequence_id", id="negative"),
        pytest.param({"sequence_id": 2**64}, "parameters.sequence_id", id="too-large"),
        pytest.param({"sequence_id": True}, "parameters.sequence_id", id="boolean"),
        pytest.param({"sequence_id": 1.5}, "parameters.sequence_id", id="fraction"),
        pytest.param({"sequence_id": "é" * 65}, "parameters.sequence_id", id="long-text"),
        pytest.param(
            {"sequence_id": 1, "sequence_start": 1}, "parameters.sequence_start", id="start"
        ),
        pytest.param({"sequence_id": 1, "sequence_end": "no"}, "parameters.sequence_end", id="end"),
    ],
)
def test_refused(parameters: dict[str, object], field: str) -> None:
    """The field is named."""
    with pytest.raises(InvalidArgumentError) as caught:
        read_options(parameters)
    assert [v.field for v in caught.value.violations] == [field]
