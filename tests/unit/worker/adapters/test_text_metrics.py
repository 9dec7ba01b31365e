"""Metrics of texts that are looked at: every event has a series from the start, and there are no others."""

from prometheus_client import CollectorRegistry, generate_latest

from services.worker.adapters.text_metrics import TextMetrics
from services.worker.drivers.text_desk import DeskEvent, DeskParts, TextDesk


def test_every_event_has_a_series() -> None:
    """Named as the code names it; nothing of a text or a caller is a label."""
    registry, desk = CollectorRegistry(), TextDesk(DeskParts())
    TextMetrics(desk, registry)
    desk.events[DeskEvent.SCORED] += 2
    shown = generate_latest(registry).decode()
    series = [line for line in shown.splitlines() if line[0] != "#"]
    assert len(series) == len(DeskEvent) + 1
    assert 'inferplane_texts_total{event="scored"} 2.0' in series
    assert 'inferplane_texts_total{event="dropped"} 0.0' in series
    assert "inferplane_waiting_texts 0.0" in series
