"""Tiny models as published for `transformers`: the same weights as in a tiny GGUF file, under their other names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from safetensors.numpy import save_file

from services.modelfiles.tensor_plan import Part, TensorKey, planned_tensors
from tests.unit.worker.llm.tiny_models import SPECIAL, Tiny, vocabulary, write_tiny

_ACTIVATION = {"gemma3": "gelu_pytorch_tanh"}


def write_folder(folder: Path, tiny: Tiny, config: Mapping[str, Any] | None = None) -> Path:
    """The folder, with weights in two files; `config` comes on top of what it says."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {**hf_config(tiny), **(config or {})}
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    if tiny.template is not None:
        kept = {"chat_template": tiny.template, "eos_token": SPECIAL[2], "bos_token": SPECIAL[1]}
        (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    tensors = hf_tensors(folder, tiny)
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = folder / f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, file)
    return folder


def hf_config(tiny: Tiny) -> dict[str, Any]:
    """What `config.json` says of the model."""
    family = tiny.architecture.family
    return {
        "model_type": family.hf_types[0],
        "num_hidden_layers": tiny.layers,
        "hidden_size": tiny.hidden,
        "intermediate_size": tiny.feed_forward,
        "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads,
        "head_dim": tiny.head_size,
        "vocab_size": len(vocabulary()),
        "max_position_embeddings": tiny.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window": tiny.window if any(tiny.architecture.windows) else None,
        "query_pre_attn_scalar": tiny.head_size if family.name == "gemma3" else None,
        "tie_word_embeddings": tiny.tied,
        "hidden_act": _ACTIVATION.get(family.name, "silu"),
        "attention_bias": tiny.biases,
    }


def hf_tensors(folder: Path, tiny: Tiny) -> dict[str, np.ndarray[Any, Any]]:
    """Values by their names there: heads' halves in order, Gemma's norms one less."""
    path = write_tiny(folder / "m.gguf", tiny)
    stored = {one.name: np.array(one.data) for one in GGUFReader(path).tensors}
    path.unlink()
    architecture = tiny.architecture
    found = {}
    for planned in planned_tensors(architecture):
        key = planned.key
        if key.gguf_name not in stored or not key.hf_name:
            continue
        values = stored[key.gguf_name].astype(np.float32)
        if architecture.family.gguf_interleaved and key.part in {Part.QUERY, Part.KEY}:
            values = _in_halves(values, tiny.head_size)
        if key.part.name.endswith("NORM"):
            values = values - np.float32(architecture.family.hf_norm_offset)
        found[key.hf_name] = np.ascontiguousarray(values)
    assert TensorKey(Part.EMBEDDING).hf_name in found
    return found


def _in_halves(values: np.ndarray[Any, Any], head_size: int) -> np.ndarray[Any, Any]:
    by_head = values.reshape(-1, head_size, *values.shape[1:])
    return np.concatenate([by_head[:, 0::2], by_head[:, 1::2]], axis=1).reshape(values.shape)


def _tokenizer() -> dict[str, Any]:
    tokens = vocabulary()
    special = [
        {
            "id": index, "content": token, "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        }
        for index, token in enumerate(SPECIAL)
    ]  # fmt: skip
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [["h", "e"]],
        },
    }
