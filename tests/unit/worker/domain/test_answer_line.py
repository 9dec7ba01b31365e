"""Answers leave in the order of arrival, however they are found."""

from hypothesis import given
from hypothesis import strategies as st

from services.worker.domain.answer_line import AnswerLine, Place


@given(st.data(), st.integers(1, 20))
def test_any_order_of_answers_is_the_order_of_arrival(data: st.DataObject, requests: int) -> None:
    """Requests join and are answered in any interleaving; nothing leaves early, the last answer empties the line."""
    line: AnswerLine[int] = AnswerLine()
    joined: list[Place[int]] = []
    open_places: list[int] = []
    left: list[int] = []
    while len(left) < requests:
        may_join = len(joined) < requests
        if may_join and (not open_places or data.draw(st.booleans())):
            open_places.append(len(joined))
            joined.append(line.join(10))
        else:
            number = open_places.pop(data.draw(st.integers(0, len(open_places) - 1)))
            line.answer(joined[number], number)
        while (answer := line.leave()) is not None:
            left.append(answer)
        assert line.size == 10 * len(line) == 10 * (len(joined) - len(left))
        assert not open_places or len(left) == min(open_places)
    assert left == list(range(requests))


def test_nothing_leaves_an_empty_line() -> None:
    """Neither from none, nor before the first has its answer."""
    line: AnswerLine[str] = AnswerLine()
    assert line.leave() is None
    first, second = line.join(1), line.join(2)
    line.answer(second, "second")
    assert line.leave() is None
    line.answer(first, "first")
    assert [line.leave(), line.leave(), line.leave()] == ["first", "second", None]
