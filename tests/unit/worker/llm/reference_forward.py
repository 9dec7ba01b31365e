"""A plain forward pass in float64, from the layers alone: what graphs and runners are compared with."""

import numpy as np

from services.worker.llm.domain.layer_ir import (
    Activation,
    Array,
    Layer,
    Linear,
    ModelPlan,
    as_floats,
)
from services.worker.llm.ports.model_weights import ModelWeights


def reference_logits(weights: ModelWeights, ids: list[int]) -> Array:
    """Logits after each token of one text: float32 [T, vocabulary]."""
    plan = weights.plan
    embedding = as_floats(weights.embedding()).astype(np.float64)
    hidden = embedding[ids] * plan.embedding_scale
    for index in range(plan.shape.layers):
        hidden = _layer(plan, index, weights.layer(index), hidden)
    hidden = _rms(hidden, weights.final_norm(), plan.shape.rms_epsilon)
    head = weights.head()
    logits = hidden @ embedding.T if head is None else _linear(head, hidden)
    return _capped(logits, plan.logit_softcap).astype(np.float32)


def _layer(plan: ModelPlan, index: int, layer: Layer, hidden: Array) -> Array:
    epsilon = plan.shape.rms_epsilon
    x = _rms(hidden, layer.attention_norm, epsilon)
    attended = _linear(layer.output, _attention(plan, index, layer, x))
    if layer.post_attention_norm is not None:
        attended = _rms(attended, layer.post_attention_norm, epsilon)
    hidden = hidden + attended
    x = _rms(hidden, layer.feed_forward_norm, epsilon)
    fed = _linear(layer.down, _activated(plan, _linear(layer.gate, x)) * _linear(layer.up, x))
    if layer.post_feed_forward_norm is not None:
        fed = _rms(fed, layer.post_feed_forward_norm, epsilon)
    return hidden + fed


def _attention(plan: ModelPlan, index: int, layer: Layer, x: Array) -> Array:
    shape, tokens = plan.shape, len(x)
    q = _linear(layer.query, x).reshape(tokens, shape.heads, shape.head_size)
    k = _linear(layer.key, x).reshape(tokens, shape.kv_heads, shape.head_size)
    v = _linear(layer.value, x).reshape(tokens, shape.kv_heads, shape.head_size)
    if layer.query_norm is not None and layer.key_norm is not None:
        q = _rms(q, layer.query_norm, shape.rms_epsilon)
        k = _rms(k, layer.key_norm, shape.rms_epsilon)
    q, k = _turned(plan, index, q), _turned(plan, index, k)
    group = shape.heads // shape.kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * plan.attention_scale
    scores = _capped(scores, plan.attention_softcap)
    scores = np.where(_seen(tokens, plan.windows[index]), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    attended: Array = np.einsum("hqk,khd->qhd", shares, v).reshape(tokens, -1)
    return attended


def _seen(tokens: int, window: int) -> Array:
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None]
    seen = distance >= 0
    return seen & (distance < window) if window else seen


def _turned(plan: ModelPlan, index: int, heads: Array) -> Array:
    rope = plan.ropes[plan.layer_ropes[index]]
    cosines, sines = (table[:, None].astype(np.float64) for table in rope.tables(len(heads)))
    half = rope.size // 2
    first, second, rest = heads[..., :half], heads[..., half : rope.size], heads[..., rope.size :]
    return np.concatenate(
        [first * cosines - second * sines, second * cosines + first * sines, rest], -1
    )


def _linear(linear: Linear, x: Array) -> Array:
    y: Array = x @ as_floats(linear.weights).astype(np.float64).T
    return y if linear.bias is None else y + linear.bias


def _rms(x: Array, factors: Array, epsilon: float) -> Array:
    normed: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * factors
    return normed


def _activated(plan: ModelPlan, x: Array) -> Array:
    if plan.activation is Activation.SILU:
        silu: Array = x / (1 + np.exp(-x))
        return silu
    gelu: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return gelu


def _capped(x: Array, cap: float) -> Array:
    if not cap:
        return x
    capped: Array = cap * np.tanh(x / cap)
    return capped
