"""A language model in a GGUF file."""

from pathlib import Path

from services.modelfiles.gguf_architecture import gguf_architecture
from services.modelfiles.gguf_header import GgufHeader, read_header
from services.modelfiles.model_file import ModelFile, matched

_TEMPLATE = "tokenizer.chat_template"


def gguf_model(path: Path) -> ModelFile:
    """Read and check the header. Raises ModelFileError; OSError if the file can't be read."""
    return model_of(read_header(path))


def model_of(header: GgufHeader) -> ModelFile:
    """Check what a header says. Raises ModelFileError."""
    architecture, template = gguf_architecture(header), header.metadata.get(_TEMPLATE)
    return ModelFile(
        architecture=architecture,
        tensors=matched(architecture, header.tensors, lambda key: key.gguf_name),
        interleaved=architecture.family.gguf_interleaved,
        has_chat_template=isinstance(template, str) and bool(template),
    )
