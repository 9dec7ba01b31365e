"""The inspector with its real probe process on language models: what they are, and what is refused."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from services.registry.adapters.probe_inspector import ProbeInspector
from services.registry.domain.model import Format, LanguageModel, Signature
from services.registry.ports.model_inspector import StoredFile
from services.rpc.errors import InvalidArgumentError
from tests.unit.worker.llm.tiny_models import Tiny, vocabulary, write_tiny


def inspect(path: Path) -> Coroutine[Any, Any, Signature]:
    stored = StoredFile(path, path.stat().st_size)
    return ProbeInspector(seconds=60).inspect(Format.GGUF, {"m.gguf": stored})


async def test_a_language_model_is_described(tmp_path: Path) -> None:
    """Its file says what it is; tensors it has none."""
    signature = await inspect(write_tiny(tmp_path / "m.gguf", Tiny(precision="Q8_0")))
    assert (signature.inputs, signature.outputs) == ((), ())
    assert signature.language_model == LanguageModel(
        architecture="llama",
        parameter_count=80_192,
        context_length=256,
        vocabulary_size=len(vocabulary()),
        layer_count=2,
        precision="Q8_0",
        has_chat_template=True,
    )


async def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    """What is cut off is INVALID_ARGUMENT, with the tensor's name."""
    path = write_tiny(tmp_path / "m.gguf")
    content = path.read_bytes()
    path.write_bytes(content[:-1000])
    with pytest.raises(
        InvalidArgumentError, match=r"'m\.gguf' is refused: tensor 'blk\.1"
    ) as refused:
        await inspect(path)
    assert refused.value.reason == "MODEL_INVALID"


async def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    """The name that was given, and those that are allowed."""
    path = write_tiny(tmp_path / "m.gguf", Tiny(keys={"general.architecture": "mamba"}))
    with pytest.raises(InvalidArgumentError, match=r"'mamba' is not supported; allowed: llama, "):
        await inspect(path)
