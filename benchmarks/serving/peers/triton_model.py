"""The model.py of both of Triton's models."""

from __future__ import annotations

from typing import Any

import bare_models
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Joins what the server's batcher hands over together."""

    def initialize(self, given: dict[str, str]) -> None:
        self.name = given["model_name"]
        self.session = bare_models.session(bare_models.settings(), self.name)

    def execute(self, requests: list[Any]) -> list[Any]:
        names = list(bare_models.ROW[self.name])
        rows = [
            {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names}
            for request in requests
        ]
        output = bare_models.run(self.session, self.name, bare_models.join(self.name, rows))
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(bare_models.OUTPUTS[self.name][0], row)])
            for row in output[:, None, :]
        ]
