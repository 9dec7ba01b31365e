// The operators as ONNX graphs know them: what they check, and how they cut their work in pieces.
//
// Each checks all its inputs in `shape` before `compute` touches any of them; both are told the same inputs.
#pragma once
#include <vector>

#include "kernels.h"
#include "tensor.h"

namespace llm {

using Inputs = std::vector<Tensor>;

// Activations times quantised weights, plus bias: (x, weight, scales[, bias]).
class QLinear {
 public:
  QLinear(int64_t columns, int64_t bits);
  Shape shape(const Inputs& inputs) const;
  void compute(const Inputs& inputs, float* out, Parallel& parallel) const;

 private:
  int64_t columns_;
  int64_t bits_;
};

struct PagedAttentionAttributes {
  int64_t num_heads = 0;
  int64_t kv_num_heads = 0;
  int64_t layer = 0;
  int64_t window = 0;
  float softcap = 0;
  float scale = 0;
  float epsilon = 1e-6f;
};

// Causal attention over a paged cache, which it also fills: (qkv, kv, starts, past, blocks, cos, sin[, q_norm, k_norm]).
class PagedAttention {
 public:
  explicit PagedAttention(const PagedAttentionAttributes& attributes);
  Shape shape(const Inputs& inputs) const;
  void compute(const Inputs& inputs, float* out, Parallel& parallel) const;

 private:
  int64_t head_size(const Inputs& inputs) const;
  void check_cache(const Inputs& inputs) const;
  void check_requests(const Inputs& inputs) const;
  void check_norms(const Inputs& inputs) const;
  Attention attention(const Inputs& inputs, float* out) const;

  PagedAttentionAttributes attributes_;
};

// Gate and up of a feed-forward layer: (gate_up).
class SwiGLU {
 public:
  explicit SwiGLU(Activation activation) : activation_(activation) {}
  Shape shape(const Inputs& inputs) const;
  void compute(const Inputs& inputs, float* out, Parallel& parallel) const;

 private:
  Activation activation_;
};

}  // namespace llm
