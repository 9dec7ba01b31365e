"""Ask the demo's `digits` endpoint by gRPC with an ordinary client: pip install "tritonclient[grpc]".

The API key comes from INFERPLANE_API_KEY.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput

tensor = json.loads(Path(__file__).with_name("digit.json").read_text())["inputs"][0]
image = InferInput("image", tensor["shape"], "FP32")
image.set_data_from_numpy(np.array(tensor["data"], np.float32).reshape(tensor["shape"]))

client = InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")
key = {"authorization": f"Bearer {os.environ['INFERPLANE_API_KEY']}"}
answer = client.infer("digits", [image], headers=key)
print("label", answer.as_numpy("label"), "from version", answer.get_response().model_version)
