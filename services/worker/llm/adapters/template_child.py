"""Renders one chat template in a process of its own: `python -m services.worker.llm.adapters.template_child`.

A template is a program by whoever made the model. The sandbox keeps it from attributes; only a process can keep it
from taking all time and memory, since a single operation (`'a' * 10**9`, comparing lists of lists) may do so. Frames
(`frames.py`) come on stdin and are answered on stdout: first the template, then conversations.
"""

import datetime as dt
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.worker.llm.adapters.frames import frame, read_frame

MEMORY_BYTES = 512 * 1024**2
CPU_SECONDS = 2
TEXT_CHARACTERS = 32 * 1024**2


class RefusalError(Exception):
    """The template's own word that it doesn't take a conversation."""


class _Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What is inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compiled(source: str) -> jinja2.Template:
    """With what templates are written for: the names and rules of `transformers`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def _refuse(message: object) -> None:
    raise RefusalError(str(message))


def _strftime_now(form: str) -> str:
    return dt.datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as templates call it
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """As `transformers` does: not jinja2's own, which escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _guarded(work: Callable[[], Mapping[str, object]]) -> Mapping[str, object]:
    """However it ends, but for the process's own end."""
    try:
        return work()
    except RefusalError as refusal:
        return {"error": str(refusal)}
    except SecurityError as error:
        return {"error": f"not allowed: {error}"}
    except MemoryError:
        return {"error": "it takes too much memory"}
    except RecursionError:
        return {"error": "it goes too deep"}
    except Exception as error:  # noqa: BLE001 - whatever a template runs into is the template's error
        return {"error": f"{type(error).__name__}: {error}"}


class _Renderer:
    """Takes the template first, then what it is rendered with."""

    def __init__(self) -> None:
        self._template: jinja2.Template | None = None

    def answer(self, names: Mapping[str, Any]) -> Mapping[str, object]:
        """The text, or what is wrong."""
        if self._template is None:
            self._template = compiled(names["source"])
            return {}
        pieces = []
        room = TEXT_CHARACTERS
        for piece in self._template.generate(**names):
            room -= len(piece)
            if room < 0:
                return {"error": f"it writes more than {TEXT_CHARACTERS} characters"}
            pieces.append(piece)
        return {"text": "".join(pieces)}


def _bound_time() -> None:
    """The next piece of work ends this process if it takes longer, also where nobody is left to do so."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    seconds = int(time.process_time()) + 1 + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def main() -> None:
    """Answer frame by frame until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given, out = sys.stdin.buffer, sys.stdout.buffer
    renderer = _Renderer()
    while (names := read_frame(given)) is not None:
        _bound_time()
        answer = _guarded(partial(renderer.answer, names))
        out.write(frame(answer))
        out.flush()


if __name__ == "__main__":
    main()
