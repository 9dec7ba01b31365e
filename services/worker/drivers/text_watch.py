"""Watches texts: makes their fingerprints, and hands what is to be scored or captured to the desk once they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from services.worker.domain.capture_rule import CaptureRule, rule_for
from services.worker.domain.text_telemetry import TextTelemetry, fingerprint
from services.worker.drivers.ended_text import EndedText
from services.worker.drivers.text_desk import MARGIN, TextDesk
from services.worker.drivers.text_scoring import LONGEST_SCORED
from services.worker.llm.domain.generation import GenerationRequest, Piece
from services.worker.ports.text_watch import TextRecord, WatchedCall


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """What is made of texts."""

    secret: bytes  # at most 64 bytes; of all workers the same
    rules: Sequence[CaptureRule] = ()
    scored: bool = False


class WatchedTexts:
    """`TextWatch` of a worker."""

    def __init__(self, settings: WatchSettings, desk: TextDesk) -> None:
        """Assign only."""
        self._settings = settings
        self._desk = desk

    def begin(self, call: WatchedCall) -> TextRecord:
        """See `TextWatch`."""
        caller = call.caller
        rule = rule_for(self._settings.rules, caller.endpoint, caller.project, call.request_id)
        scored = LONGEST_SCORED if self._settings.scored else 0
        captured = rule.max_bytes + MARGIN if rule is not None else 0
        return _Record(self, call, rule, max(scored, captured))

    def scores(self, request_id: bytes) -> Mapping[str, float]:
        """See `TextWatch`."""
        return self._desk.scores(request_id)

    def fingerprint(self, project: str, prompts: Sequence[Sequence[int]]) -> bytes:
        """Of this month."""
        return fingerprint(self._settings.secret, project, datetime.now(UTC), prompts)

    def ended(self, text: EndedText) -> None:
        """A text that is to be looked at."""
        self._desk.put(text)


class _Record:
    """`TextRecord` of one call; keeps no more of its answers than somebody looks at."""

    def __init__(
        self, watch: WatchedTexts, call: WatchedCall, rule: CaptureRule | None, kept: int
    ) -> None:
        self._watch = watch
        self._call = call
        self._rule = rule
        self._room = kept  # characters of answers that may still be kept
        self._is_kept = kept > 0
        self._prompts: list[tuple[int, ...]] = []
        self._answers: dict[int, list[str]] = {}
        self._input = 0
        self._output = 0

    def asked(self, requests: Sequence[GenerationRequest]) -> None:
        """See `TextRecord`."""
        for request in requests:
            self._prompts.append(request.prompt)
            self._input += request.characters

    def wrote(self, pieces: Sequence[Piece]) -> None:
        """See `TextRecord`."""
        for piece in pieces:
            self._output += len(piece.text)
            if self._room > 0:
                self._answers.setdefault(piece.index, []).append(piece.text[: self._room])
                self._room -= len(piece.text)

    def end(self) -> TextTelemetry:
        """See `TextRecord`."""
        if self._is_kept and self._prompts:
            answers = tuple("".join(parts) for _, parts in sorted(self._answers.items()))
            self._watch.ended(EndedText(self._call, tuple(self._prompts), answers, self._rule))
        project = self._call.caller.project
        return TextTelemetry(
            prompt_fingerprint=self._watch.fingerprint(project, self._prompts),
            input_characters=self._input,
            output_characters=self._output,
        )
