"""Calls the demo's models with NVIDIA's tritonclient and prints what came back as JSON.

A program of its own: tritonclient registers the protocol's messages under another file name, which
protobuf refuses beside ours in one process. Usage: triton_calls.py {grpc|http} ADDRESS
"""

import json
import sys
from typing import Any

import numpy as np

from services.cli.demo import digits, minilm
from tests.e2e.triton_key import keyed


def main(protocol: str, address: str) -> dict[str, Any]:
    """Readiness, metadata and inference on both models."""
    if protocol == "grpc":
        import tritonclient.grpc as triton
    else:
        import tritonclient.http as triton
    client = keyed(triton.InferenceServerClient(address))
    seen: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "server": _plain(client.get_server_metadata())["name"],
        "models": {m: client.is_model_ready(m) for m in ("digits", "minilm")},
        "version_2_ready": client.is_model_ready("digits", "2"),
        "metadata": {m: _plain(client.get_model_metadata(m)) for m in ("digits", "minilm")},
    }
    images = digits.load().held_out_images[:8]
    image = triton.InferInput("image", list(images.shape), "FP32")
    image.set_data_from_numpy(images)
    wanted = [triton.InferRequestedOutput("label")]
    answer = client.infer("digits", [image], model_version="2", request_id="r1", outputs=wanted)
    seen["labels"] = answer.as_numpy("label").tolist()
    # Each time of the worker that answers: one of them has computed.
    counted = [_plain(client.get_inference_statistics("digits", "2")) for _ in range(20)]
    seen["statistics"] = max((s["model_stats"][0] for s in counted), key=_rows)
    seen["all_statistics"] = _plain(client.get_inference_statistics())["model_stats"]
    seen["not_requested"] = answer.as_numpy("probabilities")
    seen["response"] = {
        key: _plain(answer.get_response())[key] for key in ("model_name", "model_version", "id")
    }
    encoded = minilm.tokenizer().encode("A cat sleeps on the sofa.")
    inputs = []
    for name, ids in (
        ("input_ids", encoded.ids),
        ("attention_mask", encoded.attention_mask),
        ("token_type_ids", encoded.type_ids),
    ):
        tensor = triton.InferInput(name, [1, len(ids)], "INT64")
        tensor.set_data_from_numpy(np.array([ids], dtype=np.int64))
        inputs.append(tensor)
    seen["embedding"] = client.infer("minilm", inputs).as_numpy("sentence_embedding")[0].tolist()
    client.close()
    return seen


def _rows(statistics: dict[str, Any]) -> int:
    return int(statistics.get("inference_count", 0))


def _plain(message: Any) -> dict[str, Any]:
    """A response of either client as a dictionary with the protocol's names."""
    if isinstance(message, dict):
        return message
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True)


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2]), sys.stdout)
