"""A process of its own that reads one model's signature, so that no bytes can harm or stall the registry.

Reads `{"model", "locations", "sizes", "cpu_seconds", "memory_bytes"}` as JSON from stdin, writes
`{"inputs", "outputs"}` or `{"error"}` to stdout. Run as `python -m services.registry.adapters.onnx_probe`.
"""

import dataclasses
import json
import sys
from pathlib import Path

from services.registry.adapters.onnx_signature import ModelError, read_signature
from services.registry.adapters.process_bounds import bound


def main() -> None:
    """Read one question from stdin and answer it on stdout."""
    question = json.load(sys.stdin)
    bound(question["cpu_seconds"], question["memory_bytes"])
    try:
        signature = read_signature(
            question["model"], Path(question["locations"][question["model"]]), question["sizes"]
        )
        answer: dict[str, object] = dataclasses.asdict(signature)
    except ModelError as error:
        answer = {"error": str(error)}
    except (MemoryError, RecursionError) as error:
        answer = {"error": f"reading it takes too much memory ({type(error).__name__})"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
