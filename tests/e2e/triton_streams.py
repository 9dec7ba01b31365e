"""Streams and sequences with NVIDIA's tritonclient; prints what came back as JSON.

A program of its own, as `triton_calls` is. Usage: triton_streams.py ADDRESS MODEL, a running sum of two numbers.
"""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as by_grpc
import tritonclient.http as by_http

from tests.e2e.triton_key import keyed

_SEQUENCES = range(1, 9)  # on two workers: one in 128 times all are on the same
_ANSWER_SECONDS = 100


def main(address: str, model: str) -> dict[str, Any]:
    """Sequences on one stream, by single calls, and by HTTP; errors in a stream."""
    client = keyed(by_grpc.InferenceServerClient(address))
    seen = {
        "extensions": list(client.get_server_metadata().extensions),
        "inputs": [tensor.name for tensor in client.get_model_metadata(model).inputs],
        "stream": _stream(client, model),
        "calls": [_calls(client, model, by_grpc, sequence) for sequence in _SEQUENCES],
    }
    client.close()
    rest = keyed(by_http.InferenceServerClient(address))
    seen["http"] = [_calls(rest, model, by_http, f"s{sequence}") for sequence in _SEQUENCES]
    rest.close()
    return seen


def _input(protocol: Any, value: float) -> list[Any]:
    tensor = protocol.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.full((1, 2), value, np.float32))
    return [tensor]


def _stream(client: Any, model: str) -> list[Any]:
    """Two interleaved sequences, one message for another model, one without a sequence: all sent before reading."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for step in range(4):
        for sequence in (7, "seven"):
            client.async_stream_infer(
                model,
                _input(by_grpc, step + 1.0),
                request_id=f"{sequence}.{step}",
                sequence_id=sequence,
                sequence_start=step == 0,
                sequence_end=step == 3,
                enable_empty_final_response=True,
            )
    client.async_stream_infer("digits", _input(by_grpc, 1.0), request_id="elsewhere")
    client.async_stream_infer(model, _input(by_grpc, 1.0), request_id="none")
    client.async_stream_infer(
        model, _input(by_grpc, 5.0), request_id="last", sequence_id=7, sequence_start=True
    )
    found = [_told(*answers.get(timeout=_ANSWER_SECONDS)) for _ in range(11)]
    client.stop_stream()
    return found


def _told(result: Any, error: Any) -> list[Any]:
    if error is not None:
        return ["error", str(error)]
    final = result.get_response().parameters["triton_final_response"].bool_param
    return [result.get_response().id, float(result.as_numpy("total")[0, 0]), final]


def _calls(client: Any, model: str, protocol: Any, sequence: int | str) -> list[float]:
    """One sequence by single calls: the header takes all of them to one worker."""
    sums = []
    for step in range(3):
        answer = client.infer(
            model,
            _input(protocol, step + 1.0),
            sequence_id=sequence,
            sequence_start=step == 0,
            sequence_end=step == 2,
            headers={"x-sequence-id": str(sequence)},
        )
        sums.append(float(answer.as_numpy("total")[0, 0]))
    return sums


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2]), sys.stdout)
