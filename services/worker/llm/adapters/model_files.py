"""Opens a language model's files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.modelfiles.errors import ModelFileError
from services.modelfiles.gguf_model import gguf_model
from services.modelfiles.model_file import ModelFile
from services.modelfiles.safetensors_model import CONFIG, safetensors_model
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.file_weights import FileWeights
from services.worker.llm.ports.model_weights import ModelWeights


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """Files whose headers are in order."""

    gguf: Path | None  # None: a folder of `safetensors`
    file: ModelFile

    @property
    def format(self) -> str:
        return "safetensors" if self.gguf is None else "gguf"

    @property
    def has_chat_template(self) -> bool:
        return self.file.has_chat_template

    def weights(self, *, exact: bool = False) -> ModelWeights:
        """Quantised matrices; with `exact`, floats as stored. Raises LoadError."""
        return FileWeights.of(self.file, exact=exact)


def gguf_file(place: Path) -> Path | None:
    """The GGUF file that this or a file in this folder is; None: a folder of `safetensors`. Raises LoadError."""
    if place.is_file():
        return place
    found = sorted(place.rglob("*.gguf"))
    if len(found) > 1:
        raise LoadError(f"{len(found)} files end in '.gguf'; allowed: one")
    if found:
        return found[0]
    if (place / CONFIG).is_file():
        return None
    raise LoadError(f"neither a file that ends in '.gguf' nor '{CONFIG}' is there; allowed: one")


def open_model(place: Path) -> OpenedModel:
    """A GGUF file, or the folder with it or with `config.json` and `*.safetensors`. Raises LoadError."""
    with _translated():
        gguf = gguf_file(place)
        if gguf is not None:
            return OpenedModel(gguf, gguf_model(gguf))
        paths = (path for path in place.rglob("*") if path.is_file())
        files = {path.relative_to(place).as_posix(): path for path in paths}
        return OpenedModel(None, safetensors_model(files))


def open_weights(place: Path, *, exact: bool = False) -> ModelWeights:
    """The weights of `open_model`. Raises LoadError."""
    return open_model(place).weights(exact=exact)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ModelFileError as error:
        raise LoadError(str(error)) from error
    except OSError as error:
        raise LoadError(f"the file can't be read: {error}") from error
