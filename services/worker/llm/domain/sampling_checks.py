"""From what a caller asked for to sampling settings: everything that is wrong is told at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.llm.domain.sampling_settings import SamplingSettings

MOST_CHOICES = 16
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 256
MOST_STOP_TOKENS = 64
MOST_BIASES = 1024
MOST_TOP_LOGPROBS = 20
_MOST_BIAS = 100
_SEEDS = (-(2**63), 2**63 - 1)
_TOP_K = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """What a model and its version allow."""

    vocabulary_size: int
    context_length: int  # tokens of prompt and answer together
    max_output_tokens: int  # of all answers of a request


def read_sampling(
    values: Mapping[str, object],
    limits: SamplingLimits,
    names: Mapping[str, str] | None = None,
    prefix: str = "sampling.",
) -> SamplingSettings:
    """Settings from values by the names of `SamplingSettings`; those that are missing or None are its defaults.

    `names` are what this caller calls them. Raises InvalidArgumentError with every field that is wrong.
    """
    reader = _Reader(values, names or {}, prefix)
    settings = reader.settings(limits)
    if reader.violations:
        raise InvalidArgumentError.of_fields(reader.violations)
    return settings


def fit(settings: SamplingSettings, prompt_tokens: int, limits: SamplingLimits) -> SamplingSettings:
    """With `max_tokens` set. Raises InvalidArgumentError, with the sizes, if the context has no room for both."""
    room = limits.context_length - prompt_tokens
    wanted = settings.max_tokens
    if room < max(wanted or 1, settings.min_tokens):
        answer = "" if wanted is None else f" and max_tokens {wanted} together"
        raise InvalidArgumentError(
            f"the prompt of {prompt_tokens} tokens{answer} exceeds the context of"
            f" {limits.context_length} tokens",
            reason="CONTEXT_EXCEEDED",
            metadata={
                "prompt_tokens": str(prompt_tokens),
                "max_tokens": "" if wanted is None else str(wanted),
                "context_length": str(limits.context_length),
            },
        )
    if wanted is not None:
        return settings
    share = limits.max_output_tokens // settings.n
    return replace(settings, max_tokens=max(min(room, share), settings.min_tokens, 1))


class _Reader:
    """Collects what is wrong; a value that is wrong reads as its default."""

    def __init__(self, values: Mapping[str, object], names: Mapping[str, str], prefix: str) -> None:
        self._values = values
        self._names = names
        self._prefix = prefix
        self.violations: list[FieldViolation] = []

    def settings(self, limits: SamplingLimits) -> SamplingSettings:
        defaults = SamplingSettings()
        last_token = limits.vocabulary_size - 1
        max_tokens = self._whole("max_tokens", 1, limits.max_output_tokens)
        settings = SamplingSettings(
            max_tokens=max_tokens,
            min_tokens=self._whole("min_tokens", 0, limits.max_output_tokens) or 0,
            temperature=self._real("temperature", defaults.temperature, 0, 2),
            top_k=self._whole("top_k", 0, _TOP_K) or 0,
            top_p=self._real("top_p", defaults.top_p, 0, 1, above=True),
            min_p=self._real("min_p", defaults.min_p, 0, 1),
            repetition_penalty=self._real(
                "repetition_penalty", defaults.repetition_penalty, 0, 2, above=True
            ),
            presence_penalty=self._real("presence_penalty", 0, -2, 2),
            frequency_penalty=self._real("frequency_penalty", 0, -2, 2),
            logit_bias=self._biases(last_token),
            stop=self._stops(),
            stop_token_ids=self._stop_tokens(last_token),
            ignore_eos=self._flag("ignore_eos"),
            seed=self._whole("seed", *_SEEDS),
            n=self._whole("n", 1, MOST_CHOICES) or 1,
            logprobs=self._flag("logprobs"),
            top_logprobs=self._whole("top_logprobs", 0, MOST_TOP_LOGPROBS) or 0,
        )
        self._check_together(settings, limits)
        return settings

    def _check_together(self, settings: SamplingSettings, limits: SamplingLimits) -> None:
        least = max(settings.max_tokens or 1, settings.min_tokens)
        if settings.n * least > limits.max_output_tokens:
            self._wrong(
                "n",
                f"{settings.n} answers of {least} tokens",
                f"{limits.max_output_tokens} tokens together",
            )
        if settings.max_tokens is not None and settings.min_tokens > settings.max_tokens:
            self._wrong(
                "min_tokens",
                f"{settings.min_tokens}",
                f"at most {self._name('max_tokens')}, {settings.max_tokens}",
            )
        if settings.top_logprobs and not settings.logprobs:
            self._wrong(
                "top_logprobs",
                f"{settings.top_logprobs}",
                f"0, unless {self._name('logprobs')} is set",
            )

    def _name(self, field: str) -> str:
        return self._names.get(field, field)

    def _wrong(self, field: str, given: str, allowed: str) -> None:
        self.violations.append(
            FieldViolation(self._prefix + self._name(field), f"{given}; allowed: {allowed}")
        )

    def _whole(self, field: str, least: int, most: int) -> int | None:
        value = self._values.get(field)
        if value is None:
            return None
        if not _is_whole(value) or not least <= value <= most:
            self._wrong(field, _shown(value), f"{least} to {most}")
            return None
        return int(value)

    def _real(
        self, field: str, default: float, least: float, most: float, *, above: bool = False
    ) -> float:
        value = self._values.get(field)
        if value is None:
            return default
        if _is_real(value) and (least < value if above else least <= value) and value <= most:
            return float(value)
        self._wrong(field, _shown(value), f"{'above ' if above else ''}{least} to {most}")
        return default

    def _flag(self, field: str) -> bool:
        value = self._values.get(field)
        if value is not None and not isinstance(value, bool):
            self._wrong(field, _shown(value), "true or false")
        return value is True

    def _stops(self) -> tuple[str, ...]:
        value = self._values.get("stop")
        stops = (value,) if isinstance(value, str) else _listed(value)
        allowed = f"at most {MOST_STOPS} texts of 1 to {MOST_STOP_CHARACTERS} characters"
        if stops is None:
            self._wrong("stop", _shown(value), allowed)
        elif len(stops) > MOST_STOPS:
            self._wrong("stop", f"{len(stops)} texts", allowed)
        elif bad := [stop for stop in stops if not _is_stop(stop)]:
            self._wrong("stop", _shown(bad[0]), allowed)
        else:
            return tuple(dict.fromkeys(stops))
        return ()

    def _stop_tokens(self, last: int) -> frozenset[int]:
        value = self._values.get("stop_token_ids")
        tokens = _listed(value)
        allowed = f"at most {MOST_STOP_TOKENS} tokens of 0 to {last}"
        if tokens is None:
            self._wrong("stop_token_ids", _shown(value), allowed)
        elif len(tokens) > MOST_STOP_TOKENS:
            self._wrong("stop_token_ids", f"{len(tokens)} tokens", allowed)
        elif bad := [token for token in tokens if not _is_whole(token) or not 0 <= token <= last]:
            self._wrong("stop_token_ids", _shown(bad[0]), allowed)
        else:
            return frozenset(tokens)
        return frozenset()

    def _biases(self, last: int) -> Mapping[int, float]:
        value = self._values.get("logit_bias")
        if value is None:
            return {}
        allowed = (
            f"at most {MOST_BIASES} of -{_MOST_BIAS} to {_MOST_BIAS}, by tokens of 0 to {last}"
        )
        if not isinstance(value, Mapping):
            self._wrong("logit_bias", _shown(value), allowed)
            return {}
        if len(value) > MOST_BIASES:
            self._wrong("logit_bias", f"{len(value)} tokens", allowed)
            return {}
        biases: dict[int, float] = {}
        for key, bias in value.items():
            token = _token_of(key)
            if token is None or not 0 <= token <= last or not _is_bias(bias):
                self._wrong("logit_bias", f"{_shown(key)}: {_shown(bias)}", allowed)
                return {}
            biases[token] = float(bias)
        return biases


def _listed(value: Any) -> Sequence[Any] | None:
    """None: it is no list. Nothing is an empty one."""
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        return None
    return value


def _token_of(key: Any) -> int | None:
    """JSON's names are texts."""
    if _is_whole(key):
        return int(key)
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 20:
        return int(key)
    return None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bias(value: object) -> TypeGuard[float]:
    return _is_real(value) and -_MOST_BIAS <= value <= _MOST_BIAS


def _is_stop(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= MOST_STOP_CHARACTERS
        and not any("\ud800" <= character <= "\udfff" for character in value)
    )


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."
