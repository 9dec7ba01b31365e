"""A captured call as a line of JSON: redacted first, then cut, so that no cut hides what is to be found."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from services.worker.domain.redaction import Rule, redact


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """As it came; never leaves memory like this."""

    time: datetime
    request_id: bytes
    project: str
    endpoint: str
    version: str
    is_shadow: bool = False
    prompts: Sequence[str]
    answers: Sequence[str]
    scores: Mapping[str, float]
    max_bytes: int  # of prompts, and as many of answers


def capture_line(capture: Capture, rules: Sequence[Rule]) -> bytes:
    """What may be written. Raises RedactionError."""
    found: Counter[str] = Counter()
    prompts, is_prompt_cut = _clean(capture.prompts, capture.max_bytes, rules, found)
    answers, is_answer_cut = _clean(capture.answers, capture.max_bytes, rules, found)
    return orjson.dumps(
        {
            "time": capture.time,
            "request_id": capture.request_id.hex(),
            "project": capture.project,
            "endpoint": capture.endpoint,
            "version": capture.version,
            "shadow": capture.is_shadow,
            "prompts": prompts,
            "answers": answers,
            "cut": is_prompt_cut or is_answer_cut,
            "redacted": found,
            "scores": capture.scores,
        }
    )


def _clean(
    texts: Sequence[str], most: int, rules: Sequence[Rule], found: Counter[str]
) -> tuple[list[str], bool]:
    """All texts within `most` bytes together, and whether something was cut."""
    clean = []
    is_cut = False
    for text in texts:
        redacted = redact(text, rules)
        found.update(redacted.found)
        encoded = redacted.text.encode("utf-8", "replace")
        is_cut = is_cut or len(encoded) > most
        clean.append(encoded[:most].decode("utf-8", "ignore"))
        most = max(0, most - len(encoded))
    return clean, is_cut
