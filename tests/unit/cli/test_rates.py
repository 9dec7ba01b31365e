"""Rates from totals: windows, workers that come and go, restarts."""

import pytest

from services.cli.domain.rates import Rate, RateWindow, Totals


def test_one_sample_gives_no_rates() -> None:
    """A rate needs two looks."""
    window = RateWindow()
    window.add(0.0, {("w", "v"): Totals(1, 0, 10)})
    assert window.rates() == {}


def test_rates_over_two_workers() -> None:
    """Calls, errors and the mean are those of all workers together."""
    window = RateWindow()
    window.add(0.0, {("w1", "v"): Totals(0, 0, 0), ("w2", "v"): Totals(100, 5, 1000)})
    window.add(2.0, {("w1", "v"): Totals(10, 2, 5000), ("w2", "v"): Totals(110, 5, 16_000)})
    assert window.rates() == {"v": Rate(11.0, 1.0, 1.0)}


def test_worker_that_comes_counts_from_its_second_sample() -> None:
    """What a new worker had counted before it was seen is no burst."""
    window = RateWindow()
    window.add(0.0, {})
    window.add(1.0, {("w", "v"): Totals(1000, 0, 0)})
    window.add(2.0, {("w", "v"): Totals(1010, 0, 0)})
    assert window.rates()["v"].calls_per_second == pytest.approx(5.0)


def test_worker_that_goes_takes_nothing_back() -> None:
    """Neither a lost worker nor one whose totals began anew makes a negative rate."""
    window = RateWindow()
    window.add(0.0, {("w1", "v"): Totals(50, 0, 0), ("w2", "v"): Totals(50, 0, 0)})
    window.add(1.0, {("w2", "v"): Totals(3, 0, 0)})
    assert window.rates()["v"].calls_per_second == 0.0


def test_window_forgets() -> None:
    """Only the last seconds count."""
    window = RateWindow(seconds=5.0)
    for second in range(20):
        window.add(float(second), {("w", "v"): Totals(1000 if second else 0, 0, 0)})
    assert window.rates()["v"] == Rate(0.0, 0.0, None)


def test_idle_version_is_there_with_zero() -> None:
    """A loaded version without calls has a rate of 0 and no mean."""
    window = RateWindow()
    for second in (0.0, 1.0):
        window.add(second, {("w", "v"): Totals(0, 0, 0)})
    assert window.rates() == {"v": Rate(0.0, 0.0, None)}
