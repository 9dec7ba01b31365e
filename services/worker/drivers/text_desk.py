"""Looks at texts that have ended, in a thread beside the event loop: scores them, and captures what rules name.

No answer waits for it. When too much has come, more is dropped and counted; rows of usage never are.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import structlog

from services.worker.domain.capture import Capture, capture_line
from services.worker.domain.redaction import RedactionError, Rule
from services.worker.drivers.ended_text import EndedText
from services.worker.drivers.text_scoring import score
from services.worker.ports.capture_store import CapturedLine, CaptureStore
from services.worker.ports.scorer import Scorer

_log = structlog.get_logger(__name__)

MOST_WAITING = 1024  # texts
_MOST_TOKENS = 4 * 1024**2  # of prompts that wait
_AT_ONCE = 16
MOST_SCORES = 8 * 1024  # kept; a row that is sent for the second time has them again
_TIDY_SECONDS = 600.0
# Read beyond a capture's bound, so that what is cut in two there is found as a whole before it is cut.
MARGIN = 2 * 1024


class DeskEvent(Enum):
    """What became of texts; the values are labels of a metric."""

    SCORED = "scored"
    DROPPED = "dropped"  # too much waited
    FAILED = "failed"  # the scorer raised
    CAPTURED = "captured"
    REDACTION_FAILED = "redaction_failed"  # not kept, since a rule took too long
    CAPTURE_FAILED = "capture_failed"  # not kept, since the disk has no room


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskParts:
    """Who looks, and where captures go; None: nobody, nowhere."""

    scorer: Scorer | None = None
    captures: CaptureStore | None = None
    redaction: Sequence[Rule] = ()


class TextDesk:
    """`put` and `scores` on the event loop; `run` is its loop."""

    def __init__(self, parts: DeskParts, tidy_seconds: float = _TIDY_SECONDS) -> None:
        """Assign only."""
        self._parts = parts
        self._tidy_seconds = tidy_seconds
        self._waiting: deque[EndedText] = deque()
        self._tokens = 0
        self._more = asyncio.Event()
        self._scores: OrderedDict[bytes, Mapping[str, float]] = OrderedDict()
        self.events: Counter[DeskEvent] = Counter()

    def waiting(self) -> int:
        """Texts that nobody has looked at yet."""
        return len(self._waiting)

    def put(self, text: EndedText) -> None:
        """Let it wait; drop it if too much waits."""
        tokens = text.tokens()
        if len(self._waiting) >= MOST_WAITING or self._tokens + tokens > _MOST_TOKENS:
            self.events[DeskEvent.DROPPED] += 1
            return
        self._tokens += tokens
        self._waiting.append(text)
        self._more.set()

    def scores(self, request_id: bytes) -> Mapping[str, float]:
        """Of one of the last requests; empty: none, or none yet."""
        return self._scores.get(request_id, {})

    async def run(self) -> None:
        """Look until cancelled; tidy at once and every few minutes."""
        due = time.monotonic()
        while True:
            if time.monotonic() >= due:
                await self._tidy()
                due = time.monotonic() + self._tidy_seconds
            try:
                async with asyncio.timeout(due - time.monotonic()):
                    await self._more.wait()
            except TimeoutError:
                continue
            await self.look()

    async def look(self) -> None:
        """At some that wait."""
        texts = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        self._tokens -= sum(text.tokens() for text in texts)
        if not self._waiting:
            self._more.clear()
        scores = await asyncio.to_thread(self._scored, texts)
        for text, scored in zip(texts, scores, strict=True):
            if scored:
                self._remember(text.call.request_id, scored)
        await asyncio.to_thread(self._capture, texts, scores)

    def _remember(self, request_id: bytes, scores: Mapping[str, float]) -> None:
        self.events[DeskEvent.SCORED] += 1
        self._scores[request_id] = scores
        if len(self._scores) > MOST_SCORES:
            self._scores.popitem(last=False)

    def _scored(self, texts: Sequence[EndedText]) -> Sequence[Mapping[str, float]]:
        """In a thread."""
        scorer = self._parts.scorer
        if scorer is not None:
            try:
                return score(scorer, texts)
            except Exception as error:  # noqa: BLE001 - scorers are foreign; this supervises them
                # Without the exception's words, which may quote what was scored.
                _log.warning("texts are not scored", texts=len(texts), error=type(error).__name__)
                self.events[DeskEvent.FAILED] += len(texts)
        return [{} for _ in texts]

    def _capture(self, texts: Sequence[EndedText], scores: Sequence[Mapping[str, float]]) -> None:
        """In a thread. Nothing of a text goes anywhere before it is redacted."""
        store = self._parts.captures
        if store is None:
            return
        redacted = map(self._redacted, texts, scores)
        lines = [line for line in redacted if line is not None]
        if not lines:
            return
        try:
            store.keep(lines)
            self.events[DeskEvent.CAPTURED] += len(lines)
        except OSError as error:
            self.events[DeskEvent.CAPTURE_FAILED] += len(lines)
            _log.warning("texts are not captured", texts=len(lines), error=str(error))

    def _redacted(self, text: EndedText, scores: Mapping[str, float]) -> CapturedLine | None:
        rule = text.rule
        if rule is None:
            return None
        call = text.call
        capture = Capture(
            time=datetime.now(UTC),
            request_id=call.request_id,
            project=call.caller.project,
            endpoint=call.caller.endpoint,
            version=str(call.version),
            is_shadow=call.caller.is_shadow,
            prompts=text.prompts_shown(rule.max_bytes + MARGIN),
            answers=text.answers,
            scores=scores,
            max_bytes=rule.max_bytes,
        )
        try:
            return CapturedLine(capture_line(capture, self._parts.redaction), rule.retention_days)
        except RedactionError as error:
            self.events[DeskEvent.REDACTION_FAILED] += 1
            _log.warning("text is not captured", error=str(error))
            return None

    async def _tidy(self) -> None:
        if self._parts.captures is None:
            return
        try:
            await asyncio.to_thread(self._parts.captures.tidy)
        except OSError as error:
            _log.warning("captures are not tidied", error=str(error))
