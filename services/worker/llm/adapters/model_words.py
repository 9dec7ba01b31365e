"""A model's tokenizer and chat template, whichever kind of files they are in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_header import read_header
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters import gguf_tokenizer, hf_tokenizer
from services.worker.llm.adapters.model_files import gguf_file
from services.worker.llm.ports.tokenizer import ChatTemplate, Tokenizer


@dataclass(frozen=True, slots=True)
class ModelWords:
    """What turns text to tokens, and conversations to text."""

    tokenizer: Tokenizer
    template: ChatTemplate | None


def read_words(place: Path, embedding_rows: int) -> ModelWords:
    """Of a file, or a folder with a model's files. Raises LoadError."""
    file = gguf_file(place)
    # The template's process starts while the tokenizer is read.
    if file is None:
        template = hf_tokenizer.template_of(place)
        tokenizer = hf_tokenizer.read_tokenizer(place, embedding_rows)
    else:
        fields = _fields(file)
        template = gguf_tokenizer.template_of(fields)
        tokenizer = gguf_tokenizer.read_tokenizer(fields, embedding_rows)
    if template is not None:
        template.check()
    return ModelWords(tokenizer, template)


def _fields(file: Path) -> Mapping[str, Any]:
    try:
        return read_header(file).metadata
    except ModelFileError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"the file can't be read: {error.strerror or error}") from error
