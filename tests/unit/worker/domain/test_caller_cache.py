"""What is remembered of callers."""

from services.worker.domain.caller import Caller
from services.worker.domain.caller_cache import CallerCache


def test_it_is_bounded_and_keeps_those_that_come_again() -> None:
    """Ten thousand callers come once each and one again and again: it stays, and no more than were allowed do."""
    cache: CallerCache[int] = CallerCache(100)
    faithful = Caller("p", "faithful", "e")
    cache.put(faithful, 1)
    for number in range(10_000):
        cache.put(Caller("p", str(number), "e"), number)
        assert cache.get(faithful) == 1
        assert len(cache) <= 101
    assert cache.get(Caller("p", "0", "e")) is None


def test_callers_of_a_project_are_forgotten() -> None:
    """In both halves."""
    cache: CallerCache[int] = CallerCache(4)
    for number in range(3):
        cache.put(Caller("p", str(number), "e"), number)
        cache.put(Caller("q", str(number), "e"), number)
    cache.forget(lambda caller: caller.project == "p")
    assert all(cache.get(Caller("p", str(number), "e")) is None for number in range(3))
    assert cache.get(Caller("q", "2", "e")) == 2
