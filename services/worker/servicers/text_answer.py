"""The answer to a call for text while it is written: kept until the caller takes it, and ended with the call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from inferplane.metering.v1 import usage_pb2

from services.rpc.errors import CancelledError, InferplaneError, ResourceExhaustedError
from services.worker.domain.need import Need
from services.worker.domain.text_telemetry import TextTelemetry
from services.worker.drivers.served_text import ServedText
from services.worker.drivers.tab import NO_TAB, AnyTab, CallMark, there
from services.worker.llm.domain.generation import (
    GenerationRequest,
    Piece,
    RequestId,
    Summary,
    Update,
)
from services.worker.ports.text_watch import Lengths, TextRecord
from services.worker.servicers.open_texts import OpenTexts

_TOKEN_BYTES = 32  # what a token without text is taken for
_LOGPROB_BYTES = 64


@dataclass(frozen=True, slots=True)
class ReaderBounds:
    """A reader who lets more wait, or takes nothing for longer, is taken for gone."""

    seconds: float = 60.0
    size: int = 1024**2  # bytes, roughly


class TextAnswer:
    """Of one call, which may be several requests; a context manager: what still runs at its exit is aborted.

    One event loop only. What comes while the caller is busy with what came before is joined to one update.
    """

    def __init__(
        self, served: ServedText, bounds: ReaderBounds, record: TextRecord | None = None
    ) -> None:
        """Assign only."""
        self._served = served
        self._bounds = bounds
        self._record = record if record is not None else Lengths()
        self._telemetry: TextTelemetry | None = None
        self._tab: AnyTab = NO_TAB
        self._running: dict[int, RequestId] = {}  # by number of the request
        self._texts = OpenTexts()
        self._told = False  # of budgets
        self._untold = 0  # tokens that no written piece has told of
        self._waiting: list[Piece] = []
        self._size = 0  # of what waits
        self._away: float | None = None  # since when the caller is busy with what it took
        self._summaries: list[Summary] = []
        self._error: InferplaneError | None = None
        self._more = asyncio.Event()

    def __enter__(self) -> Self:
        """The call begins."""
        self.arrived = self._served.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._abort(CancelledError("the call has ended"))
        self._served.end(self.arrived, error)
        told = self.telemetry()
        if self._tab.use is not None:
            self._texts.sum_into(self._tab.use)
            self._tab.close(error, _encoded(told))

    def telemetry(self) -> TextTelemetry:
        """What is known of the texts, without them; what is taken after the first time doesn't count."""
        if self._telemetry is None:
            self._telemetry = self._record.end()
        return self._telemetry

    async def admit(self, requests: Sequence[GenerationRequest], mark: CallMark) -> None:
        """Set aside what they may use, count them as one, and `begin`. Raises as `VersionUsage.enter` and that."""
        most = sum(r.sampling.n * (r.sampling.max_tokens or 0) for r in requests)
        need = Need(input_tokens=sum(len(r.prompt) for r in requests), output_tokens=most)
        self._tab = await there(self._served.usage.enter(mark, need))
        try:
            self.begin(requests)
        except InferplaneError:
            self._tab.refuse()
            raise

    def headers(self) -> Sequence[tuple[str, str]]:
        """What the answer tells of budgets, before its first piece: the first time it is asked."""
        told, self._told = self._told, True
        return () if told else self._tab.headers()

    def deliver(self, update: Update, size: int) -> None:
        """An update is about to be handed to the edge, as so many bytes; none: nothing of it could be told yet."""
        self._untold += sum(len(piece.token_ids) for piece in update.pieces)
        if update.summary is not None:  # with those that are no text
            self._untold = update.summary.completion_tokens - self._tab.tokens
        if size:
            self._tab.deliver(self._untold, size)
            self._untold = 0

    def begin(self, requests: Sequence[GenerationRequest]) -> None:
        """Ask the engine, all of these or none. Raises as `TextEngine.submit`."""
        first = 0
        for number, request in enumerate(requests):
            take = partial(self._take, number, first)
            counted = self._texts.add(number, first, request)
            self._running[number] = self._served.engine.submit(counted, take)
            first += request.sampling.n
        self._record.asked(requests)

    async def next(self) -> Update:
        """What was written since the last time; the last one has the summary. Raises the error that ended it."""
        self._away = None
        while not self._waiting and self._error is None and self._running:
            self._more.clear()
            await self._more.wait()
        if self._error is not None and not self._waiting:
            raise self._error
        pieces, self._waiting, self._size = joined(self._waiting), [], 0
        self._away = time.monotonic()
        self._record.wrote(pieces)
        if self._running or self._error is not None:
            return Update(pieces)
        return Update(pieces, _together(self._summaries))

    async def whole(self) -> Update:
        """All of it at once."""
        pieces: list[Piece] = []
        while True:
            update = await self.next()
            pieces += update.pieces
            if update.summary is not None:
                return Update(joined(pieces), update.summary)

    def _take(self, number: int, first: int, update: Update) -> None:
        if number not in self._running:
            return
        for piece in update.pieces:
            self._take_piece(replace(piece, index=first + piece.index) if first else piece)
            if number not in self._running:  # it was the last that the budget had
                self._more.set()
                return
        if update.error is not None:
            del self._running[number]
            self._abort(update.error)
        elif update.summary is not None:
            del self._running[number]
            self._note(update.summary)
        elif self._away is not None and self._is_stalled(time.monotonic() - self._away):
            self._waiting.clear()
            self._abort(_unread(self._bounds))
        self._more.set()

    def _take_piece(self, piece: Piece) -> None:
        texts, tab = self._texts, self._tab
        if not texts.fits(piece, tab.stop_after()):
            self._end_for_budget()
            return
        texts.take(piece)
        self._waiting.append(piece)
        self._size += _size(piece)
        most = tab.stop_after()
        if most is not None and texts.tokens >= most and texts.are_open:
            self._end_for_budget()

    def _end_for_budget(self) -> None:
        """What is left of the budget is used up: all texts end here."""
        self._waiting += self._texts.endings()
        now = time.monotonic()
        for number, request in self._running.items():
            self._served.engine.abort(request)
            self._note(self._texts.summary(number, now))
        self._running = {}

    def _note(self, summary: Summary) -> None:
        self._summaries.append(summary)
        waited = summary.queue_seconds or 0.0
        self._served.statistics.written(waited, summary.total_seconds - waited, time.time_ns())

    def _is_stalled(self, seconds: float) -> bool:
        return seconds > self._bounds.seconds or self._size > self._bounds.size

    def _abort(self, why: InferplaneError) -> None:
        self._error = self._error or why
        running, self._running = self._running, {}
        for request in running.values():
            self._served.engine.abort(request)


def _encoded(told: TextTelemetry) -> bytes:
    return usage_pb2.UsageTelemetry(
        prompt_fingerprint=told.prompt_fingerprint,
        input_characters=told.input_characters,
        output_characters=told.output_characters,
    ).SerializeToString()


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """One piece for each index, in the order in which they began."""
    if len(pieces) == 1:
        return (pieces[0],)
    by_index: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_index.setdefault(piece.index, []).append(piece)
    return tuple(of if not rest else _join([of, *rest]) for of, *rest in by_index.values())


def _join(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        index=pieces[0].index,
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        finish_reason=pieces[-1].finish_reason,
        stop_text=pieces[-1].stop_text,
    )


def _size(piece: Piece) -> int:
    told = sum(_LOGPROB_BYTES * (1 + len(logprob.top)) for logprob in piece.logprobs)
    return len(piece.text) + _TOKEN_BYTES * len(piece.token_ids) + told


def _together(summaries: Sequence[Summary]) -> Summary:
    """Of several requests: counts add up, of times the longest counts."""
    if len(summaries) == 1:
        return summaries[0]
    return Summary(
        prompt_tokens=sum(s.prompt_tokens for s in summaries),
        completion_tokens=sum(s.completion_tokens for s in summaries),
        cached_prompt_tokens=sum(s.cached_prompt_tokens for s in summaries),
        queue_seconds=max((s.queue_seconds or 0.0 for s in summaries), default=None),
        first_token_seconds=max((s.first_token_seconds or 0.0 for s in summaries), default=None),
        per_token_seconds=max((s.per_token_seconds or 0.0 for s in summaries), default=None),
        total_seconds=max((s.total_seconds for s in summaries), default=0.0),
        preemptions=sum(s.preemptions for s in summaries),
    )


def _unread(bounds: ReaderBounds) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the answer was not read for {bounds.seconds:g} s, or {bounds.size} bytes of it waited;"
        " allowed: less",
        reason="ANSWERS_NOT_READ",
        metadata={"seconds": f"{bounds.seconds:g}", "bytes": str(bounds.size)},
    )
