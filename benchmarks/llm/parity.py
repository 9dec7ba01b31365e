"""Holds our tokenizer, template and texts against llama.cpp's: `python -m benchmarks.llm.parity --help`."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import platformdirs

from benchmarks.llm import corpus
from benchmarks.llm.contender import REQUIREMENTS, Catalog, start_llama
from benchmarks.llm.greedy import Greedy
from benchmarks.llm.oracle import Oracle, OracleError
from benchmarks.llm.prompts import Text
from benchmarks.serving.environments import Environments
from services.modelfiles.gguf_header import read_header
from services.worker.llm.adapters import gguf_tokenizer
from services.worker.llm.domain.engine_settings import Target
from services.worker.llm.ports.tokenizer import ChatTemplate, Tokenizer

_TEXTS = 50
_NEW = 48  # tokens
_GRAPHS = (
    (Target.NATIVE, True),
    (Target.PORTABLE, True),
    (Target.NATIVE, False),
    (Target.PORTABLE, False),
)
# The server rounds to 16 bits where it can: by default 1 in 25 of these texts goes another way than in 64-bit floats.
_EXACT = ("--flash-attn", "off", "--cache-type-k", "f32", "--cache-type-v", "f32")
_QUANTISED = "quantised"
_SHOWN = 10  # differences
_LONGEST_START = 120.0  # seconds


@dataclass(slots=True)
class Comparison:
    """How many were alike, and the first that were not."""

    what: str
    compared: int = 0
    size: int = 0  # tokens or characters
    different: list[str] = field(default_factory=list)

    def take(self, ours: Sequence[int] | str, theirs: Sequence[int] | str, told: str) -> None:
        self.compared += 1
        self.size += len(theirs)
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
            near = slice(max(0, at - 2), at + 6)
            said = f"{told}: at {at} of {len(ours)}/{len(theirs)}: ours {ours[near]!r}, theirs {theirs[near]!r}"
            self.different.append(said)

    def lines(self) -> Iterator[str]:
        yield f"{self.what}: {self.compared} compared, {self.size} long, {len(self.different)} different"
        yield from (f"  {one}" for one in self.different[:_SHOWN])


@dataclass(frozen=True, slots=True)
class Asking:
    """What is to be continued."""

    prompts: list[list[int]]
    ends: frozenset[int]  # tokens that end a text


def compare_tokens(oracle: Oracle, ours: Tokenizer, texts: Iterator[str]) -> Comparison:
    """Token by token."""
    result = Comparison("tokens")
    for text in texts:
        result.take(ours.encode(text, special=False), oracle.tokens(text), repr(text[:60]))
    return result


def compare_templates(oracle: Oracle, ours: ChatTemplate) -> Comparison:
    """Every order of up to three roles, with contents that are odd."""
    result = Comparison("templates")
    for messages in conversations():
        told = ", ".join(message["role"] for message in messages)
        result.take(ours.render(messages), oracle.template(messages), told)
    return result


def conversations() -> Iterator[list[dict[str, str]]]:
    """All orders of roles; contents empty, spaced, of many lines, with names of special tokens."""
    contents = (
        "Hi",
        "",
        "  spaced  ",
        "two\nlines\n",
        "<|im_end|>",
        "{{ x }} {% y %}",
        "👍🏽 中文",
    )
    number = itertools.count()
    for length in (1, 2, 3):
        for roles in itertools.product(("system", "user", "assistant"), repeat=length):
            yield [
                {"role": role, "content": contents[next(number) % len(contents)]} for role in roles
            ]


def compare_texts(
    catalog: Catalog, oracle: Oracle, asked: Asking, threads: int
) -> Iterator[Comparison]:
    """Greedy, token by token, by each of our graphs. Told to ignore ends of text, llama.cpp never chooses them."""
    theirs = [oracle.continued(prompt, _NEW) for prompt in asked.prompts]
    for target, exact in _GRAPHS:
        result = Comparison(f"greedy texts, {target.value}, {'float32' if exact else _QUANTISED}")
        file = catalog.files.original()
        with Greedy.open(file, target, exact=exact, banned=asked.ends, threads=threads) as greedy:
            for number, (prompt, right) in enumerate(zip(asked.prompts, theirs, strict=True)):
                result.take(greedy.continued(prompt, _NEW), right, f"prompt {number}")
        yield result


def prompts(tokenizer: Tokenizer, template: ChatTemplate | None, count: int) -> list[list[int]]:
    """Half of them plain text, half questions in the chat's form."""
    text = Text(lambda words: tokenizer.encode(words, special=False))
    draw = np.random.default_rng(4)
    found = []
    for number in range(count):
        words, _ = text.cut(draw, int(draw.integers(8, 97)))
        if number % 2 and template is not None:
            words = template.render([{"role": "user", "content": words}])
        found.append(tokenizer.encode(words, special=True))
    return found


def until_answers(oracle: Oracle, dead: Callable[[], str]) -> None:
    """Wait until a started server answers."""
    begun = time.monotonic()
    while True:
        try:
            oracle.tokens("x")
        except OSError as error:
            if told := dead():
                raise OracleError(told) from error
            if time.monotonic() - begun > _LONGEST_START:
                raise
            time.sleep(0.1)  # another process's readiness cannot be waited on
        else:
            return


def run(oracle: Oracle, order: argparse.Namespace, catalog: Catalog) -> Iterator[Comparison]:
    """What was asked for."""
    fields = read_header(catalog.files.original()).metadata
    tokenizer = gguf_tokenizer.read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"]))
    template = gguf_tokenizer.template_of(fields)
    if "templates" in order.what and template is not None:
        yield compare_templates(oracle, template)
    if "tokens" in order.what:
        python = Environments(order.cache, REQUIREMENTS).python("corpus")
        django = next(python.parents[1].glob("lib/python*/site-packages/django"))
        texts = itertools.islice(corpus.texts(django), order.texts)
        yield compare_tokens(oracle, tokenizer, texts)
    if "texts" in order.what:
        asked = Asking(prompts(tokenizer, template, order.prompts), tokenizer.end_ids)
        yield from compare_texts(catalog, oracle, asked, order.threads)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.llm.parity", description=__doc__)
    add = parser.add_argument
    kinds = ["tokens", "templates", "texts"]
    add(
        "--what", type=lambda t: t.split(","), default=kinds, help="by commas; default: %(default)s"
    )
    add("--texts", type=int, default=100_000, help="of the corpus, at most; default: %(default)s")
    add("--prompts", type=int, default=_TEXTS, help="greedy texts; default: %(default)s")
    add("--threads", type=int, default=0, help="of ours; 0: as many as CPUs")
    add("--server", default="", help="a llama-server that runs; default: one is built and started")
    default = platformdirs.user_cache_path("inferplane") / "benchmarks"
    add("--cache", type=Path, default=default, help="for files and builds: %(default)s")
    return parser.parse_args()


@contextmanager
def started(server: str, catalog: Catalog) -> Iterator[Oracle]:
    """The server that was named, or one of our own."""
    if server:
        yield Oracle(server)
        return
    catalog.llama.make()
    twin = catalog.files.twin()
    with tempfile.TemporaryDirectory(prefix="ip-p-") as folder:
        switches = (*_EXACT, "--no-prefill-assistant")
        running = start_llama(catalog.llama, twin, Path(folder), switches, slots=1)
        try:
            oracle = Oracle(running.address)
            until_answers(oracle, running.dead)
            yield oracle
        finally:
            running.stop()


def main() -> int:
    """Compare and say; 1 if something that must be alike is not."""
    order = parsed()
    order.cache = order.cache.expanduser().absolute()
    catalog = Catalog(order.cache)
    failed = False
    with started(order.server, catalog) as oracle:
        for comparison in run(oracle, order, catalog):
            # A quantised graph may choose another word where two are nearly as likely.
            failed |= bool(comparison.different) and not comparison.what.endswith(_QUANTISED)
            for line in comparison.lines():
                print(line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
