#include <algorithm>

#include "operators.h"

namespace llm {

namespace {

constexpr int64_t kNumbersOfAPiece = 32768;

}  // namespace

Shape SwiGLU::shape(const Inputs& inputs) const {
  const Tensor& gate_up = inputs[0];
  require_tensor(gate_up, "gate_up", Element::kFloat, 0);
  require(gate_up.shape.back() % 2 == 0, "gate_up has the shape ", gate_up.shape,
          ": gates and factors are not equally many");
  Shape result = gate_up.shape;
  result.back() /= 2;
  return result;
}

void SwiGLU::compute(const Inputs& inputs, float* out, Parallel& parallel) const {
  const int64_t features = inputs[0].shape.back() / 2;
  if (!inputs[0].size()) return;
  const int64_t rows = inputs[0].size() / (2 * features);
  const int64_t share = std::max<int64_t>(1, kNumbersOfAPiece / features);
  const float* gate_up = inputs[0].as<float>();
  parallel.run(static_cast<size_t>((rows + share - 1) / share), [&](size_t piece) {
    const int64_t first = static_cast<int64_t>(piece) * share;
    for (int64_t row = first; row < std::min(rows, first + share); row++) {
      kernels().swiglu(gate_up + row * 2 * features, features, activation_, out + row * features);
    }
  });
}

}  // namespace llm
