"""Models in ONNX Runtime: loading them, running them, and its errors in our words."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from services.rpc.errors import InferplaneError, InvalidArgumentError, ResourceExhaustedError
from services.worker.adapters.onnx_runtime import ERRORS, onnxruntime, reason_of
from services.worker.adapters.runtime_memory import RuntimeMemory, is_memory
from services.worker.domain.assignment import VersionSpec
from services.worker.domain.contents import Array
from services.worker.domain.datatype import BF16
from services.worker.domain.instance_plan import Instance
from services.worker.domain.load_state import LoadError
from services.worker.domain.signature import FREE, Signature, TensorSpec, disagreements, spec_of

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
    "tensor(bfloat16)": "BF16",
}
_ONNX_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
_AFFINITIES = "session.intra_op_thread_affinities"


class OnnxSession:
    """A loaded ONNX model."""

    def __init__(self, session: Any, signature: Signature) -> None:
        self._session = session
        # NumPy has no bfloat16 of its own, and the runtime's binding knows no other: those go as OrtValues.
        self._has_bf16 = any(s.datatype is BF16 for s in (*signature.inputs, *signature.outputs))

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Compute the named outputs; frees the GIL meanwhile."""
        try:
            if self._has_bf16:
                return self._run_values(feeds, outputs)
            arrays = self._session.run(list(outputs), feeds)
        except ERRORS as error:
            raise _run_error(error) from error
        return dict(zip(outputs, arrays, strict=True))

    def _run_values(
        self, feeds: Mapping[str, Array], outputs: Sequence[str]
    ) -> Mapping[str, Array]:
        values = {name: _to_value(array) for name, array in feeds.items()}
        results = self._session.run_with_ort_values(list(outputs), values)
        return {name: _from_value(v) for name, v in zip(outputs, results, strict=True)}


class OnnxSessionLoader:
    """SessionLoader for ONNX models."""

    def __init__(
        self,
        *,
        intra_op_threads: int,
        execution_providers: Sequence[str],
        memory: RuntimeMemory | None = None,
    ) -> None:
        """Assign only; threads and providers are what versions fall back to.

        Without `memory` each session has its own.
        """
        self._threads = intra_op_threads
        self._providers = tuple(execution_providers)
        self._memory = memory

    def load(
        self, spec: VersionSpec, folder: Path, instance: Instance | None = None
    ) -> OnnxSession:
        """Load the version whose verified files lie in `folder`; blocks. Raises LoadError."""
        if spec.onnx_path is None:
            raise LoadError("the artifact has no file that ends in .onnx")
        providers = spec.settings.execution_providers or self._providers
        available = onnxruntime.get_available_providers()
        missing = [provider for provider in providers if provider not in available]
        if missing:
            raise LoadError(
                f"execution providers {missing} are not on this worker; it has {available}"
            )
        options = onnxruntime.SessionOptions()
        threads = instance or Instance(spec.settings.intra_op_threads or self._threads)
        options.intra_op_num_threads = threads.intra_op_threads
        if threads.cpus and threads.intra_op_threads > 1:
            options.add_session_config_entry(_AFFINITIES, _affinities(threads))
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Threads that spin between runs take the cores from everything else on this machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # A pattern is kept for each combination of shapes, and callers choose those.
        options.enable_mem_pattern = False
        if self._memory is not None:
            self._memory.share(options)
        try:
            session = onnxruntime.InferenceSession(
                str(folder / spec.onnx_path), options, providers=list(providers)
            )
        except ERRORS as error:
            if is_memory(error):
                raise LoadError("loading it needs more memory than there is") from error
            # Where the files lie on this machine is nobody's business who asks why it fails.
            reason = reason_of(error).replace(f"{folder}/", "")
            raise LoadError(f"ONNX Runtime cannot load it: {reason}") from error
        loaded = Signature(
            _specs("input", session.get_inputs()), _specs("output", session.get_outputs())
        )
        differences = disagreements(spec.signature, loaded)
        if differences:
            raise LoadError("; ".join(differences))
        made = OnnxSession(session, spec.signature)
        if self._memory is not None:
            self._memory.loaded(made)
        return made


def _affinities(instance: Instance) -> str:
    """CPUs of the threads beside the caller's, which the runtime counts from 1."""
    cpus = instance.cpus
    return ";".join(
        str(cpus[thread % len(cpus)] + 1) for thread in range(1, instance.intra_op_threads)
    )


def _specs(kind: str, nodes: Sequence[Any]) -> tuple[TensorSpec, ...]:
    specs = []
    for node in nodes:
        datatype = _DATATYPES.get(node.type)
        if datatype is None:
            raise LoadError(
                f"{kind} {node.name!r} is {node.type}; only tensors of known types are served"
            )
        shape = tuple(dim if isinstance(dim, int) and dim >= 0 else FREE for dim in node.shape)
        specs.append(spec_of(node.name, datatype, shape))
    return tuple(specs)


def _to_value(array: Array) -> Any:
    if array.dtype == BF16.dtype:
        bits = np.ascontiguousarray(array).view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _from_value(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    bits = np.empty(shape, np.uint16)
    if bits.size:
        ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return bits.view(BF16.dtype)


def _run_error(error: Exception) -> InferplaneError:
    """A version that is READY has answered its example: what fails now fails because of this input."""
    if is_memory(error):
        return ResourceExhaustedError(
            "the model needs more memory for these inputs than there is", reason="OUT_OF_MEMORY"
        )
    return InvalidArgumentError(
        f"the model refused these inputs: {reason_of(error)}", reason="MODEL_REFUSED_INPUTS"
    )
