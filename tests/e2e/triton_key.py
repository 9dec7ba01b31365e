"""The API key for NVIDIA's clients, as their own plugins add headers."""

import os
from pathlib import Path
from typing import Any

from tritonclient._plugin import InferenceServerClientPlugin


class _Key(InferenceServerClientPlugin):  # type: ignore[misc] # the package has no types
    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    def __call__(self, request: Any) -> None:
        request.headers["authorization"] = self._header


def keyed(client: Any) -> Any:
    """The client, whose calls now carry the first admin's key of the mesh at INFERPLANE_STATE_DIR."""
    token = (Path(os.environ["INFERPLANE_STATE_DIR"]) / "admin.key").read_text().strip()
    client.register_plugin(_Key(token))
    return client
