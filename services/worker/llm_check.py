"""Says what a language model's file is, and whether workers can serve it: `python -m services.worker.llm_check FILE`.

Takes a GGUF file, or the folder of one or of `config.json` with `*.safetensors`. The last line on stdout is a JSON
object: what the model is, or `{"refused", "reason"}` with exit code 1. A process of its own, where a file may take
time and memory.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.model_files import open_model
from services.worker.llm.adapters.model_words import read_words
from services.worker.llm.domain.accuracy import Accuracy
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.ports.model_weights import ModelWeights

_TOOLS = ("gguf", "safetensors", "onnxruntime", "numpy")
_REFUSED = 1  # exit code
_REASON = "MODEL_FILE_INVALID"


def main() -> None:
    """Read the arguments, check, print."""
    parser = argparse.ArgumentParser(prog="llm_check", description=__doc__)
    parser.add_argument("place", type=Path, help="a GGUF file, or a folder")
    parser.add_argument(
        "--accuracy", action="store_true", help="measure what the precision costs, too"
    )
    given = parser.parse_args()
    try:
        said = check(given.place, accuracy=given.accuracy)
    except LoadError as error:
        _print({"refused": str(error), "reason": _REASON})
        sys.exit(_REFUSED)
    except MemoryError:
        _print({"refused": "reading it takes more memory than there is", "reason": _REASON})
        sys.exit(_REFUSED)
    _print(said)


def check(place: Path, *, accuracy: bool) -> Mapping[str, Any]:
    """What the model is. Raises LoadError."""
    model = open_model(place)
    weights = model.weights()
    _read_all(weights)
    shape = weights.plan.shape
    read_words(place, shape.vocabulary_size)
    measured = _measured(place, shape) if accuracy else None
    return {
        "format": model.format,
        "architecture": shape.architecture,
        "parameter_count": shape.parameters,
        "context_length": shape.context_length,
        "vocabulary_size": shape.vocabulary_size,
        "layer_count": shape.layers,
        "precision": shape.precision,
        "has_chat_template": model.has_chat_template,
        "accuracy": None if measured is None else asdict(measured),
        "tools": {name: version(name) for name in _TOOLS},
    }


def _read_all(weights: ModelWeights) -> None:
    """Every weight once: what isn't finite is found now, not when it's served."""
    weights.embedding()
    weights.final_norm()
    weights.head()
    for index in range(weights.plan.shape.layers):
        weights.layer(index)


def _measured(place: Path, shape: ModelShape) -> Accuracy | None:
    """What its precision costs; None, and a line on stderr, if floats don't fit here."""
    # Takes a runtime, which the check itself does without.
    from services.worker.llm.adapters.accuracy_check import exact_bytes, measure

    needed, room = exact_bytes(shape), psutil.virtual_memory().available // 2
    if needed > room:
        sys.stderr.write(
            f"accuracy is not measured: 32-bit floats take {needed} bytes, {room} are free\n"
        )
        return None
    return measure(place, shape)


def _print(said: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
