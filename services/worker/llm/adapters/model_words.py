"""A model's tokenizer and chat template, whichever kind of files they are in."""

from dataclasses import dataclass
from pathlib import Path

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
    if file is None:
        return ModelWords(
            hf_tokenizer.read_tokenizer(place, embedding_rows), hf_tokenizer.template_of(place)
        )
    try:
        fields = read_header(file).metadata
    except ModelFileError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"the file can't be read: {error.strerror or error}") from error
    template = gguf_tokenizer.template_of(fields)  # its process starts meanwhile
    return ModelWords(gguf_tokenizer.read_tokenizer(fields, embedding_rows), template)
