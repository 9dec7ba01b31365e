"""A process of its own that reads what a language model is, so that no bytes can harm or stall the registry.

Reads `{"kind", "model", "locations", "cpu_seconds", "memory_bytes"}` as JSON from stdin, writes
`{"inputs", "outputs", "language_model"}` or `{"error"}` to stdout. Run as
`python -m services.registry.adapters.language_probe`.
"""

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_model import gguf_model
from services.modelfiles.model_file import ModelFile
from services.modelfiles.safetensors_model import safetensors_model
from services.registry.adapters.process_bounds import bound
from services.registry.domain.model import Format, LanguageModel, Signature


def main() -> None:
    """Read one question from stdin and answer it on stdout."""
    question = json.load(sys.stdin)
    bound(question["cpu_seconds"], question["memory_bytes"])
    try:
        answer = dataclasses.asdict(Signature((), (), _language_model(_read(question))))
    except ModelFileError as error:
        answer = {"error": str(error)}
    except (MemoryError, RecursionError) as error:
        answer = {"error": f"reading it takes too much memory ({type(error).__name__})"}
    json.dump(answer, sys.stdout)


def _read(question: Mapping[str, Any]) -> ModelFile:
    locations = {path: Path(location) for path, location in question["locations"].items()}
    if question["kind"] == Format.GGUF.value:
        return gguf_model(locations[question["model"]])
    return safetensors_model(locations)


def _language_model(file: ModelFile) -> LanguageModel:
    architecture = file.architecture
    return LanguageModel(
        architecture=architecture.family.name,
        parameter_count=file.parameters,
        context_length=architecture.context_length,
        vocabulary_size=architecture.vocabulary_size,
        layer_count=architecture.layers,
        precision=file.precision,
        has_chat_template=file.has_chat_template,
    )


if __name__ == "__main__":
    main()
