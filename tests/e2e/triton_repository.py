"""Loads and unloads a model with NVIDIA's tritonclient and prints what was seen as JSON.

A program of its own, as `triton_calls` is. Usage: triton_repository.py {grpc|http} ADDRESS MODEL
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.e2e.triton_key import keyed


def main(protocol: str, address: str, model: str) -> dict[str, Any]:
    """A model's way into the mesh and out of it, with an inference at each step."""
    if protocol == "grpc":
        import tritonclient.grpc as triton
    else:
        import tritonclient.http as triton
    client = keyed(triton.InferenceServerClient(address))

    def state() -> str:
        index = client.get_model_repository_index()
        entries = index if isinstance(index, list) else index.models
        (found,) = [entry for entry in map(_plain, entries) if entry["name"] == model]
        return f"{found['version']} {found['state']}"

    def infer() -> list[float]:
        values = np.array([1.5, -2.0], np.float32)
        tensor = triton.InferInput("x", [2], "FP32")
        tensor.set_data_from_numpy(values)
        found: list[float] = client.infer(model, [tensor]).as_numpy("y").tolist()
        return found

    def refused(call: Callable[[], object]) -> str:
        try:
            return f"not refused: {call()}"
        except triton.InferenceServerException as error:
            return str(error)

    seen: dict[str, Any] = {"before": state(), "not_loaded": refused(infer)}
    seen["config"] = refused(lambda: client.load_model(model, config="{}"))
    seen["unknown"] = refused(lambda: client.load_model("no-such-model"))
    client.load_model(model)
    seen["answer"] = infer()  # at once: load returns when it answers
    seen["loaded"] = state()
    client.unload_model(model)
    seen["after"] = state()
    seen["unload_again"] = client.unload_model(model)
    client.load_model(model)
    seen["answer_again"] = infer()
    client.unload_model(model)
    client.close()
    return seen


def _plain(entry: Any) -> dict[str, str]:
    """An entry of the index of either client."""
    if isinstance(entry, dict):
        return entry
    return {"name": entry.name, "version": entry.version, "state": entry.state}


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:4]), sys.stdout)
