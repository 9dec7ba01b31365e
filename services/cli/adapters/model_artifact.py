"""What a file or folder is that becomes a version: an ONNX model, a GGUF file, or a model of `transformers`."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferplane.registry.v1 import model_pb2

from services.cli.adapters.local_file import LocalFile, collect
from services.cli.domain.exit_code import UsageError
from services.cli.ports.report import Report
from services.rpc.errors import FailedPreconditionError

# What a model of `transformers` is read from, besides its weights; the rest of a folder stays where it is.
TRANSFORMERS_FILES = frozenset(
    {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    }
)
_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file or folder, and what is pushed of it."""

    path: Path
    format: model_pb2.Format.ValueType
    names: frozenset[str] | None  # in the folder; None: all

    @property
    def is_language_model(self) -> bool:
        return self.format != model_pb2.FORMAT_ONNX

    @property
    def model_path(self) -> Path:
        """What a language model is read from: the GGUF file, or the folder."""
        if self.format != model_pb2.FORMAT_GGUF or self.names is None:
            return self.path
        (name,) = self.names
        return self.path / name

    def files(self, report: Report) -> list[LocalFile]:
        """The files, hashed."""
        return collect(self.path, report, self.names)


def recognise(path: Path) -> Artifact:
    """The format, by content; what can't be read is told when its files are collected."""
    if path.is_dir():
        return _folder(path)
    if _is_gguf(path):
        if not path.name.endswith(".gguf"):
            raise UsageError(f"{path}: is a GGUF file; its name must end in .gguf")
        return Artifact(path, model_pb2.FORMAT_GGUF, None)
    if path.name.endswith(".gguf") and path.is_file():
        raise FailedPreconditionError(
            f"{path}: is no GGUF file: it does not begin with GGUF", reason="MODEL_FILE_INVALID"
        )
    return Artifact(path, model_pb2.FORMAT_ONNX, None)


def _folder(path: Path) -> Artifact:
    names = sorted(each.name for each in path.iterdir() if not each.is_dir())
    weights = [name for name in names if name.endswith(".safetensors")]
    if "config.json" in names and weights:
        chosen = frozenset(weights) | (TRANSFORMERS_FILES & frozenset(names))
        return Artifact(path, model_pb2.FORMAT_SAFETENSORS, chosen)
    models = [name for name in names if name.endswith(".gguf")]
    if len(models) == 1 and not any(name.endswith(".onnx") for name in names):
        recognise(path / models[0])
        return Artifact(path, model_pb2.FORMAT_GGUF, frozenset(models))
    return Artifact(path, model_pb2.FORMAT_ONNX, None)


def must_hold_onnx(path: Path) -> None:
    """FailedPreconditionError if nothing here is named as ONNX files are; the registry would say so of ONNX alone."""
    found = any(path.rglob("*.onnx")) if path.is_dir() else path.name.endswith(".onnx")
    if path.exists() and not found:
        raise FailedPreconditionError(
            f"{path} is no model; allowed: a file .onnx or .gguf, or a folder with an .onnx file and its data,"
            " or with config.json, tokenizer.json and .safetensors files",
            reason="NO_MODEL_FILE",
            metadata={"path": str(path)},
        )


def language_model(path: Path, source: str) -> Artifact:
    """A file or folder that must be a language model; FailedPreconditionError if it is none."""
    artifact = recognise(path)
    if artifact.is_language_model:
        return artifact
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder", reason="FILE_NOT_FOUND")
    raise FailedPreconditionError(
        f"{source} is no language model; allowed: one GGUF file, or a folder with config.json,"
        " tokenizer.json and .safetensors files",
        reason="NO_MODEL_FILE",
        metadata={"path": str(path)},
    )


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def digest_of(files: Sequence[LocalFile]) -> str:
    """SHA-256 (hex) of the one GGUF file, or over the sorted list of the files' paths, sizes and digests."""
    if len(files) == 1 and files[0].path.endswith(".gguf"):
        return files[0].sha256
    lines = [f"{each.path} {each.size} {each.sha256}\n" for each in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
