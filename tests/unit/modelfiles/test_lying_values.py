"""Values of any type and size under every key that is read: a model is read or refused, nothing else."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_header import read_header
from services.modelfiles.gguf_model import model_of
from services.modelfiles.hf_architecture import hf_architecture
from tests.unit.worker.llm.tiny_folders import hf_config
from tests.unit.worker.llm.tiny_models import Tiny, write_tiny

_FAMILIES = ("llama", "qwen2", "gemma3", "phi3")
_NUMBERS = (0, 1, -1, 7, 2**63, 0.0, -0.5, 1e-320, 1e300, math.nan, math.inf)
_OTHERS = (True, False, "", "x", "linear", "llama3")
_OF_GGUF: tuple[Any, ...] = (
    *(*_NUMBERS, *_OTHERS, [], ["a", "b"]),
    *(np.array([], np.int32), np.array([1, 2]), np.array([0.5]), np.array([True, False])),
)
_OF_JSON: tuple[Any, ...] = (
    *(*_NUMBERS, *_OTHERS, None, 10**400, -(10**400)),
    *([], [[1]], [{}], ["full_attention"], {}, {"a": 1}, {"content": []}),
)


class _Asked(dict[str, Any]):
    """Remembers which keys were looked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)


@pytest.mark.parametrize("family", _FAMILIES)
def test_any_metadata_of_gguf_is_a_model_or_refused(tmp_path: Path, family: str) -> None:
    """Each key that is read has each value, one at a time."""
    header = read_header(write_tiny(tmp_path / "m.gguf", Tiny(family=family)))
    asked = _Asked(header.metadata)
    model_of(replace(header, metadata=asked))
    assert len(asked.keys_asked) > 10
    for key in asked.keys_asked:
        for value in _OF_GGUF:
            with contextlib.suppress(ModelFileError):
                model_of(replace(header, metadata={**header.metadata, key: value}))


def _configs(family: str) -> list[dict[str, Any]]:
    """Usual ones, and those whose scaling has more to say."""
    usual = hf_config(Tiny(family=family))
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    kinds = {"full_attention": llama3, "sliding_attention": {"rope_theta": 10_000.0}}
    return [
        usual,
        {**usual, "rope_scaling": llama3},
        {**usual, "rope_parameters": kinds, "use_sliding_window": True, "sliding_window": 8},
    ]


@pytest.mark.parametrize("family", _FAMILIES)
def test_any_config_of_transformers_is_a_model_or_refused(family: str) -> None:
    """The same, and for what lies one level deeper."""
    for config in _configs(family):
        asked = _Asked(config)
        hf_architecture(asked)
        for key in asked.keys_asked:
            for value in _OF_JSON:
                _read({**config, key: value})
        scaling = config.get("rope_scaling") or {}
        for key in scaling:
            for value in _OF_JSON:
                _read({**config, "rope_scaling": {**scaling, key: value}})


def _read(config: Mapping[str, Any]) -> None:
    with contextlib.suppress(ModelFileError):
        hf_architecture(config)
