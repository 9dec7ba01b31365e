"""mosec: one route for each model, bodies of raw bytes."""

from __future__ import annotations

import sys
from typing import Any

import bare_models
import mosec


class Model(mosec.Worker):
    """A model's worker; mosec hands it a list where batches are on, else one."""

    name = ""

    def __init__(self) -> None:
        self.given = bare_models.settings()
        self.session = bare_models.session(self.given, self.name)

    def deserialize(self, data: bytes) -> Any:
        return bare_models.of_bytes(self.name, data)

    def serialize(self, data: Any) -> bytes:
        return bytes(data.tobytes())

    def forward(self, data: Any) -> Any:
        rows = data if isinstance(data, list) else [data]
        output = bare_models.run(self.session, self.name, bare_models.join(self.name, rows))
        return list(output) if isinstance(data, list) else output[0]


class Mlp(Model):
    name = "mlp"


class Minilm(Model):
    name = "minilm"


def serve(given: bare_models.Settings) -> None:
    """Until the process is ended."""
    server, routes = mosec.Server(), {}
    for kind in (Mlp, Minilm):
        runtime = mosec.Runtime(
            kind,
            num=given.workers,
            max_batch_size=given.most_rows(kind.name),
            max_wait_time=given.window_ms,
            timeout=60,
        )
        routes[f"/{kind.name}"] = [runtime]
    server.register_runtime(routes)
    server.run()


if __name__ == "__main__":
    settings = bare_models.settings()
    # mosec reads its own command line.
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(settings.port), "--timeout", "60000"]
    sys.argv += ["--log-level", "warning", "--capacity", "4096"]
    serve(settings)
