"""Small vocabularies as GGUF files hold them."""

from typing import Any

from tests.unit.worker.llm.tiny_models import byte_letters

CONTROL, USER_DEFINED, UNKNOWN, BYTE, NORMAL = 3, 4, 2, 6, 1


def byte_level_fields(**changes: Any) -> dict[str, Any]:
    """GPT-2's kind: special tokens, the 256 bytes, and a few that merge."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ", "Ċ Ċ", "1 2"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"]
    letters = byte_letters()
    tokens = [*special, *letters, *(rule.replace(" ", "") for rule in merges)]
    kinds = [CONTROL, CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (len(tokens) - len(special))
    fields = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": kinds,
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _named({**fields, **changes})


def sentence_piece_fields(**changes: Any) -> dict[str, Any]:
    """Llama 2's and Gemma's kind: a few pieces with scores, and tokens for bytes."""
    special = ["<unk>", "<s>", "</s>"]
    octets = [f"<0x{byte:02X}>" for byte in range(0x100)]
    pieces = ["▁he", "▁h", "llo", "ll", "lo", "he", "▁", "h", "e", "l", "o", "▁▁", "é", "<b>"]
    scores = [0.0] * (len(special) + len(octets)) + [-float(n) for n in range(len(pieces))]
    fields = {
        "model": "llama",
        "tokens": [*special, *octets, *pieces],
        "token_type": [UNKNOWN, CONTROL, CONTROL]
        + [BYTE] * len(octets)
        + [NORMAL] * (len(pieces) - 1)
        + [USER_DEFINED],
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _named({**fields, **changes})


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items() if value is not None}
