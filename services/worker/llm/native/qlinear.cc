#include <algorithm>
#include <limits>
#include <memory>

#include "operators.h"

namespace llm {

namespace {

enum { kX, kWeight, kScales, kBias };

constexpr int64_t kRowsOfAPiece = 16;          // to quantise
constexpr int64_t kProductsOfAPiece = 400000;  // to multiply: some ten microseconds
constexpr int64_t kFewestPieces = 16;          // of a matrix, so that threads end together

// Memory for quantised rows, kept by the thread that computes steps: it grows to the largest step and stays.
class Scratch {
 public:
  QuantisedRows rows(int64_t rows, int64_t blocks) {
    const size_t numbers = static_cast<size_t>(rows * blocks);
    grow(numbers * (kBlock + 2 * sizeof(float)));
    scale_ = reinterpret_cast<float*>(memory_.get());
    moment_ = scale_ + numbers;
    q_ = reinterpret_cast<int8_t*>(moment_ + numbers);
    return QuantisedRows{q_, scale_, moment_, rows, blocks};
  }
  void quantise(const float* x, int64_t row, int64_t blocks) const {
    kernels().quantise(x + row * blocks * kBlock, blocks, q_ + row * blocks * kBlock, scale_ + row * blocks,
                       moment_ + row * blocks);
  }

 private:
  void grow(size_t bytes) {
    if (bytes <= size_) return;
    memory_.reset(new char[bytes]);
    size_ = bytes;
  }

  std::unique_ptr<char[]> memory_;
  size_t size_ = 0;
  float* scale_ = nullptr;
  float* moment_ = nullptr;
  int8_t* q_ = nullptr;
};

int64_t up(int64_t count, int64_t divisor) { return (count + divisor - 1) / divisor; }

}  // namespace

QLinear::QLinear(int64_t columns, int64_t bits) : columns_(columns), bits_(bits) {
  constexpr int64_t largest = std::numeric_limits<int32_t>::max();
  require(columns > 0 && columns <= largest, "columns is ", columns, ", not 1 to ", largest);
  require(bits == 4 || bits == 8, "bits is ", bits, ", not 4 or 8");
}

Shape QLinear::shape(const Inputs& inputs) const {
  const Tensor& x = inputs[kX];
  require_tensor(x, "x", Element::kFloat, 0);
  const int64_t width = x.shape.back();
  require(width > 0 && width % kBlock == 0, "x has the shape ", x.shape, ": ", width, " inputs are no multiple of 32");
  const int64_t panels = up(columns_, kPanel), blocks = width / kBlock;
  require_tensor(inputs[kWeight], "weight", Element::kUint8, 3);
  require_shape(inputs[kWeight], "weight", {panels, blocks, kPanel * kBlock * bits_ / 8});
  require_tensor(inputs[kScales], "scales", Element::kFloat16, 3);
  require_shape(inputs[kScales], "scales", {panels, blocks, 2 * kPanel});
  if (inputs.size() > kBias && inputs[kBias].present()) {
    require_tensor(inputs[kBias], "bias", Element::kFloat, 1);
    require_shape(inputs[kBias], "bias", {columns_});
  }
  Shape result = x.shape;
  result.back() = columns_;
  return result;
}

void QLinear::compute(const Inputs& inputs, float* out, Parallel& parallel) const {
  const int64_t width = inputs[kX].shape.back(), blocks = width / kBlock;
  const int64_t rows = inputs[kX].size() / width, panels = up(columns_, kPanel);
  if (!rows) return;
  thread_local Scratch scratch;
  Scratch& quantised = scratch;  // other threads must not take their own
  const QuantisedRows activations = quantised.rows(rows, blocks);
  const float* x = inputs[kX].as<float>();
  parallel.run(static_cast<size_t>(up(rows, kRowsOfAPiece)), [&](size_t piece) {
    const int64_t first = static_cast<int64_t>(piece) * kRowsOfAPiece;
    for (int64_t row = first; row < std::min(rows, first + kRowsOfAPiece); row++) quantised.quantise(x, row, blocks);
  });

  const uint8_t* weight = inputs[kWeight].as<uint8_t>();
  const Half* scales = inputs[kScales].as<Half>();
  const float* bias = inputs.size() > kBias ? inputs[kBias].as<float>() : nullptr;
  const int64_t bytes = blocks * kPanel * kBlock * bits_ / 8;
  const int64_t products = rows * width * kPanel;
  const int64_t share = std::max<int64_t>(1, std::min(up(kProductsOfAPiece, products), panels / kFewestPieces));
  parallel.run(static_cast<size_t>(up(panels, share)), [&](size_t piece) {
    const int64_t first = static_cast<int64_t>(piece) * share;
    for (int64_t p = first; p < std::min(panels, first + share); p++) {
      const int64_t column = p * kPanel;
      kernels().multiply(activations, Panel{weight + p * bytes, scales + p * blocks * 2 * kPanel,
                                            static_cast<int>(bits_), bias ? bias + column : nullptr, out + column,
                                            columns_, static_cast<int>(std::min<int64_t>(kPanel, columns_ - column))});
    }
  });
}

}  // namespace llm
