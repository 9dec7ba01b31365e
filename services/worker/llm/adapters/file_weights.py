"""The weights of a model in its files, read a part at a time."""

from dataclasses import dataclass

import numpy as np

from services.modelfiles.architecture import Architecture, RopeFacts
from services.modelfiles.model_file import ModelFile
from services.modelfiles.tensor_info import TensorInfo
from services.modelfiles.tensor_plan import Part, TensorKey, feed_forward_norm
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.tensor_forms import floats, quantised
from services.worker.llm.domain.layer_ir import (
    Activation,
    Array,
    Layer,
    Linear,
    ModelPlan,
    Rope,
    Weights,
)
from services.worker.llm.domain.model_shape import ModelShape
from services.worker.llm.domain.quantised import QuantisedMatrix

_NORMS = frozenset(part for part in Part if part.name.endswith("NORM"))


@dataclass(frozen=True, slots=True)
class FileWeights:
    """ModelWeights of a checked file."""

    file: ModelFile
    exact: bool  # all weights are floats, as stored; otherwise all are quantised
    plan: ModelPlan

    @classmethod
    def of(cls, file: ModelFile, *, exact: bool) -> "FileWeights":
        """Read what the plan needs. Raises LoadError."""
        return cls(file, exact, _plan(file))

    def embedding(self) -> Weights:
        return self._weights(TensorKey(Part.EMBEDDING))

    def final_norm(self) -> Array:
        return self._vector(TensorKey(Part.FINAL_NORM))

    def head(self) -> Linear | None:
        key = TensorKey(Part.HEAD)
        return None if self.file.tied else Linear(self._weights(key))

    def layer(self, index: int) -> Layer:
        query, key, value = self._attention(index)
        gate, up = self._gates(index)
        return Layer(
            attention_norm=self._vector(TensorKey(Part.ATTENTION_NORM, index)),
            query=query,
            key=key,
            value=value,
            output=self._linear(TensorKey(Part.OUTPUT, index)),
            feed_forward_norm=self._vector(
                TensorKey(feed_forward_norm(self.file.architecture), index)
            ),
            gate=gate,
            up=up,
            down=self._linear(TensorKey(Part.DOWN, index)),
            query_norm=self._optional(TensorKey(Part.QUERY_NORM, index)),
            key_norm=self._optional(TensorKey(Part.KEY_NORM, index)),
            post_attention_norm=self._optional(TensorKey(Part.POST_ATTENTION_NORM, index)),
            post_feed_forward_norm=self._optional(TensorKey(Part.POST_FEED_FORWARD_NORM, index)),
        )

    def _attention(self, index: int) -> tuple[Linear, Linear, Linear]:
        a = self.file.architecture
        if a.family.fused:
            fused = self._linear(TensorKey(Part.QKV, index))
            ends = (0, a.query_size, a.query_size + a.kv_size, a.query_size + 2 * a.kv_size)
            query, key, value = (_rows(fused, slice(*ends[i : i + 2])) for i in range(3))
            return query, key, value
        query = self._linear(TensorKey(Part.QUERY, index))
        key = self._linear(TensorKey(Part.KEY, index))
        if self.file.interleaved:
            query = _rows(query, _halves(a.heads, a.head_size))
            key = _rows(key, _halves(a.kv_heads, a.head_size))
        return query, key, self._linear(TensorKey(Part.VALUE, index))

    def _gates(self, index: int) -> tuple[Linear, Linear]:
        a = self.file.architecture
        if not a.family.fused:
            gate, up = TensorKey(Part.GATE, index), TensorKey(Part.UP, index)
            return self._linear(gate), self._linear(up)
        fused = self._linear(TensorKey(Part.GATE_UP, index))
        return (
            _rows(fused, slice(a.feed_forward_size)),
            _rows(fused, slice(a.feed_forward_size, None)),
        )

    def _linear(self, key: TensorKey) -> Linear:
        bias = TensorKey(key.part, key.layer, bias=True)
        return Linear(self._weights(key), self._optional(bias))

    def _optional(self, key: TensorKey) -> Array | None:
        return self._vector(key) if key in self.file.tensors else None

    def _vector(self, key: TensorKey) -> Array:
        offset = self.file.norm_offset if key.part in _NORMS else 0.0
        return read_vector(self.file.tensors[key]) + np.float32(offset)

    def _weights(self, key: TensorKey) -> Weights:
        tensor = self.file.tensors[key]
        assert tensor.type is not None
        raw = _bytes_of(tensor)
        if self.exact:
            full = floats(raw, tensor.type, tensor.shape)
            _check_finite(tensor, full)
            return full
        matrix = quantised(raw, tensor.type, tensor.shape)
        _check_finite(tensor, matrix.scale)
        _check_finite(tensor, matrix.minimum)
        return matrix


def read_vector(tensor: TensorInfo) -> Array:
    """float32; LoadError if not all are finite."""
    assert tensor.type is not None
    values = floats(_bytes_of(tensor), tensor.type, tensor.shape)
    _check_finite(tensor, values)
    return values


def _bytes_of(tensor: TensorInfo) -> Array:
    try:
        raw = np.fromfile(tensor.file, np.uint8, tensor.size_bytes, offset=tensor.offset)
    except OSError as error:
        raise LoadError(f"tensor {tensor.name!a} can't be read: {error}") from error
    if len(raw) != tensor.size_bytes:
        raise LoadError(f"tensor {tensor.name!a}: the file is cut off")
    return raw


def _check_finite(tensor: TensorInfo, values: Array) -> None:
    if not np.isfinite(values).all():
        raise LoadError(f"tensor {tensor.name!a}: values that are not finite; allowed: numbers")


def _rows(linear: Linear, chosen: slice | Array) -> Linear:
    """Some of the outputs, in this order."""
    weights = linear.weights
    bias = None if linear.bias is None else linear.bias[chosen]
    if isinstance(weights, QuantisedMatrix):
        parts = (weights.q[chosen], weights.scale[chosen], weights.minimum[chosen])
        return Linear(QuantisedMatrix(*parts, bits=weights.bits), bias)
    return Linear(weights[chosen], bias)


def _halves(heads: int, head_size: int) -> Array:
    """Rows so that those of a head, interleaved in the file, come as its two halves."""
    rows = np.arange(heads * head_size).reshape(heads, head_size // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)


def _plan(file: ModelFile) -> ModelPlan:
    a = file.architecture
    ropes = [_rope(a.rope, _factors(file))]
    layer_ropes = (0,) * a.layers
    if a.local_rope is not None:
        ropes.append(_rope(a.local_rope, ()))
        layer_ropes = tuple(1 if window else 0 for window in a.windows)
    return ModelPlan(
        shape=_shape(file, a),
        ropes=tuple(ropes),
        layer_ropes=layer_ropes,
        windows=a.windows,
        activation=Activation(a.family.activation),
        attention_scale=a.attention_scale,
        attention_softcap=a.attention_softcap,
        logit_softcap=a.logit_softcap,
        embedding_scale=a.embedding_scale,
    )


def _shape(file: ModelFile, a: Architecture) -> ModelShape:
    return ModelShape(
        architecture=a.family.name,
        layers=a.layers,
        hidden_size=a.hidden_size,
        feed_forward_size=a.feed_forward_size,
        heads=a.heads,
        kv_heads=a.kv_heads,
        head_size=a.head_size,
        vocabulary_size=a.vocabulary_size,
        context_length=a.context_length,
        rms_epsilon=a.epsilon,
        rope_base=a.rope.base,
        rope_size=a.rope.size,
        tied_embedding=file.tied,
        windows=a.windows,
        parameters=file.parameters,
        precision=file.precision,
    )


def _rope(facts: RopeFacts, factors: tuple[float, ...]) -> Rope:
    return Rope(
        base=facts.base,
        size=facts.size,
        scale=facts.scale,
        factors=factors or facts.factors,
        magnitude=facts.magnitude,
    )


def _factors(file: ModelFile) -> tuple[float, ...]:
    """Divisors of frequencies that the file has as a tensor."""
    for part in (Part.ROPE_FACTORS, Part.SHORT_FACTORS):
        tensor = file.tensors.get(TensorKey(part))
        if tensor is not None:
            values = read_vector(tensor)
            if not (values > 0).all():
                raise LoadError(f"tensor {tensor.name!a}: values of 0 or less; allowed: above 0")
            return tuple(values.tolist())
    return ()
