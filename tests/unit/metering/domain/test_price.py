"""The most exact price counts, then the newest that has begun."""

from datetime import UTC, datetime

import pytest

from services.metering.domain.price import Price, PriceBook, PriceId
from services.metering.domain.unit import Unit

MADE = datetime(2026, 11, 30, tzinfo=UTC)
HOUR = 3600 * 10**9


def price(
    number: int, *, project: str = "", model: str = "", version: str = "", at: int = 0
) -> Price:
    return Price(
        id=PriceId(number),
        unit=Unit.OUTPUT_TOKEN,
        amount=number,
        project=project,
        model=model,
        version=version,
        valid_from_ns=at * HOUR,
        create_time=MADE,
    )


ANY, MODEL, VERSION = price(1), price(2, model="m"), price(3, model="m", version="1")
PROJECT = price(4, project="p")
LATER, NEWEST = price(5, at=5), price(6, at=5)


@pytest.mark.parametrize(
    ("prices", "scope", "hour", "found"),
    [
        pytest.param([ANY, MODEL], ("q", "m", "1"), 1, MODEL, id="model before none"),
        pytest.param([VERSION, MODEL], ("q", "m", "1"), 1, VERSION, id="version before model"),
        pytest.param([VERSION, PROJECT], ("p", "m", "1"), 1, PROJECT, id="project before version"),
        pytest.param([PROJECT, ANY], ("q", "m", "1"), 1, ANY, id="another project's is not ours"),
        pytest.param([VERSION], ("q", "m", "2"), 1, None, id="another version's is not ours"),
        pytest.param([ANY, LATER], ("q", "m", "1"), 4, ANY, id="it has not begun yet"),
        pytest.param([ANY, LATER], ("q", "m", "1"), 5, LATER, id="it begins now"),
        pytest.param([NEWEST, LATER], ("q", "m", "1"), 6, NEWEST, id="the last made of two"),
        pytest.param([LATER, MODEL], ("q", "m", "1"), 6, MODEL, id="exactness before newness"),
        pytest.param([], ("q", "m", "1"), 6, None, id="no price at all"),
    ],
)
def test_the_price_that_counts(
    prices: list[Price], scope: tuple[str, str, str], hour: int, found: Price | None
) -> None:
    """Exactness first, then the time it begins, then which was made last."""
    assert PriceBook(prices).find(*scope, Unit.OUTPUT_TOKEN, hour * HOUR) == found


def test_a_book_knows_what_it_was() -> None:
    """Charges of earlier entries are found again by the book of then."""
    book = PriceBook([ANY]).with_price(MODEL)
    assert book.last == 2
    assert book.as_of(PriceId(1)).prices == (ANY,)
    assert book.as_of(PriceId(0)).prices == ()
    assert book.as_of(PriceId(9)) is book


def test_answers_are_remembered_by_segments() -> None:
    """What counts changes only where a price begins."""
    book = PriceBook([ANY, LATER])
    scope = ("q", "m", "1")
    assert book.boundaries_ns == (0, 5 * HOUR)
    assert [book.find_in(scope, Unit.OUTPUT_TOKEN, segment) for segment in (0, 1, 2)] == [
        None,
        ANY,
        LATER,
    ]


def test_one_price_of_many_is_found() -> None:
    """Each project's own among those of thousands, and for others what is for all."""
    own = [price(number, project=f"p{number}", model="m") for number in range(2, 5000)]
    book = PriceBook([*own, ANY])
    for one in own[::500]:
        assert book.find(one.project, "m", "1", Unit.OUTPUT_TOKEN, HOUR) == one
    assert book.find("q", "m", "1", Unit.OUTPUT_TOKEN, HOUR) == ANY
    assert book.find("p2", "m", "1", Unit.ROW, HOUR) is None
