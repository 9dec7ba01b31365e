"""The texts of one call while they are written: how many tokens they have, and what their end is without the engine."""

from dataclasses import dataclass, field, replace

from services.worker.domain.request_use import RequestUse
from services.worker.llm.domain.generation import FinishReason, GenerationRequest, Piece, Summary


@dataclass(slots=True)
class _Asked:
    """One of the call's requests."""

    first: int  # index of its first text
    request: GenerationRequest
    use: RequestUse
    tokens: int = 0

    @property
    def indices(self) -> range:
        """Of its texts."""
        return range(self.first, self.first + self.request.sampling.n)


@dataclass(slots=True)
class OpenTexts:
    """Of all requests of a call."""

    tokens: int = 0  # that were chosen, with those that end a text
    _asked: dict[int, _Asked] = field(default_factory=dict)  # by number of the request
    _open: dict[int, _Asked] = field(default_factory=dict)  # by index

    def add(self, number: int, first: int, request: GenerationRequest) -> GenerationRequest:
        """One more request; as it is to be computed, so that its use is noted."""
        use = RequestUse()
        asked = self._asked[number] = _Asked(first, request, use)
        self._open |= dict.fromkeys(asked.indices, asked)
        return replace(request, use=use)

    @property
    def are_open(self) -> bool:
        """Whether any has not ended."""
        return bool(self._open)

    def fits(self, piece: Piece, most: int | None) -> bool:
        """Whether all texts together have no more tokens than that with it."""
        return most is None or self.tokens + _tokens(piece) <= most

    def take(self, piece: Piece) -> None:
        """A text goes on."""
        count = _tokens(piece)
        self.tokens += count
        self._open[piece.index].tokens += count
        if piece.finish_reason is not None:
            del self._open[piece.index]

    def endings(self) -> list[Piece]:
        """All that are open end here."""
        ended, self._open = list(self._open), {}
        return [Piece(index=index, finish_reason=FinishReason.BUDGET) for index in ended]

    def summary(self, number: int, now: float) -> Summary:
        """Of a request that ended here and not in the engine."""
        asked = self._asked[number]
        return Summary(
            prompt_tokens=len(asked.request.prompt),
            completion_tokens=asked.tokens,
            cached_prompt_tokens=asked.use.cached_tokens,
            queue_seconds=asked.use.queue_ns / 1e9,
            total_seconds=now - asked.request.arrived,
            preemptions=asked.use.preemptions,
        )

    def sum_into(self, use: RequestUse) -> None:
        """What all of them took."""
        uses = [asked.use for asked in self._asked.values()]
        use.queue_ns = max((one.queue_ns for one in uses), default=0)
        use.compute_ns = sum(one.compute_ns for one in uses)
        use.cached_tokens = sum(one.cached_tokens for one in uses)
        use.preemptions = sum(one.preemptions for one in uses)


def _tokens(piece: Piece) -> int:
    """Of one step; a token that ends a text is none of its text."""
    return max(len(piece.token_ids), piece.finish_reason is not None)
