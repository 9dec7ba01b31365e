"""Commands that have language models write: generate, chat."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.commands import sampling_options as sampling
from services.cli.commands.options import (
    DEFAULT_ADDRESS,
    SERVE_PANEL,
    AddressOption,
    EndpointArgument,
    Format,
    OutputOption,
    terminal,
)

if TYPE_CHECKING:
    from inferplane.generation.v1 import generation_pb2

    from services.cli.adapters.chat import ChatSettings
    from services.cli.adapters.edge import Edge
    from services.cli.adapters.generation import GenerationCall
    from services.cli.adapters.terminal import Terminal

app = typer.Typer()

_Prompt = Annotated[
    str, typer.Argument(metavar="PROMPT|-", help="The text to go on from; -: standard input.")
]
_Version = Annotated[
    str | None,
    typer.Option(
        "--version",
        envvar="INFERPLANE_GENERATE_VERSION",
        metavar="VERSION",
        help="Ask the version of this number.",
        show_default="by the traffic split",
    ),
]
_Chat = Annotated[
    bool,
    typer.Option(
        "--chat",
        envvar="INFERPLANE_GENERATE_CHAT",
        help="PROMPT is a question, put to the model by its chat template.",
        show_default="off: PROMPT is taken as it is",
    ),
]
_System = Annotated[
    str | None,
    typer.Option(
        "--system",
        "-s",
        envvar="INFERPLANE_SYSTEM",
        metavar="TEXT",
        help="What the model is told before all else; implies --chat.",
        show_default="nothing",
    ),
]
_ChatSystem = Annotated[
    str | None,
    typer.Option(
        "--system",
        "-s",
        envvar="INFERPLANE_SYSTEM",
        metavar="TEXT",
        help="What the model is told before all else.",
        show_default="nothing",
    ),
]
_Stream = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        envvar="INFERPLANE_GENERATE_STREAM",
        help="Show the text as it is made; with JSON each message in a line.",
        show_default="on; off with JSON or several answers",
    ),
]
_Priority = Annotated[
    int,
    typer.Option(
        "--priority",
        envvar="INFERPLANE_GENERATE_PRIORITY",
        min=-100,
        max=100,
        help="Lower goes first.",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        envvar="INFERPLANE_GENERATE_TIMEOUT",
        metavar="SECONDS",
        min=0.001,
        help="Longest wait for all of an answer.",
    ),
]
_Once = Annotated[
    str | None,
    typer.Option(
        "--once",
        envvar="INFERPLANE_CHAT_ONCE",
        metavar="TEXT",
        help="Say this, show the answer, and end.",
        show_default="lines from the terminal or standard input",
    ),
]


@app.command(rich_help_panel=SERVE_PANEL)
def generate(
    endpoint: EndpointArgument,
    prompt: _Prompt,
    *,
    chat: _Chat = False,
    system: _System = None,
    max_tokens: sampling.MaxTokens = None,
    min_tokens: sampling.MinTokens = None,
    temperature: sampling.Temperature = None,
    top_k: sampling.TopK = None,
    top_p: sampling.TopP = None,
    min_p: sampling.MinP = None,
    repetition_penalty: sampling.RepetitionPenalty = None,
    presence_penalty: sampling.PresencePenalty = None,
    frequency_penalty: sampling.FrequencyPenalty = None,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    stop_token_ids: sampling.StopTokenIds = None,
    ignore_eos: sampling.IgnoreEos = False,
    n: sampling.Count = None,
    logprobs: sampling.Logprobs = False,
    top_logprobs: sampling.TopLogprobs = None,
    stream: _Stream = None,
    version: _Version = None,
    priority: _Priority = 0,
    timeout: _Timeout = 300,
    address: AddressOption = DEFAULT_ADDRESS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have a language model write: the text on stdout, how fast it was on stderr."""
    from services.cli.adapters.generation import GenerationCall, sampling_settings
    from services.cli.domain.reference import parse_endpoint_reference

    lengths = {"max_tokens": max_tokens, "min_tokens": min_tokens, "n": n}
    choice = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
    }
    penalties = {
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
    }
    ends = {"stop": stop, "stop_token_ids": stop_token_ids, "ignore_eos": ignore_eos or None}
    told = {"logprobs": logprobs or bool(top_logprobs) or None, "top_logprobs": top_logprobs}
    call = GenerationCall(
        endpoint=parse_endpoint_reference(endpoint),
        version=version,
        prompt=_prompt(prompt, system, as_question=chat or system is not None),
        sampling=sampling_settings({**lengths, **choice, **penalties, **ends, **told}, "sampling"),
        priority=priority,
        seconds=timeout,
    )
    several = n is not None and n > 1
    by_pieces = stream if stream is not None else not several and output is Format.TABLE
    _generate(address, call, terminal(output), by_pieces=by_pieces)


def _prompt(text: str, system: str | None, *, as_question: bool) -> "generation_pb2.Prompt":
    from services.cli.adapters.generation import conversation_prompt, text_prompt
    from services.cli.commands.endpoints import read_text
    from services.cli.domain.conversation import Conversation

    said = read_text(text) if text == "-" else text
    if not as_question:
        return text_prompt(said)
    return conversation_prompt(Conversation(system or "").with_question(said))


def _generate(address: str, call: "GenerationCall", out: "Terminal", *, by_pieces: bool) -> None:
    """Ask, and show what comes: pieces, or all at once."""
    from services.cli.adapters import generation
    from services.cli.adapters.edge import call as on_edge
    from services.cli.adapters.generation_screen import ShownText, TextScreen
    from services.cli.adapters.terminal import as_dict
    from services.cli.domain.exit_code import UsageError

    if by_pieces and not out.as_json and call.sampling.n > 1:
        raise UsageError("several answers can't be shown as they are made; allowed: --no-stream")
    screen = TextScreen(out)

    async def pieces(edge: "Edge") -> None:
        if out.as_json:
            async for response in generation.stream(edge, call):
                out.json(as_dict(response), indent=None)
            return
        shown = ShownText()
        try:
            logprobs = await screen.stream(generation.stream(edge, call), shown)
        finally:
            screen.end_line()
        screen.logprobs(logprobs)
        out.say(shown.told)

    async def at_once(edge: "Edge") -> None:
        response = await generation.generate(edge, call)
        if out.as_json:
            out.json(as_dict(response))
        else:
            screen.response(response)

    on_edge(address, pieces if by_pieces else at_once)


@app.command(rich_help_panel=SERVE_PANEL)
def chat(
    endpoint: EndpointArgument,
    *,
    system: _ChatSystem = None,
    once: _Once = None,
    max_tokens: sampling.MaxTokens = None,
    temperature: sampling.ChatTemperature = 0.7,
    top_k: sampling.TopK = None,
    top_p: sampling.TopP = None,
    seed: sampling.Seed = None,
    version: _Version = None,
    timeout: _Timeout = 300,
    address: AddressOption = DEFAULT_ADDRESS,
) -> None:
    """Chat with a language model; /help shows what can be typed. Ctrl-C stops an answer, or at the prompt the chat."""
    from services.cli.adapters.chat import ChatSettings
    from services.cli.adapters.generation import sampling_settings
    from services.cli.domain.exit_code import UsageError
    from services.cli.domain.reference import parse_endpoint_reference

    if once is not None and not once.strip():
        raise UsageError("--once: empty; allowed: a text")
    given = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    settings = ChatSettings(
        endpoint=parse_endpoint_reference(endpoint),
        version=version,
        system=system or "",
        sampling=sampling_settings(given, "sampling"),
        seconds=timeout,
        interactive=once is None and sys.stdin.isatty(),
    )
    _chat(address, settings, once)


def _chat(address: str, settings: "ChatSettings", once: str | None) -> None:
    from services.cli.adapters.chat_loop import chat as run

    run(address, settings, terminal(Format.TABLE), [once] if once is not None else None)
