"""Changes are forgotten a day after they were seen to be there."""

from services.metering.drivers.old_news import OldNews
from tests.manual_clock import ManualClock


class Log:
    """Changes 1 to `newest`, some of which are forgotten at a time."""

    def __init__(self) -> None:
        self.newest = 0
        self.oldest = 1

    async def newest_news(self) -> int:
        return self.newest

    async def forget_news(self, until: int) -> int:
        forgotten = max(0, min(until + 1 - self.oldest, 3))
        self.oldest += forgotten
        return forgotten


async def test_what_is_a_day_old_is_forgotten() -> None:
    """1. nothing before a day is over; 2. then all that was there at its beginning; 3. the rest in its turn."""
    log, clock = Log(), ManualClock()
    news = OldNews(log, clock)
    log.newest = 7
    for hour in range(24):
        assert await news.look() == 0
        if hour == 11:
            log.newest = 12
        clock.advance(3600)
    assert await news.look() == 7
    assert log.oldest == 8
    clock.advance(11 * 3600)
    assert await news.look() == 0
    clock.advance(3600)
    assert await news.look() == 5
    assert log.oldest == 13
