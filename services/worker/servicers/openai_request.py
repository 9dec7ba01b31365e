"""Requests of OpenAI's two methods for text, read from their JSON.

Unknown fields are passed over, as OpenAI's own servers and those like it do; fields that would change the answer and
are not supported are refused by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from services.rpc.errors import InvalidArgumentError
from services.worker.llm.domain.sampling_checks import SamplingLimits, read_sampling
from services.worker.llm.domain.sampling_settings import SamplingSettings
from services.worker.servicers.openai_fields import Fields, given
from services.worker.servicers.text_prompt import ChatPrompt, Prompt, TextPrompt, TokenPrompt

_SAMPLING = (
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    # Of servers like this one:
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
)
_COMPLETION_TOKENS = 16  # where a completion doesn't say how many
_MOST_PROMPTS = 64
_MOST_PRIORITY = 100
_UNSUPPORTED = (
    "best_of",
    "use_beam_search",
    "prompt_logprobs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
)
_UNSUPPORTED_IN_CHAT = (
    "functions",
    "function_call",
    "audio",
    "web_search_options",
    "echo",
    "continue_final_message",
)
_NAMELESS_ROLE = {"developer": "system"}  # OpenAI's newer word; templates know the older one


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiRequest:
    """What is asked, in either method."""

    prompts: tuple[Prompt, ...]
    prompt_field: str
    sampling: SamplingSettings
    stream: bool
    include_usage: bool
    priority: int
    echo: bool = False  # the prompt is part of the text


Read = Callable[[Mapping[str, Any], SamplingLimits], OpenAiRequest]


def read_chat(said: Mapping[str, Any], limits: SamplingLimits) -> OpenAiRequest:
    """A request for a conversation's next message. Raises InvalidArgumentError with every field that is wrong."""
    fields = Fields(said, [])
    _refuse(fields, (*_UNSUPPORTED, *_UNSUPPORTED_IN_CHAT))
    _refuse_forms(fields)
    messages = _messages(fields, limits.context_length)
    values = {name: fields.raw(name) for name in _SAMPLING}
    name = "max_tokens" if fields.raw("max_completion_tokens") is None else "max_completion_tokens"
    values |= {n: fields.raw(n) for n in ("logprobs", "top_logprobs")} | {
        "max_tokens": fields.raw(name)
    }
    options = fields.get("chat_template_kwargs", dict)
    return _request(
        fields,
        prompts=(ChatPrompt(messages, options),),
        prompt_field="messages",
        sampling=_sampling(fields, values, limits, {"max_tokens": name}),
    )


def read_completion(said: Mapping[str, Any], limits: SamplingLimits) -> OpenAiRequest:
    """A request for what follows a text. Raises InvalidArgumentError with every field that is wrong."""
    fields = Fields(said, [])
    _refuse(fields, (*(name for name in _UNSUPPORTED if name != "best_of"), "suffix"))
    if fields.raw("best_of") not in (None, fields.raw("n") or 1):
        fields.refuse("best_of", "the same as n")
    prompts = _prompts(fields, limits.context_length)
    values = {name: fields.raw(name) for name in _SAMPLING}
    likeliest, tokens = fields.get("logprobs", int), fields.raw("max_tokens")
    values |= {
        "max_tokens": _COMPLETION_TOKENS if tokens is None else tokens,
        "logprobs": likeliest is not None,
        "top_logprobs": likeliest,
    }
    echo = fields.get("echo", bool) or False
    if echo and likeliest is not None:
        fields.refuse("echo", "without logprobs")
    sampling = _sampling(fields, values, limits, {"top_logprobs": "logprobs"})
    total = len(prompts) * sampling.n * (sampling.max_tokens or 0)
    if total > limits.max_output_tokens:
        text = f"{len(prompts)} prompts with n times max_tokens each are {total}"
        fields.wrong("prompt", f"{text}; allowed: {limits.max_output_tokens} together")
    return _request(fields, prompts=prompts, prompt_field="prompt", sampling=sampling, echo=echo)


def _request(
    fields: Fields,
    *,
    prompts: tuple[Prompt, ...],
    prompt_field: str,
    sampling: SamplingSettings,
    echo: bool = False,
) -> OpenAiRequest:
    stream = fields.get("stream", bool) or False
    options = fields.inner("stream_options")
    usage = options.get("include_usage", bool) or False
    priority = fields.get("priority", int) or 0
    if abs(priority) > _MOST_PRIORITY:
        fields.wrong(
            "priority", f"{given(priority)}; allowed: -{_MOST_PRIORITY} to {_MOST_PRIORITY}"
        )
    if fields.violations:
        raise InvalidArgumentError.of_fields(fields.violations)
    return OpenAiRequest(
        prompts=prompts,
        prompt_field=prompt_field,
        sampling=sampling,
        stream=stream,
        include_usage=usage,
        priority=priority,
        echo=echo,
    )


def _sampling(
    fields: Fields, values: Mapping[str, object], limits: SamplingLimits, names: Mapping[str, str]
) -> SamplingSettings:
    try:
        return read_sampling(values, limits, names, prefix="")
    except InvalidArgumentError as error:
        fields.violations += error.violations
        return SamplingSettings(max_tokens=1)


def _refuse(fields: Fields, names: Sequence[str]) -> None:
    for name in names:
        if fields.raw(name) not in (None, False, "", []):
            fields.refuse(name)


def _refuse_forms(fields: Fields) -> None:
    if fields.get("tools", list):
        fields.refuse("tools")
    if fields.raw("tool_choice") not in (None, "none", "auto"):
        fields.refuse("tool_choice", "none")
    if fields.raw("modalities") not in (None, [], ["text"]):
        fields.refuse("modalities", '["text"]')
    form = fields.inner("response_format")
    if form.raw("type") not in (None, "text"):
        form.refuse("type", "text")


def _messages(fields: Fields, most: int) -> tuple[Mapping[str, Any], ...]:
    listed = fields.get("messages", list)
    if not listed:
        if listed is not None or fields.raw("messages") is None:
            fields.wrong("messages", "missing or empty; allowed: at least one message")
        return ()
    if len(listed) > most:
        fields.wrong("messages", f"{len(listed)} messages; allowed: {most}, the context's tokens")
        return ()
    read = []
    for index, message in enumerate(listed):
        if not isinstance(message, dict):
            fields.wrong(f"messages[{index}]", f"{given(message)}; allowed: an object")
            continue
        read.append(_message(Fields(message, fields.violations, f"messages[{index}].")))
    return tuple(read)


def _message(fields: Fields) -> Mapping[str, Any]:
    role = fields.get("role", str)
    if not role:
        fields.wrong(
            "role", "missing; allowed: system, user, assistant, or what else the template knows"
        )
    if fields.raw("tool_calls"):
        fields.refuse("tool_calls")
    content = fields.raw("content")
    if isinstance(content, list):
        content = _parts(fields, content)
    elif not isinstance(content, str):
        what = "missing" if content is None else given(content)
        fields.wrong("content", f"{what}; allowed: a string, or a list of parts of type text")
    return {"role": _NAMELESS_ROLE.get(role or "", role), "content": content}


def _parts(fields: Fields, parts: Sequence[Any]) -> str:
    texts = []
    for index, part in enumerate(parts):
        name = f"content[{index}]"
        if not isinstance(part, dict):
            fields.wrong(name, f"{given(part)}; allowed: an object")
        elif part.get("type") != "text":
            fields.refuse(f"{name}.type", "text")
        elif not isinstance(part.get("text"), str):
            fields.wrong(f"{name}.text", f"{given(part.get('text'))}; allowed: a string")
        else:
            texts.append(part["text"])
    return "\n".join(texts)


def _prompts(fields: Fields, most: int) -> tuple[Prompt, ...]:
    prompt = fields.raw("prompt")
    if isinstance(prompt, str):
        return (TextPrompt(prompt),)
    if _are_tokens(prompt, most):
        return (TokenPrompt(tuple(prompt)),)
    if isinstance(prompt, list) and 0 < len(prompt) <= _MOST_PROMPTS:
        if all(isinstance(one, str) for one in prompt):
            return tuple(TextPrompt(one) for one in prompt)
        if all(_are_tokens(one, most) for one in prompt):
            return tuple(TokenPrompt(tuple(one)) for one in prompt)
    what = "missing" if prompt is None else given(prompt)
    allowed = f"a string, a list of tokens, or up to {_MOST_PROMPTS} of either"
    fields.wrong("prompt", f"{what}; allowed: {allowed}")
    return ()


def _are_tokens(prompt: Any, most: int) -> bool:
    """As far as a context reaches: a longer list is refused anyway."""
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(type(token) is int for token in islice(prompt, most))
