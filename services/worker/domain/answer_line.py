"""Answers that must leave in the order in which their requests came, whatever the order in which they are found."""

from collections import deque
from typing import Generic, TypeVar

A = TypeVar("A")


class Place(Generic[A]):
    """One request's place in the line; it has at most one answer."""

    __slots__ = ("answer", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.answer: A | None = None


class AnswerLine(Generic[A]):
    """Places in order of arrival; the first leave once they have their answers."""

    def __init__(self) -> None:
        self._places: deque[Place[A]] = deque()
        self.size = 0  # of the requests in line, as given to `join`

    def __len__(self) -> int:
        return len(self._places)

    def join(self, size: int) -> Place[A]:
        """The next place, for a request of that size."""
        place: Place[A] = Place(size)
        self._places.append(place)
        self.size += size
        return place

    def answer(self, place: Place[A], answer: A) -> None:
        """Give a place its answer, once."""
        assert place.answer is None
        place.answer = answer

    def leave(self) -> A | None:
        """The first answer, if it is there; its place is gone."""
        if not self._places or self._places[0].answer is None:
            return None
        place = self._places.popleft()
        self.size -= place.size
        return place.answer
