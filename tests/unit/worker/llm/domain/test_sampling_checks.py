"""What callers may ask of sampling."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.rpc.errors import InvalidArgumentError
from services.worker.llm.domain.sampling_checks import SamplingLimits, fit, read_sampling
from services.worker.llm.domain.sampling_settings import SamplingSettings

LIMITS = SamplingLimits(vocabulary_size=1000, context_length=2048, max_output_tokens=4096)


def _violations(values: dict[str, Any], **options: Any) -> dict[str, str]:
    with pytest.raises(InvalidArgumentError) as caught:
        read_sampling(values, LIMITS, **options)
    return {violation.field: violation.description for violation in caught.value.violations}


def test_nothing_said_is_the_defaults() -> None:
    """Also where fields are there without a value."""
    assert read_sampling({}, LIMITS) == SamplingSettings()
    assert (
        read_sampling({"temperature": None, "stop": None, "n": None}, LIMITS) == SamplingSettings()
    )


def test_all_that_is_allowed_is_taken() -> None:
    """Types are those of JSON and of messages: lists or tuples, tokens as numbers or names of an object."""
    values = {
        "max_tokens": 16,
        "min_tokens": 2,
        "temperature": 0,
        "top_k": 40,
        "top_p": 1,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": -2,
        "frequency_penalty": 2.0,
        "logit_bias": {"5": -100, 6: 1.5},
        "stop": ["a", "b", "a"],
        "stop_token_ids": [3, 999],
        "ignore_eos": True,
        "seed": -(2**63),
        "n": 16,
        "logprobs": True,
        "top_logprobs": 20,
    }
    settings = read_sampling(values, LIMITS)
    assert settings.temperature == 0.0
    assert settings.logit_bias == {5: -100.0, 6: 1.5}
    assert settings.stop == ("a", "b")
    assert settings.stop_token_ids == frozenset({3, 999})
    assert settings.n == 16
    assert read_sampling({"stop": "end"}, LIMITS).stop == ("end",)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        pytest.param({"temperature": math.nan}, "temperature", id="temperature NaN"),
        pytest.param({"temperature": -0.1}, "temperature", id="temperature negative"),
        pytest.param({"temperature": 2.1}, "temperature", id="temperature too high"),
        pytest.param({"temperature": "hot"}, "temperature", id="temperature a text"),
        pytest.param({"temperature": 10**400}, "temperature", id="temperature no float holds"),
        pytest.param({"top_p": 0}, "top_p", id="top-p 0"),
        pytest.param({"top_p": 2}, "top_p", id="top-p 2"),
        pytest.param({"min_p": 1.01}, "min_p", id="min-p above 1"),
        pytest.param({"top_k": -1}, "top_k", id="top-k negative"),
        pytest.param({"top_k": 2.0}, "top_k", id="top-k no whole number"),
        pytest.param({"repetition_penalty": 0}, "repetition_penalty", id="repetition penalty 0"),
        pytest.param({"presence_penalty": math.inf}, "presence_penalty", id="penalty infinite"),
        pytest.param({"frequency_penalty": True}, "frequency_penalty", id="penalty true"),
        pytest.param({"max_tokens": 0}, "max_tokens", id="max_tokens 0"),
        pytest.param({"max_tokens": -1}, "max_tokens", id="max_tokens negative"),
        pytest.param({"max_tokens": 10**9}, "max_tokens", id="max_tokens too many"),
        pytest.param({"min_tokens": 5, "max_tokens": 4}, "min_tokens", id="min above max_tokens"),
        pytest.param({"n": 0}, "n", id="n 0"),
        pytest.param({"n": 10**6}, "n", id="n too many"),
        pytest.param({"n": 16, "max_tokens": 300}, "n", id="n times max_tokens too many"),
        pytest.param({"n": 16, "min_tokens": 300}, "n", id="n times min_tokens too many"),
        pytest.param({"stop": [""]}, "stop", id="stop empty"),
        pytest.param({"stop": ["a"] * 10**5}, "stop", id="too many stops"),
        pytest.param({"stop": "x" * 257}, "stop", id="stop too long"),
        pytest.param({"stop": [1]}, "stop", id="stop no text"),
        pytest.param({"stop": {"a": 1}}, "stop", id="stop an object"),
        pytest.param({"stop": "\ud800"}, "stop", id="stop not Unicode"),
        pytest.param({"stop_token_ids": [1000]}, "stop_token_ids", id="stop token unknown"),
        pytest.param({"stop_token_ids": [1] * 65}, "stop_token_ids", id="too many stop tokens"),
        pytest.param({"logit_bias": {"1000": 1}}, "logit_bias", id="bias for an unknown token"),
        pytest.param({"logit_bias": {"-1": 1}}, "logit_bias", id="bias for a negative token"),
        pytest.param({"logit_bias": {"x": 1}}, "logit_bias", id="bias for no token"),
        pytest.param({"logit_bias": {"1": 101}}, "logit_bias", id="bias too high"),
        pytest.param({"logit_bias": {"1": math.nan}}, "logit_bias", id="bias NaN"),
        pytest.param({"logit_bias": [1]}, "logit_bias", id="bias a list"),
        pytest.param(
            {"logit_bias": dict.fromkeys(range(1025), 1)}, "logit_bias", id="too many biases"
        ),
        pytest.param({"ignore_eos": 1}, "ignore_eos", id="a number for a flag"),
        pytest.param({"seed": 2**63}, "seed", id="seed too large"),
        pytest.param({"seed": 0.5}, "seed", id="seed no whole number"),
        pytest.param({"top_logprobs": 3}, "top_logprobs", id="top_logprobs without logprobs"),
        pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", id="too many of them"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], field: str) -> None:
    """By its field, with what was given and what is allowed."""
    violations = _violations(values)
    assert list(violations) == [f"sampling.{field}"]
    assert "allowed" in violations[f"sampling.{field}"]
    assert len(violations[f"sampling.{field}"]) < 200


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """Not only the first, and by the names that the caller knows."""
    violations = _violations(
        {"max_tokens": 0, "top_p": 2, "stop": [""]},
        names={"max_tokens": "max_completion_tokens"},
        prefix="",
    )
    assert set(violations) == {"max_completion_tokens", "top_p", "stop"}


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
_FIELDS = list(SamplingSettings.__dataclass_fields__)


@given(st.dictionaries(st.sampled_from(_FIELDS), _ANY))
def test_whatever_comes_is_settings_or_violations(values: dict[str, Any]) -> None:
    """No value makes anything else of it, and settings that come out are within the limits."""
    try:
        settings = read_sampling(values, LIMITS)
    except InvalidArgumentError:
        pass  # with its fields, as the tests above say
    else:
        assert 0 <= settings.temperature <= 2
        assert 0 < settings.top_p <= 1
        assert settings.n * (settings.max_tokens or 1) <= LIMITS.max_output_tokens


def test_prompt_and_answer_beyond_the_context_are_told_with_both_sizes() -> None:
    """In the text and for programs."""
    with pytest.raises(InvalidArgumentError) as caught:
        fit(SamplingSettings(max_tokens=49), 2000, LIMITS)
    assert all(number in caught.value.message for number in ("2000", "49", "2048"))
    assert caught.value.reason == "CONTEXT_EXCEEDED"
    assert caught.value.metadata == {
        "prompt_tokens": "2000",
        "max_tokens": "49",
        "context_length": "2048",
    }


@pytest.mark.parametrize(
    ("settings", "prompt", "most"),
    [
        pytest.param(SamplingSettings(max_tokens=48), 2000, 48, id="exactly full"),
        pytest.param(SamplingSettings(), 2000, 48, id="unset: the context's room"),
        pytest.param(SamplingSettings(n=4), 100, 1024, id="unset: a share of the most"),
    ],
)
def test_max_tokens_is_known_afterwards(settings: SamplingSettings, prompt: int, most: int) -> None:
    """As said, or as many as there is room for."""
    assert fit(settings, prompt, LIMITS).max_tokens == most


@pytest.mark.parametrize(
    "settings", [SamplingSettings(), SamplingSettings(min_tokens=49)], ids=["any", "at least 49"]
)
def test_a_prompt_that_leaves_too_little_room_is_refused(settings: SamplingSettings) -> None:
    """One token must fit, or as many as there have to be."""
    with pytest.raises(InvalidArgumentError):
        fit(settings, 2048 if not settings.min_tokens else 2000, LIMITS)
