"""What llama.cpp says, in a file that tests compare with: `python -m benchmarks.llm.golden --help`."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import orjson
import platformdirs

from benchmarks.llm import corpus, parity
from benchmarks.llm.contender import Catalog
from benchmarks.llm.oracle import Oracle
from services.modelfiles.gguf_header import read_header
from services.worker.llm.adapters import gguf_tokenizer

_RANDOM = 150  # texts
_PROMPTS = 3
_NEW = 24  # tokens


def golden(oracle: Oracle, catalog: Catalog) -> dict[str, object]:
    """A sample of everything, small enough to be kept with the tests."""
    fields = read_header(catalog.files.original()).metadata
    tokenizer = gguf_tokenizer.read_tokenizer(fields, len(fields["tokenizer.ggml.tokens"]))
    template = gguf_tokenizer.template_of(fields)
    texts = (*corpus.odd(), *itertools.islice(corpus.random_texts(), _RANDOM))
    prompts = parity.prompts(tokenizer, template, _PROMPTS)
    return {
        "tokens": [[text, oracle.tokens(text)] for text in texts],
        "templates": [[said, oracle.template(said)] for said in parity.conversations()],
        "texts": [[prompt, oracle.continued(prompt, _NEW)] for prompt in prompts],
    }


def main() -> int:
    """Ask and write."""
    parser = argparse.ArgumentParser(prog="benchmarks.llm.golden", description=__doc__)
    default = platformdirs.user_cache_path("inferplane") / "benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="default: %(default)s")
    parser.add_argument("--server", default="", help="a llama-server of the 32-bit model that runs")
    parser.add_argument("output", type=Path)
    order = parser.parse_args()
    catalog = Catalog(order.cache.expanduser().absolute())
    with parity.started(order.server, catalog) as oracle:
        order.output.write_bytes(orjson.dumps(golden(oracle, catalog)) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
