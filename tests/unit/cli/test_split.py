"""Traffic splits: one target gets a share, the others keep their proportions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.domain.exit_code import UsageError
from services.cli.domain.split import Share, describe, short, with_share

_V = "models/digits/versions/{}"


def _share(version: int, weight: float) -> Share:
    name = _V.format(version)
    return Share(name, weight, name)


@pytest.mark.parametrize(
    ("before", "percent", "after"),
    [
        pytest.param([_share(1, 100)], 10, {1: 90, 3: 10}, id="beside one"),
        pytest.param([_share(1, 3), _share(2, 1)], 20, {1: 60, 2: 20, 3: 20}, id="beside two"),
        pytest.param([_share(1, 90), _share(3, 10)], 50, {1: 50, 3: 50}, id="grows"),
        pytest.param([_share(1, 90), _share(3, 10)], 100, {3: 100}, id="takes all"),
        pytest.param([_share(3, 7)], 10, {3: 100}, id="is alone already"),
        pytest.param([], 10, {3: 100}, id="is the first"),
    ],
)
def test_with_share(before: list[Share], percent: float, after: dict[int, float]) -> None:
    """The version has its percent; what remains is shared as before."""
    shares = with_share(before, _V.format(3), percent)
    assert {share.target: share.weight for share in shares} == {
        _V.format(version): weight for version, weight in after.items()
    }


def test_alias_that_stands_for_the_version_keeps_its_name() -> None:
    """No second target for a version that is a target by an alias."""
    alias = Share("models/digits/aliases/next", 1, _V.format(3))
    shares = with_share([_share(1, 9), alias], _V.format(3), 25)
    assert [(s.target, s.weight) for s in shares] == [(_V.format(1), 75), (alias.target, 25)]


@pytest.mark.parametrize("percent", [0, -1, 100.1, float("nan"), float("inf")])
def test_percent_out_of_range_is_refused(percent: float) -> None:
    """The message says what is allowed."""
    with pytest.raises(UsageError, match="more than 0, at most 100"):
        with_share([_share(1, 1)], _V.format(3), percent)


@given(
    weights=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=31),
    percent=st.floats(0.1, 99.9),
)
def test_shares_always_add_up(weights: list[float], percent: float) -> None:
    """Whatever the weights were, all are above 0 and the version has its percent of the sum."""
    before = [_share(number, weight) for number, weight in enumerate(weights, 10)]
    after = with_share(before, _V.format(3), percent)
    total = sum(share.weight for share in after)
    assert all(share.weight > 0 for share in after)
    assert total == pytest.approx(100, abs=0.01)
    assert after[-1].weight == percent


def test_words() -> None:
    """Names and splits as people read them."""
    assert short("models/digits/versions/2") == "digits@2"
    assert short("models/digits/aliases/best") == "digits@best"
    assert short("endpoints/digits") == "digits"
    assert describe([(_V.format(1), 9), (_V.format(2), 1)]) == "digits@1 90 %, digits@2 10 %"
    assert describe([]) == "no traffic"
