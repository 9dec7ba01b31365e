"""KServe's Python server: gRPC in one process, no batcher of its own."""

from __future__ import annotations

from typing import Any

import bare_models
import kserve
import uvicorn
from kserve.protocol.grpc import server as grpc_server


class Served(kserve.Model):
    """One model."""

    def __init__(self, given: bare_models.Settings, name: str) -> None:
        super().__init__(name)
        self._session = bare_models.session(given, name)
        self.ready = True

    async def predict(
        self, payload: Any, headers: Any = None, response_headers: Any = None
    ) -> kserve.InferResponse:
        del headers, response_headers
        feeds = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        output = bare_models.run(self._session, self.name, feeds)
        encoded = kserve.InferOutput(
            name=bare_models.OUTPUTS[self.name][0], shape=list(output.shape), datatype="FP32"
        )
        encoded.set_data_from_numpy(output, binary_data=True)
        return kserve.InferResponse(
            response_id=payload.id, model_name=self.name, infer_outputs=[encoded]
        )


def listen_on_loopback() -> None:
    """Its servers would listen on all addresses and have no setting for that."""
    make_server, make_config = grpc_server.aio.server, uvicorn.Config.__init__

    def server(*given: Any, **more: Any) -> Any:
        made = make_server(*given, **more)
        add = made.add_insecure_port
        made.add_insecure_port = lambda address: add(address.replace("[::]", "127.0.0.1"))
        return made

    def config(self: Any, *given: Any, **more: Any) -> None:
        make_config(self, *given, **{**more, "host": "127.0.0.1"})

    grpc_server.aio.server = server
    uvicorn.Config.__init__ = config  # type: ignore[method-assign] # it has no setting for the host


if __name__ == "__main__":
    settings = bare_models.settings()
    listen_on_loopback()
    kserve.ModelServer(
        http_port=bare_models.free_port(), grpc_port=settings.port, enable_latency_logging=False
    ).start([Served(settings, name) for name in bare_models.ROW])
