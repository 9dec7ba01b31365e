"""Which tensors a model has, by architecture: what each is for, its names in the two kinds of files, its shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from services.modelfiles.architecture import Architecture
from services.modelfiles.family import Bias


class Part(Enum):
    """What a tensor is for: its name in GGUF, in a layer or in the model, and in `safetensors`."""

    EMBEDDING = ("token_embd", "model.embed_tokens")
    FINAL_NORM = ("output_norm", "model.norm")
    HEAD = ("output", "lm_head")
    ROPE_FACTORS = ("rope_freqs", "")
    SHORT_FACTORS = ("rope_factors_short", "")
    LONG_FACTORS = ("rope_factors_long", "")
    ATTENTION_NORM = ("attn_norm", "input_layernorm")
    QUERY = ("attn_q", "self_attn.q_proj")
    KEY = ("attn_k", "self_attn.k_proj")
    VALUE = ("attn_v", "self_attn.v_proj")
    QKV = ("attn_qkv", "self_attn.qkv_proj")
    OUTPUT = ("attn_output", "self_attn.o_proj")
    QUERY_NORM = ("attn_q_norm", "self_attn.q_norm")
    KEY_NORM = ("attn_k_norm", "self_attn.k_norm")
    POST_ATTENTION_NORM = ("post_attention_norm", "post_attention_layernorm")
    FEED_FORWARD_NORM = ("ffn_norm", "post_attention_layernorm")
    # With norms after, `safetensors` call the one before feed forward otherwise.
    PRE_FEED_FORWARD_NORM = ("ffn_norm", "pre_feedforward_layernorm")
    GATE = ("ffn_gate", "mlp.gate_proj")
    UP = ("ffn_up", "mlp.up_proj")
    GATE_UP = ("ffn_up", "mlp.gate_up_proj")
    DOWN = ("ffn_down", "mlp.down_proj")
    POST_FEED_FORWARD_NORM = ("post_ffw_norm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True)
class TensorKey:
    """One tensor of a model."""

    part: Part
    layer: int | None = None
    bias: bool = False

    @property
    def gguf_name(self) -> str:
        where = "" if self.layer is None else f"blk.{self.layer}."
        return f"{where}{self.part.value[0]}.{self._kind}"

    @property
    def hf_name(self) -> str:
        """Empty: there is none in such files."""
        name = self.part.value[1]
        where = "" if self.layer is None else f"model.layers.{self.layer}."
        return f"{where}{name}.{self._kind}" if name else ""

    @property
    def _kind(self) -> str:
        return "bias" if self.bias else "weight"


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor that may be there, or must."""

    key: TensorKey
    shape: tuple[int, ...]
    required: bool = True


def planned_tensors(architecture: Architecture) -> Iterator[PlannedTensor]:
    """All of a model; what is not among them is refused, as leaving it out would give wrong text."""
    hidden, vocabulary = architecture.hidden_size, architecture.vocabulary_size
    yield PlannedTensor(TensorKey(Part.EMBEDDING), (vocabulary, hidden))
    yield PlannedTensor(TensorKey(Part.FINAL_NORM), (hidden,))
    yield PlannedTensor(TensorKey(Part.HEAD), (vocabulary, hidden), required=False)
    factors = (architecture.rope.size // 2,)
    kinds = [Part.ROPE_FACTORS]
    if architecture.family.name == "phi3":
        kinds = [Part.SHORT_FACTORS, Part.LONG_FACTORS]
    for kind in kinds:
        yield PlannedTensor(TensorKey(kind), factors, required=False)
    for layer in range(architecture.layers):
        yield from _linears(architecture, layer)
        yield from _norms(architecture, layer)


def _linears(a: Architecture, layer: int) -> Iterator[PlannedTensor]:
    hidden, feed = a.hidden_size, a.feed_forward_size
    family = a.family
    attention = {Part.QUERY: a.query_size, Part.KEY: a.kv_size, Part.VALUE: a.kv_size}
    gates = {Part.GATE: feed, Part.UP: feed}
    if family.fused:
        attention = {Part.QKV: a.query_size + 2 * a.kv_size}
        gates = {Part.GATE_UP: 2 * feed}
    for part, size in attention.items():
        yield from _linear(TensorKey(part, layer), (size, hidden), family.qkv_bias)
    yield from _linear(TensorKey(Part.OUTPUT, layer), (hidden, a.query_size), family.other_bias)
    for part, size in gates.items():
        yield from _linear(TensorKey(part, layer), (size, hidden), family.other_bias)
    yield from _linear(TensorKey(Part.DOWN, layer), (hidden, feed), family.other_bias)


def _linear(key: TensorKey, shape: tuple[int, int], bias: Bias) -> Iterator[PlannedTensor]:
    yield PlannedTensor(key, shape)
    if bias is not Bias.NONE:
        of_it = TensorKey(key.part, key.layer, bias=True)
        yield PlannedTensor(of_it, shape[:1], required=bias is Bias.REQUIRED)


def _norms(a: Architecture, layer: int) -> Iterator[PlannedTensor]:
    sizes = {Part.ATTENTION_NORM: a.hidden_size, feed_forward_norm(a): a.hidden_size}
    if a.family.post_norms:
        sizes |= {Part.POST_ATTENTION_NORM: a.hidden_size}
        sizes |= {Part.POST_FEED_FORWARD_NORM: a.hidden_size}
    if a.family.head_norms:
        sizes |= {Part.QUERY_NORM: a.head_size, Part.KEY_NORM: a.head_size}
    for part, size in sizes.items():
        yield PlannedTensor(TensorKey(part, layer), (size,))


def feed_forward_norm(a: Architecture) -> Part:
    """The norm before feed forward."""
    return Part.PRE_FEED_FORWARD_NORM if a.family.post_norms else Part.FEED_FORWARD_NORM
