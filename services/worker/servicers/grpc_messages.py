"""Open Inference Protocol messages to and from the domain."""

from collections.abc import Mapping
from typing import Any

from inference import open_inference_pb2 as oip

from services.rpc.errors import FieldViolation, InvalidArgumentError
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.contents import Array, Contents
from services.worker.domain.infer_request import (
    GivenTensor,
    InferRequest,
    read_inputs,
    read_outputs,
)
from services.worker.domain.raw_contents import RawContents, to_raw
from services.worker.domain.request_options import PLAIN, AnswerFacts, RequestOptions, read_options
from services.worker.domain.typed_contents import TypedContents


def read(
    spec: VersionSpec, request: oip.ModelInferRequest, max_elements: int, tenant: str = ""
) -> InferRequest:
    """The checked request. Raises InvalidArgumentError."""
    signature = spec.signature
    if request.raw_input_contents:
        _check_raw(request)
        contents: list[Contents] = [
            RawContents(data, f"raw_input_contents[{index}]")
            for index, data in enumerate(request.raw_input_contents)
        ]
    else:
        contents = [
            TypedContents(_fields(tensor.contents), f"inputs[{index}].contents")
            for index, tensor in enumerate(request.inputs)
        ]
    given = [
        GivenTensor(tensor.name, tensor.datatype, tensor.shape, data)
        for tensor, data in zip(request.inputs, contents, strict=True)
    ]
    options = read_options(_plain(request.parameters)) if request.parameters else PLAIN
    return InferRequest(
        read_inputs(signature, given, max_elements),
        read_outputs(signature, [output.name for output in request.outputs]),
        options,
        facts_for(spec, options),
        tenant,
    )


def write(
    spec: VersionSpec,
    request: oip.ModelInferRequest,
    outputs: Mapping[str, Array],
    facts: AnswerFacts | None = None,
) -> oip.ModelInferResponse:
    """The answer; its data is raw whatever the request used, as clients read both and raw is smaller."""
    response = oip.ModelInferResponse(
        model_name=request.model_name, model_version=spec.name.version, id=request.id
    )
    signature = spec.signature
    for name, array in outputs.items():
        datatype = signature.outputs[signature.output_index[name]].datatype
        response.outputs.add(name=name, datatype=datatype.name, shape=array.shape)
        response.raw_output_contents.append(to_raw(array))
    if facts is not None:
        for name, value in facts.parameters().items():
            kind = "bool_param" if isinstance(value, bool) else "int64_param"
            setattr(response.parameters[name], kind, value)
    return response


def metadata(model_name: str, spec: VersionSpec) -> oip.ModelMetadataResponse:
    """Inputs and outputs of a version, under the name by which it was called."""
    tensor = oip.ModelMetadataResponse.TensorMetadata
    return oip.ModelMetadataResponse(
        name=model_name,
        versions=[spec.name.version],
        platform="onnxruntime_onnx",
        inputs=[
            tensor(name=s.name, datatype=s.datatype.name, shape=s.shape)
            for s in spec.signature.inputs
        ],
        outputs=[
            tensor(name=s.name, datatype=s.datatype.name, shape=s.shape)
            for s in spec.signature.outputs
        ],
    )


def facts_for(spec: VersionSpec, options: RequestOptions) -> AnswerFacts | None:
    """What is to be known of the answer: times if they are asked for, a hit where answers are kept. None: nothing."""
    if options.timing or spec.settings.response_cache is not None:
        return AnswerFacts(options.timing)
    return None


def _plain(parameters: Mapping[str, oip.InferParameter]) -> dict[str, object]:
    """Values by name; a parameter without a value is none."""
    return {
        name: getattr(parameter, choice)
        for name, parameter in parameters.items()
        if (choice := parameter.WhichOneof("parameter_choice")) is not None
    }


def _fields(contents: oip.InferTensorContents) -> dict[str, Any]:
    return {field.name: values for field, values in contents.ListFields()}


def _check_raw(request: oip.ModelInferRequest) -> None:
    """Raw contents are all or nothing."""
    given, wanted = len(request.raw_input_contents), len(request.inputs)
    violations = [
        FieldViolation(
            f"inputs[{index}].contents",
            "given beside raw_input_contents; allowed: one of them for all inputs",
        )
        for index, tensor in enumerate(request.inputs)
        if tensor.contents.ByteSize()
    ]
    if given != wanted:
        text = f"{given} entries given; allowed: {wanted}, one for each input"
        violations.append(FieldViolation("raw_input_contents", text))
    if violations:
        raise InvalidArgumentError.of_fields(violations)
