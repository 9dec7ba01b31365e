"""Runs a chat on a terminal, or on lines from standard input.

Lines are read in the main thread, between answers: so line editing works, and Ctrl-C at the prompt is Python's own.
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator

import grpc

from services.cli.adapters.chat import Chat, ChatSettings
from services.cli.adapters.edge import Edge, connect, to_error
from services.cli.adapters.terminal import Terminal
from services.cli.adapters.traffic import get_endpoint
from services.cli.domain.exit_code import UsageError
from services.cli.domain.failures import NO_EDGE, NOT_LISTENING
from services.rpc.errors import NotFoundError

_PROMPT = ">>> "


def chat(
    address: str, settings: ChatSettings, out: Terminal, said: Iterable[str] | None = None
) -> None:
    """Take what is `said`, or lines until their end, /exit, or Ctrl-C at the prompt."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        edge = runner.run(stack.enter_async_context(connect(address)))
        try:
            talk = Chat(edge, settings, out)
            if settings.interactive:
                runner.run(_look_for(edge, settings.endpoint))
                out.say(f"{settings.endpoint} at {address}; /help shows what can be typed")
            for line in _typed() if settings.interactive else said or _piped():
                if not runner.run(talk.take(line)):
                    break
        finally:
            runner.run(stack.aclose())
    if talk.interrupted:
        raise KeyboardInterrupt


async def _look_for(edge: Edge, endpoint: str) -> None:
    """Raise if there is surely nobody to talk to; with the registry away one may still talk."""
    try:
        await get_endpoint(edge, endpoint)
    except grpc.aio.AioRpcError as failed:
        error = to_error(failed, edge.address)
        if isinstance(error, NotFoundError):
            raise NotFoundError(
                f"endpoint '{endpoint}' does not exist\nTry: inferplane endpoints list",
                reason=error.reason,
                metadata=error.metadata,
            ) from failed
        if error.reason in (NOT_LISTENING, NO_EDGE):
            raise error from failed


def _piped() -> Iterator[str]:
    for line in sys.stdin.buffer:
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"-: is no UTF-8 text: {error}") from error


def _typed() -> Iterator[str]:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines with it
    while True:
        try:
            line = input(_PROMPT)
        except (EOFError, KeyboardInterrupt):
            sys.stdout.write("\n")
            return
        yield line
