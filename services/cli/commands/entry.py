"""Runs one command: reads what was typed, and turns failures into text and exit codes."""

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context

from typer.exceptions import Abort, TyperException

from services.cli.adapters import failure_text
from services.cli.commands.app import command
from services.cli.commands.options import Invocation
from services.cli.domain.exit_code import ExitCode, UsageError, exit_code_of
from services.rpc.errors import InferplaneError


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code."""
    # What a command was given, such as a key, is not the next one's.
    return copy_context().run(_run, arguments)


def _run(arguments: Sequence[str]) -> int:
    invocation = Invocation(as_json=asks_for_json(arguments))
    try:
        result = command().main(
            args=list(arguments), prog_name="inferplane", standalone_mode=False, obj=invocation
        )
        return result if isinstance(result, int) else ExitCode.OK
    except InferplaneError as error:
        return _fail(error, invocation)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # private to typer; the help is shown
            return ExitCode.USAGE
        return _fail(UsageError(_usage_text(error)), invocation)
    except (Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has left; Python's own flush at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether JSON is asked for; a usage error may come before typer has read the option."""
    joined = " ".join(arguments)
    return any(form in joined for form in ("--output json", "--output=json", "-o json", "-ojson"))


def _fail(error: InferplaneError, invocation: Invocation) -> int:
    text = failure_text.as_json(error) if invocation.as_json else failure_text.as_lines(error)
    sys.stderr.write(text + "\n")
    return exit_code_of(error)


def _usage_text(error: TyperException) -> str:
    """What is wrong with what was typed, and in the next line where help is."""
    context = getattr(error, "ctx", None)
    text = error.format_message()
    return f"{text}\nTry: {context.command_path} --help" if context is not None else text
