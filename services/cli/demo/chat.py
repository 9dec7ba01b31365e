"""The demo's chat: a language model is pushed, deployed and asked, by the command line and by any HTTP client."""

import json

from rich.console import Console
from rich.text import Text

from services.cli.demo import smollm2, text_calls
from services.cli.demo.judge import Judge
from services.cli.demo.shell import Shell
from services.cli.domain.exit_code import ExitCode

_NOT_FETCHED = frozenset({ExitCode.NOT_FOUND, ExitCode.UNAVAILABLE})


def serve(shell: Shell) -> bool:
    """Push and deploy the model; False if it can't be fetched, which is no fault of what is shown here."""
    push = ("models", "push", smollm2.MODEL_ID, "--from", smollm2.SOURCE, "--no-accuracy")
    code = shell.attempt(*push)
    if code in _NOT_FETCHED:
        shell.console.print(
            f"{smollm2.SOURCE} can't be fetched, so the demo goes on without a language model.",
            style="yellow",
        )
        return False
    shell.expect(code, *push)
    shell.run("deploy", f"{smollm2.MODEL_ID}@1")
    return True


def ask(shell: Shell, judge: Judge) -> None:
    """Three questions, the last one four times; the same question has one answer, however it is asked."""
    limit = ("--temperature", "0", "--max-tokens", str(smollm2.MAX_TOKENS))
    for text in smollm2.QUESTIONS[:2]:
        shell.call("chat", smollm2.MODEL_ID, "--once", text, *limit)
    question = text_calls.Question(smollm2.MODEL_ID, smollm2.QUESTIONS[-1], smollm2.MAX_TOKENS)
    first = _ask_by_http(shell, question)
    others = (
        text_calls.openai(shell.address, question, lambda _: None),
        text_calls.streamed(shell.address, question),
        text_calls.at_once(shell.address, question),
    )
    for other in others:
        judge.agree(first.text, other.text)
    # Of four times on two workers, two were on the same.
    again = max(others, key=lambda told: told.cached_tokens)
    shell.console.print(
        f"asked three times more: the same text, and {again.cached_tokens} of the prompt's"
        f" {again.prompt_tokens} tokens taken from before"
        if all(other.text == first.text for other in others)
        else "[red]asked three times more: not always the same text"
    )


def _ask_by_http(shell: Shell, question: text_calls.Question) -> text_calls.Told:
    console = shell.console
    body = text_calls.openai_body(question)
    key = '-H "authorization: Bearer $INFERPLANE_API_KEY"'
    typed = f"$ curl -N http://{shell.address}/v1/chat/completions {key} -d '{json.dumps(body)}'"
    console.print(Text(typed, style="bold cyan"), soft_wrap=True)
    console.print("(of its events the text alone:)", style="dim")
    told = text_calls.openai(shell.address, question, lambda piece: _show(console, piece))
    console.print()
    return told


def _show(console: Console, piece: str) -> None:
    console.print(Text(piece), end="", soft_wrap=True)
