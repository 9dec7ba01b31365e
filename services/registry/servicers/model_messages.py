"""Models, versions and aliases between messages and the domain."""

from collections.abc import Mapping

from inferplane.registry.v1 import model_pb2

from services.registry.domain.model import (
    Alias,
    ArtifactFile,
    Format,
    LanguageModel,
    Model,
    ModelVersion,
    TensorSpec,
    VersionState,
)
from services.registry.drivers.declarations import Declaration
from services.registry.servicers.settings_messages import (
    read_settings,
    settings_message,
    tuning_message,
)
from services.rpc.times import timestamp

_STATES: Mapping[VersionState, model_pb2.VersionState.ValueType] = {
    VersionState.UPLOADING: model_pb2.VERSION_STATE_UPLOADING,
    VersionState.READY: model_pb2.VERSION_STATE_READY,
}
_FORMATS: Mapping[Format, model_pb2.Format.ValueType] = {
    Format.ONNX: model_pb2.FORMAT_ONNX,
    Format.GGUF: model_pb2.FORMAT_GGUF,
    Format.SAFETENSORS: model_pb2.FORMAT_SAFETENSORS,
}
_FORMATS_READ = {value: key for key, value in _FORMATS.items()}


def model_message(model: Model) -> model_pb2.Model:
    """The model as a message."""
    return model_pb2.Model(
        name=str(model.name),
        description=model.description,
        tags=model.tags,
        create_time=timestamp(model.create_time),
        update_time=timestamp(model.update_time),
        etag=model.etag,
    )


def version_message(version: ModelVersion) -> model_pb2.ModelVersion:
    """The version as a message."""
    return model_pb2.ModelVersion(
        name=str(version.name),
        state=_STATES[version.state],
        format=_FORMATS[version.format],
        files=[
            model_pb2.ArtifactFile(path=f.path, size_bytes=f.size_bytes, sha256=f.sha256)
            for f in version.files
        ],
        digest=version.digest,
        size_bytes=version.size_bytes,
        inputs=[_tensor_message(spec) for spec in version.inputs],
        outputs=[_tensor_message(spec) for spec in version.outputs],
        settings=settings_message(version.settings),
        lineage=version.lineage,
        create_time=timestamp(version.create_time),
        etag=version.etag,
        tuning=None if version.tuning is None else tuning_message(version.tuning),
        measuring_wanted=version.measuring_wanted,
        language_model=_language_message(version.language_model),
    )


def _language_message(model: LanguageModel | None) -> model_pb2.LanguageModel | None:
    if model is None:
        return None
    return model_pb2.LanguageModel(
        architecture=model.architecture,
        parameter_count=model.parameter_count,
        context_length=model.context_length,
        vocabulary_size=model.vocabulary_size,
        layer_count=model.layer_count,
        precision=model.precision,
        has_chat_template=model.has_chat_template,
    )


def _tensor_message(spec: TensorSpec) -> model_pb2.TensorSpec:
    return model_pb2.TensorSpec(name=spec.name, datatype=spec.datatype, shape=spec.shape)


def declaration(message: model_pb2.ModelVersion) -> Declaration:
    """What a caller declares of a version."""
    return Declaration(
        format=_FORMATS_READ.get(message.format),
        files=[ArtifactFile(f.path, f.size_bytes, f.sha256) for f in message.files],
        settings=read_settings(message.settings),
        lineage=dict(message.lineage),
    )


def alias_message(alias: Alias) -> model_pb2.Alias:
    """The alias as a message."""
    return model_pb2.Alias(
        name=str(alias.name),
        version=str(alias.version),
        create_time=timestamp(alias.create_time),
        update_time=timestamp(alias.update_time),
        etag=alias.etag,
    )
