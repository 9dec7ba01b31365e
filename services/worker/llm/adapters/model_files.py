"""Opens a language model's files."""

from pathlib import Path

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_model import gguf_model
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.file_weights import FileWeights
from services.worker.llm.ports.model_weights import ModelWeights

_CONFIG = "config.json"


def gguf_file(place: Path) -> Path | None:
    """The GGUF file that this or a file in this folder is; None: a folder of `safetensors`. Raises LoadError."""
    if place.is_file():
        return place
    found = sorted(place.rglob("*.gguf"))
    if len(found) > 1:
        raise LoadError(f"{len(found)} files end in '.gguf'; allowed: one")
    if found:
        return found[0]
    if (place / _CONFIG).is_file():
        return None
    raise LoadError(f"neither a file that ends in '.gguf' nor '{_CONFIG}' is there; allowed: one")


def open_weights(place: Path, *, exact: bool = False) -> ModelWeights:
    """A GGUF file, or the folder with it or with `config.json` and `*.safetensors`. Raises LoadError.

    Weights are quantised matrices; with `exact` they are floats as stored.
    """
    try:
        file = gguf_file(place)
        assert file is not None
        return FileWeights.of(gguf_model(file), exact=exact)
    except ModelFileError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"the file can't be read: {error}") from error
