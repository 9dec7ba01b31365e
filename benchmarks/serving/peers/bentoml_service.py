"""BentoML's service of both models: lists of rows, JSON."""

from __future__ import annotations

from typing import Any

import bare_models
import bentoml
from pydantic import BaseModel

GIVEN = bare_models.settings()


class MlpRow(BaseModel):
    """A row of the MLP."""

    features: list[float]


class MinilmRow(BaseModel):
    """A sentence."""

    input_ids: list[int]
    attention_mask: list[int]
    token_type_ids: list[int]


def how(model: str) -> dict[str, Any]:
    """Options of an API; a batch of one is refused, so batching is off then."""
    rows = GIVEN.most_rows(model)
    if rows == 1:
        return {"route": f"/{model}"}
    # A latency above which it would refuse calls, not a window.
    return {
        "route": f"/{model}",
        "batchable": True,
        "max_batch_size": rows,
        "max_latency_ms": 60_000,
    }


@bentoml.service(workers=GIVEN.workers, traffic={"timeout": 60}, metrics={"enabled": False})
class Served:
    """Both models in each worker."""

    def __init__(self) -> None:
        self._sessions = {name: bare_models.session(GIVEN, name) for name in bare_models.ROW}

    @bentoml.api(**how("mlp"))
    def mlp(self, rows: list[MlpRow]) -> list[list[float]]:
        return self._run("mlp", rows)

    @bentoml.api(**how("minilm"))
    def minilm(self, rows: list[MinilmRow]) -> list[list[float]]:
        return self._run("minilm", rows)

    def _run(self, name: str, rows: list[Any]) -> list[list[float]]:
        arrays = [bare_models.of_lists(name, row.__dict__) for row in rows]
        joined = bare_models.join(name, arrays)
        return bare_models.run(self._sessions[name], name, joined).tolist()
