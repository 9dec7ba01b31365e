"""MLServer's runtime of both models."""

from __future__ import annotations

import bare_models
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Model(MLModel):
    """Computes what it is handed, joined already by the server where that is on."""

    async def load(self) -> bool:
        self._session = bare_models.session(bare_models.settings(), self.name)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        output = bare_models.run(self._session, self.name, feeds)
        encoded = NumpyCodec.encode_output(bare_models.OUTPUTS[self.name][0], output)
        return InferenceResponse(model_name=self.name, outputs=[encoded])
