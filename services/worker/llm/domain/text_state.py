"""One text as it is written: its tokens, its characters, and what ends it."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from services.worker.llm.domain.detokenizer import Detokenizer
from services.worker.llm.domain.generation import (
    FinishReason,
    GenerationRequest,
    Piece,
    TokenId,
    TokenLogprob,
)
from services.worker.llm.domain.sampler import Chosen
from services.worker.llm.domain.stop_text import StopSearch, StopTree
from services.worker.llm.domain.text_sampling import TextSampling, random_key


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What texts need of a model's tokens."""

    size: int  # ids are below it
    token_bytes: Callable[[TokenId], bytes]
    end_ids: frozenset[TokenId]


class TextState:
    """One of a request's texts. It ends once: `finish_reason` says why."""

    def __init__(
        self, index: int, sampling: TextSampling, stops: StopTree, words: Vocabulary, limit: int
    ) -> None:
        """`limit`: tokens that it may have."""
        self.index = index
        self.sampling = sampling
        self.token_ids: list[TokenId] = []  # all that were chosen, also one that ended the text
        self.finish_reason: FinishReason | None = None
        self._limit = limit
        self._token_bytes = words.token_bytes
        self._min_tokens = sampling.settings.min_tokens
        self._characters = Detokenizer()
        self._stops = StopSearch(stops)

    @property
    def count(self) -> int:
        """Tokens so far."""
        return len(self.token_ids)

    def take(self, chosen: Chosen) -> Piece:
        """It goes on with this token. The piece says if that ended it; a token that ends is not part of the text."""
        assert self.finish_reason is None, "a text ends once"
        token = chosen.token_id
        armed = self.count >= self._min_tokens
        self.token_ids.append(token)
        self.sampling.took(token)
        if armed and token in self.sampling.end_ids:
            return self._end(FinishReason.STOP, "", None)
        text, stop = self._stops.feed(
            self._characters.feed(self._token_bytes(token)), armed=self.count >= self._min_tokens
        )
        if stop:
            self.finish_reason = FinishReason.STOP
            return self._piece(text, chosen, stop)
        if self.count >= self._limit:
            return self._end(FinishReason.LENGTH, text, chosen)
        return self._piece(text, chosen)

    def _end(self, reason: FinishReason, text: str, chosen: Chosen | None) -> Piece:
        """Tell what was held back, too."""
        more, stop = self._stops.feed(
            self._characters.flush(), armed=self.count >= self._min_tokens
        )
        text += more if stop else more + self._stops.flush()
        self.finish_reason = FinishReason.STOP if stop else reason
        return self._piece(text, chosen, stop)

    def _piece(self, text: str, chosen: Chosen | None, stop: str = "") -> Piece:
        tokens: tuple[TokenId, ...] = ()
        logprobs: tuple[TokenLogprob, ...] = ()
        if chosen is not None:
            tokens = (chosen.token_id,)
            logprobs = () if chosen.logprob is None else (chosen.logprob,)
        return Piece(
            index=self.index,
            text=text,
            token_ids=tokens,
            logprobs=logprobs,
            finish_reason=self.finish_reason,
            stop_text=stop,
        )


def begin_texts(request: GenerationRequest, words: Vocabulary, room: int) -> tuple[TextState, ...]:
    """A request's texts, none of which has a token yet. `room`: tokens that the context has beside the prompt."""
    settings = request.sampling
    seed = secrets.randbits(63) if settings.seed is None else settings.seed
    stops = StopTree(settings.stop)
    limit = room if settings.max_tokens is None else min(settings.max_tokens, room)
    own = frozenset[TokenId]() if settings.ignore_eos else words.end_ids

    def begin(index: int) -> TextState:
        sampling = TextSampling(
            settings,
            request.prompt,
            key=random_key(seed, index),
            end_ids=own | settings.stop_token_ids,
            vocabulary_size=words.size,
        )
        return TextState(index, sampling, stops, words, limit)

    return tuple(begin(index) for index in range(settings.n))
