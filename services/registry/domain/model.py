"""Models, their immutable versions, and aliases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from services.registry.domain.tuning import VersionTuning
from services.registry.domain.version_settings import VersionSettings
from services.rpc.names import AliasName, ModelName, VersionName


class VersionState(Enum):
    """Life of a version: UPLOADING → READY; a version whose artifact is refused does not stay."""

    UPLOADING = "UPLOADING"
    READY = "READY"


class Format(Enum):
    """Format of an artifact."""

    ONNX = "ONNX"
    GGUF = "GGUF"
    SAFETENSORS = "SAFETENSORS"

    @property
    def is_language(self) -> bool:
        """Whether artifacts are language models, which take and give text instead of tensors."""
        return self is not Format.ONNX


@dataclass(frozen=True, slots=True, order=True)
class BlobId:
    """Content of a file: what it must hash to, and how long it is."""

    sha256: str  # lower-case hex
    size_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class ArtifactFile:
    """One file of an artifact."""

    path: str  # relative, with `/`
    size_bytes: int
    sha256: str  # lower-case hex

    @property
    def blob(self) -> BlobId:
        """The content, which other files and versions may share."""
        return BlobId(self.sha256, self.size_bytes)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, type and shape of an input or output."""

    name: str
    datatype: str  # in the Open Inference Protocol's words
    shape: tuple[int, ...]  # -1: any size


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """What a language model is, from its own file."""

    architecture: str  # as the file says it
    parameter_count: int
    context_length: int  # tokens of prompt and answer together
    vocabulary_size: int
    layer_count: int
    precision: str  # how most weights are stored
    has_chat_template: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives: tensors, or text."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    language_model: LanguageModel | None = None  # set: text


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A family of versions that answer the same question."""

    name: ModelName
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    create_time: datetime
    update_time: datetime
    etag: str = ""  # given by the store


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """An immutable artifact with what is needed to run it; only what measuring says of it changes."""

    name: VersionName
    state: VersionState
    format: Format
    files: tuple[ArtifactFile, ...]  # sorted by path
    digest: str
    size_bytes: int
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    settings: VersionSettings = field(default_factory=VersionSettings)
    lineage: Mapping[str, str] = field(default_factory=dict)
    create_time: datetime
    declare_time: datetime  # of the last declaration; an upload that is taken up again lives longer
    tuning: VersionTuning | None = None  # None: nothing measured yet
    # Asked for, whatever the settings say; over once there is a tuning.
    measuring_wanted: bool = False
    language_model: LanguageModel | None = None  # None: none, or not read yet
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A movable name for a READY version of the same model."""

    name: AliasName
    version: VersionName
    create_time: datetime
    update_time: datetime
    etag: str = ""
