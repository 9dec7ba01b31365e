// The gated activation of a feed-forward layer: activation(gate) × up.
#pragma once
#include <cstring>

#include "exponential.h"
#include "kernels.h"

namespace llm {
namespace {

template <class S>
typename S::Float activated(typename S::Float x, Activation activation) {
  if (activation == Activation::kSilu) return S::multiply(x, sigmoid<S>(x));
  // x (1 + tanh u) / 2 is x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  const auto cubic = S::multiply(S::multiply(x, x), S::multiply(x, S::all(0.044715f)));
  return S::multiply(x, sigmoid<S>(S::multiply(S::all(1.5957691216f), S::add(x, cubic))));
}

template <class S>
void swiglu(const float* gate_up, int64_t features, Activation activation, float* out) {
  const float* up = gate_up + features;
  int64_t i = 0;
  for (; i + S::lanes <= features; i += S::lanes) {
    S::store(out + i, S::multiply(activated<S>(S::load(gate_up + i), activation), S::load(up + i)));
  }
  if (i == features) return;
  float rest[3][S::lanes] = {};
  const size_t bytes = static_cast<size_t>(features - i) * sizeof(float);
  std::memcpy(rest[0], gate_up + i, bytes);
  std::memcpy(rest[1], up + i, bytes);
  S::store(rest[2], S::multiply(activated<S>(S::load(rest[0]), activation), S::load(rest[1])));
  std::memcpy(out + i, rest[2], bytes);
}

}  // namespace
}  // namespace llm
