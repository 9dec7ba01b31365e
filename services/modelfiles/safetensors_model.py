"""A language model as published for `transformers`: `config.json` and one or more `*.safetensors`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.modelfiles.errors import ModelFileError
from services.modelfiles.hf_architecture import hf_architecture, is_tied
from services.modelfiles.model_file import ModelFile, matched
from services.modelfiles.safetensors_header import read_tensors
from services.modelfiles.tensor_info import TensorInfo
from services.modelfiles.tensor_plan import Part, TensorKey

CONFIG = "config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_MAX_JSON_BYTES = 16 * 1024**2
_NOT_WEIGHTS = (".rotary_emb.inv_freq", ".attention.bias", ".masked_bias")  # buffers of old files


def safetensors_model(files: Mapping[str, Path]) -> ModelFile:
    """Read and check the headers of a model's files, by their paths in it. Raises ModelFileError, OSError."""
    config = read_json(files, CONFIG)
    architecture = hf_architecture(config)
    tensors = _all_tensors(files)
    head = TensorKey(Part.HEAD)
    if is_tied(config, architecture.family):
        tensors.pop(head.hf_name, None)  # a copy of the embedding, which some files have
    elif head.hf_name not in tensors:
        raise ModelFileError(f"tensor {head.hf_name!a}", "is missing", "as embeddings are not tied")
    return ModelFile(
        architecture=architecture,
        tensors=matched(architecture, tensors, lambda key: key.hf_name),
        interleaved=False,
        norm_offset=architecture.family.hf_norm_offset,
        has_chat_template=_has_template(files),
    )


def read_json(files: Mapping[str, Path], name: str) -> Mapping[str, Any]:
    """One of a model's JSON files."""
    if name not in files:
        raise ModelFileError(name, "is missing", "a model that has it")
    size = files[name].stat().st_size
    if size > _MAX_JSON_BYTES:
        raise ModelFileError(name, f"{size} bytes", f"at most {_MAX_JSON_BYTES}")
    try:
        read = json.loads(files[name].read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFileError(name, f"no JSON ({error})", "JSON") from None
    if not isinstance(read, dict):
        raise ModelFileError(name, type(read).__name__, "a JSON object")
    return read


def _all_tensors(files: Mapping[str, Path]) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for name in sorted(files):
        if not name.endswith(".safetensors"):
            continue
        for key, tensor in read_tensors(files[name], name).items():
            if key in found:
                raise ModelFileError(f"{name}: tensor {key!a}", "is in another file, too", "once")
            if not key.endswith(_NOT_WEIGHTS):
                found[key] = tensor
    return found


def _has_template(files: Mapping[str, Path]) -> bool:
    if _TEMPLATE in files:
        return True
    return _TOKENIZER_CONFIG in files and bool(
        read_json(files, _TOKENIZER_CONFIG).get("chat_template")
    )
