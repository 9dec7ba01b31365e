"""Padding inputs of unlike lengths, and cutting answers to their own."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.assignment import PaddedInput, RunSettings, TrimmedOutput
from services.worker.domain.batch_arrays import RowCountError
from services.worker.domain.contents import Array
from services.worker.domain.load_state import LoadError
from services.worker.domain.ragged import Padding
from services.worker.domain.signature import Signature, spec_of

SIGNATURE = Signature(
    (
        spec_of("ids", "INT64", (-1, -1)),
        spec_of("mask", "BOOL", (-1, -1)),
        spec_of("words", "BYTES", (-1, -1, 2)),
        spec_of("scale", "FP32", (-1,)),
    ),
    (spec_of("each", "FP32", (-1, -1)), spec_of("all", "FP32", (-1,))),
)
PADDED = (
    PaddedInput("ids", 1, pad_value=7),
    PaddedInput("mask", 1, mask=True),
    PaddedInput("words", 1),
)
SETTINGS = RunSettings(padded_inputs=PADDED, trimmed_outputs=(TrimmedOutput("each", 1, "ids", 1),))


def padding() -> Padding:
    made = Padding.of(SIGNATURE, SETTINGS)
    assert made is not None
    return made


def feeds(rows: int, length: int, mask: int | None = None) -> Mapping[str, Array]:
    return {
        "ids": np.full((rows, length), length, np.int64),
        "mask": np.ones((rows, length if mask is None else mask), np.bool_),
        "words": np.full((rows, length, 2), "w", object),
        "scale": np.arange(rows, dtype=np.float32),
    }


def computed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A model that obeys its mask."""
    masked = inputs["ids"] * inputs["mask"]
    return {
        "each": masked.astype(np.float32),
        "all": masked.sum(axis=1).astype(np.float32) + inputs["scale"],
    }


def test_each_is_padded_at_its_end_with_its_value() -> None:
    """Declared value, 0 for a mask, empty strings; inputs that are not padded are only put below each other."""
    joined = padding().join([feeds(1, 2), feeds(2, 3)])
    assert joined["ids"].tolist() == [[2, 2, 7], [3, 3, 3], [3, 3, 3]]
    assert joined["mask"].tolist() == [[True, True, False], [True] * 3, [True] * 3]
    assert joined["words"][0].tolist() == [["w", "w"], ["w", "w"], ["", ""]]
    assert joined["scale"].tolist() == [0, 0, 1]
    assert [array.dtype for array in joined.values()] == [np.int64, np.bool_, object, np.float32]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=6))
def test_a_padded_batch_answers_as_each_alone(requests: list[tuple[int, int]]) -> None:
    """Rows and lengths of any mix come back as they went in."""
    given_feeds = [feeds(rows, length) for rows, length in requests]
    answers = padding().split(computed(padding().join(given_feeds)), given_feeds)
    for own, answer in zip(given_feeds, answers, strict=True):
        for name, array in computed(own).items():
            assert array.tolist() == answer[name].tolist()


def test_an_output_of_another_length_is_not_cut() -> None:
    """A model that gives other lengths than were declared spoils the batch, not the answers."""
    given_feeds = [feeds(1, 2), feeds(1, 3)]
    outputs = computed(padding().join(given_feeds))
    outputs["each"] = outputs["each"][:, :2]
    with pytest.raises(RowCountError, match="axis 1 should be 3"):
        padding().split(outputs, given_feeds)


def test_outputs_that_nobody_wants_are_not_missed() -> None:
    """Only those that were computed are cut."""
    given_feeds = [feeds(1, 2), feeds(1, 3)]
    outputs = {"all": computed(padding().join(given_feeds))["all"]}
    assert [list(answer) for answer in padding().split(outputs, given_feeds)] == [["all"], ["all"]]


def group(own: Mapping[str, Array]) -> object:
    return padding().group(own, padding().lengths(own))


def test_lengths_alone_don_t_part_requests() -> None:
    """Two and three tokens share a run."""
    assert group(feeds(1, 2)) == group(feeds(5, 3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(feeds(1, 3, mask=2), feeds(1, 3), id="a mask shorter than its tokens"),
        pytest.param(feeds(1, 3, mask=2), feeds(1, 2, mask=3), id="shorter here, longer there"),
        pytest.param(feeds(1, 3), feeds(1, 0), id="no tokens at all"),
    ],
)
def test_what_a_model_might_refuse_alone_is_not_mended_by_others(
    one: Mapping[str, Array], other: Mapping[str, Array]
) -> None:
    """Padding must not make equal what was not."""
    assert group(one) != group(other)


def test_other_shapes_part_requests() -> None:
    """Only declared axes are padded."""
    wide = dict(feeds(1, 2))
    wide["words"] = np.full((1, 2, 3), "w", object)
    assert group(wide) != group(feeds(1, 2))


def test_nothing_declared_nothing_padded() -> None:
    """A version without padded inputs has no padding."""
    assert Padding.of(SIGNATURE, RunSettings()) is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        pytest.param(
            RunSettings(padded_inputs=(PaddedInput("tokens", 1),)),
            r"padded_inputs\[0\].name: 'tokens' given, which is not an input; allowed: 'ids'",
            id="an input that is not there",
        ),
        pytest.param(
            RunSettings(padded_inputs=(PaddedInput("ids", 2),)),
            r"padded_inputs\[0\].axis: 2 given; allowed: 1 to 1",
            id="an axis that is not there",
        ),
        pytest.param(
            RunSettings(padded_inputs=(PaddedInput("words", 2),)),
            r"padded_inputs\[0\].axis: 2 given, but that dimension",
            id="a fixed axis",
        ),
        pytest.param(
            RunSettings(padded_inputs=(PADDED[0], PADDED[0])),
            r"padded_inputs\[1\]: axis 1 of 'ids' given twice",
            id="twice",
        ),
        pytest.param(
            RunSettings(padded_inputs=(PaddedInput("ids", 1, pad_value=0.5),)),
            r"padded_inputs\[0\].pad_value: 0.5 given; allowed: a value of INT64",
            id="a value that the datatype has not",
        ),
        pytest.param(
            RunSettings(padded_inputs=(PaddedInput("mask", 1, pad_value=1, mask=True),)),
            r"padded_inputs\[0\].pad_value: 1 given; allowed: 0, as it is a mask",
            id="a mask of ones",
        ),
        pytest.param(
            RunSettings(
                padded_inputs=PADDED, trimmed_outputs=(TrimmedOutput("each", 1, "scale", 1),)
            ),
            r"trimmed_outputs\[0\].input: axis 1 of 'scale' given; allowed: a padded axis",
            id="as long as what is not padded",
        ),
        pytest.param(
            RunSettings(
                padded_inputs=PADDED, trimmed_outputs=(TrimmedOutput("none", 1, "ids", 1),)
            ),
            r"trimmed_outputs\[0\].name: 'none' given, which is not an output",
            id="an output that is not there",
        ),
    ],
)
def test_what_cannot_be_is_a_failed_load(settings: RunSettings, text: str) -> None:
    """The reason names the field, what was given and what is allowed."""
    with pytest.raises(LoadError, match=text):
        Padding.of(SIGNATURE, settings)


def test_cells_are_those_of_padded_inputs() -> None:
    """Two rows of three tokens: ids, mask, and two words each; area: what the lengths give of a row."""
    own = feeds(2, 3)
    assert padding().cells(own) == 2 * (3 + 3 + 6)
    assert padding().area(padding().lengths(own)) == 9
