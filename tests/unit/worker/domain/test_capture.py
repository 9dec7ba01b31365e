"""What may be written of a captured call."""

import json
from datetime import UTC, datetime

from services.worker.domain.capture import Capture, capture_line
from services.worker.domain.redaction import RULES


def line(prompts: list[str], answers: list[str], max_bytes: int = 1000) -> dict[str, object]:
    said = capture_line(
        Capture(
            time=datetime(2026, 11, 30, tzinfo=UTC),
            request_id=b"\x01" * 16,
            project="lab",
            endpoint="chat",
            version="models/m/versions/1",
            prompts=prompts,
            answers=answers,
            scores={"input_offensive": 0.5},
            max_bytes=max_bytes,
        ),
        RULES,
    )
    assert b"\n" not in said
    found: dict[str, object] = json.loads(said)
    return found


def test_texts_are_redacted() -> None:
    """Prompts and answers; what was found is counted."""
    found = line(["I am a@b.org"], ["call +49 30 1234567", "a@b.org"])
    assert found["prompts"] == ["I am [email]"]
    assert found["answers"] == ["call [phone]", "[email]"]
    assert found["redacted"] == {"email": 2, "phone": 1}
    assert found["cut"] is False


def test_what_is_cut_was_redacted_before() -> None:
    """The first part of a secret that the bound would cut in two is not kept."""
    found = line(["x" * 90 + " 4111 1111 1111 1111 and more"], ["é" * 60], max_bytes=99)
    assert found["prompts"] == ["x" * 90 + " [card] a"]
    assert found["answers"] == ["é" * 49]
    assert found["cut"] is True


def test_bounds_count_for_all_texts_together() -> None:
    """The later ones get what is left."""
    found = line(["aaaa", "bbbb", "cccc"], [], max_bytes=6)
    assert found["prompts"] == ["aaaa", "bb", ""]
