"""LitServe: two APIs, JSON bodies. It reads the annotations, so they are no strings here."""

from typing import Any

import bare_models
import litserve
from fastapi import Request


class Model(litserve.LitAPI):
    """A model's API; without batches LitServe hands over one row."""

    def __init__(self, given: bare_models.Settings, name: str) -> None:
        super().__init__(
            max_batch_size=given.most_rows(name),
            batch_timeout=given.window_ms / 1000,
            api_path=f"/{name}",
        )
        self.given, self.name = given, name

    def setup(self, _device: str) -> None:
        self.session = bare_models.session(self.given, self.name)

    def decode_request(self, request: Request) -> Any:  # JSON by now
        return bare_models.of_lists(self.name, request)

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: Any) -> Any:
        rows = x if isinstance(x, list) else [x]
        output = bare_models.run(self.session, self.name, bare_models.join(self.name, rows))
        return output if isinstance(x, list) else output[0]

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any) -> Any:
        return output.tolist()


if __name__ == "__main__":
    settings = bare_models.settings()
    server = litserve.LitServer(
        [Model(settings, name) for name in bare_models.ROW],
        accelerator="cpu",
        workers_per_device=settings.workers,
        timeout=60,
        fast_queue=settings.workers > 1 or settings.fronts > 1,
    )
    server.run(
        host="127.0.0.1",
        port=settings.port,
        num_api_servers=settings.fronts,
        log_level="warning",
        generate_client_file=False,
    )
