"""What a tritonclient sees over gRPC, in a process of its own: its messages and ours have the same names.

Run with the worker's address; the assertion that fails ends it with status 1.
"""

import sys

import numpy as np
import tritonclient.grpc as triton


def main(address: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("affine")
        assert client.get_server_metadata().name == "inferplane"
        about = client.get_model_metadata("affine", as_json=True)
        assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}]
        tensor = triton.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        result = client.infer(
            "affine", [tensor], request_id="9", priority=2, parameters={"any": "thing"}
        )
        assert (result.as_numpy("y") == 3 * x).all()
        assert result.get_response().id == "9"


if __name__ == "__main__":
    main(sys.argv[1])
