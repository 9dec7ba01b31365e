// Rows of activations times one panel of weights, in whole numbers block by block.
//
// A row's outputs are the same bits whatever rows are computed beside it: within a block the sums are exact, and
// blocks are added in their order.
#pragma once
#include "kernels.h"

namespace llm {
namespace {

template <class S>
void quantise(const float* x, int64_t blocks, int8_t* q, float* scale, float* moment) {
  for (int64_t block = 0; block < blocks; block++, x += kBlock, q += kBlock) {
    const float largest = S::magnitude(x);
    // So small a block counts as zero, or 127 / largest would overflow. NaN fails the comparison and goes on.
    const bool nothing = largest < 1e-30f;
    const int sum = S::to_integers(x, nothing ? 0.f : 127.f / largest, q);
    scale[block] = nothing ? 0.f : largest / 127.f;
    moment[block] = scale[block] * static_cast<float>(sum);
  }
}

// `count` rows from `first` on. Weights are `packed`, two groups of 4 bits to a byte, or one value to a byte.
template <class S, int count, int bits, bool packed>
void multiply_rows(const QuantisedRows& rows, int64_t first, const uint8_t* weight, const Panel& panel) {
  typename S::Float total[count][S::vectors];
  for (int r = 0; r < count; r++) {
    for (int v = 0; v < S::vectors; v++) total[r][v] = S::zero();
  }
  const int64_t stride = rows.blocks * kBlock;
  const int8_t* q = rows.q + first * stride;
  const float* scale = rows.scale + first * rows.blocks;
  const float* moment = rows.moment + first * rows.blocks;
  const Half* scales = panel.scales;
  for (int64_t block = 0; block < rows.blocks; block++) {
    typename S::Int sums[count][S::vectors];
    S::template dots<count, bits, packed>(weight, q, stride, sums);
    for (int v = 0; v < S::vectors; v++) {
      const auto factor = S::load(scales + v * S::lanes), minimum = S::load(scales + kPanel + v * S::lanes);
      for (int r = 0; r < count; r++) {
        // scale × factor × sum of (weight q × activation q) + minimum × sum of activations
        const auto product = S::multiply(S::to_float(sums[r][v]), factor);
        const auto base = S::fma(minimum, S::all(moment[r * rows.blocks + block]), total[r][v]);
        total[r][v] = S::fma(product, S::all(scale[r * rows.blocks + block]), base);
      }
    }
    weight += packed ? kPanel * kBlock / 2 : kPanel * kBlock;
    scales += 2 * kPanel;
    q += kBlock;
  }
  for (int r = 0; r < count; r++) {
    float* out = panel.out + (first + r) * panel.stride;
    float whole[kPanel];
    float* to = panel.columns == kPanel ? out : whole;
    for (int v = 0; v < S::vectors; v++) S::store(to + v * S::lanes, total[r][v]);
    for (int c = 0; to == whole && c < panel.columns; c++) out[c] = whole[c];
    for (int c = 0; panel.bias && c < panel.columns; c++) out[c] += panel.bias[c];
  }
}

template <class S, int count, int bits, bool packed>
void multiply_at_most(int wanted, const QuantisedRows& rows, int64_t first, const uint8_t* weight, const Panel& panel) {
  if constexpr (count > 1) {
    if (wanted < count) return multiply_at_most<S, count - 1, bits, packed>(wanted, rows, first, weight, panel);
  }
  multiply_rows<S, count, bits, packed>(rows, first, weight, panel);
}

template <class S, int bits, bool packed>
void multiply_all(const QuantisedRows& rows, const uint8_t* weight, const Panel& panel) {
  constexpr int most = S::rows(bits);
  // Shares of even size: seven rows are four and three, not six and one.
  const int64_t shares = (rows.rows + most - 1) / most;
  for (int64_t share = 0, first = 0; share < shares; share++) {
    const int64_t count = (rows.rows - first + shares - share - 1) / (shares - share);
    multiply_at_most<S, most, bits, packed>(static_cast<int>(count), rows, first, weight, panel);
    first += count;
  }
}

// Many rows use a panel many times, so its nibbles are taken apart once.
inline void unpack(const uint8_t* weight, int64_t blocks, uint8_t* into) {
  for (int64_t piece = 0; piece < blocks * 4; piece++, weight += 64, into += 128) {
    for (int i = 0; i < 64; i++) into[i] = weight[i] & 15;
    for (int i = 0; i < 64; i++) into[64 + i] = weight[i] >> 4;
  }
}

template <class S>
void multiply(const QuantisedRows& rows, const Panel& panel) {
  constexpr int64_t most_blocks = 96;  // 48 KB unpacked, in the second level of cache
  if (panel.bits == 8) {
    multiply_all<S, 8, false>(rows, panel.weight, panel);
  } else if (rows.rows > 2 * S::rows(4) && rows.blocks <= most_blocks) {
    alignas(64) uint8_t weight[most_blocks * kPanel * kBlock];
    unpack(panel.weight, rows.blocks, weight);
    multiply_all<S, 4, false>(rows, weight, panel);
  } else {
    multiply_all<S, 4, true>(rows, panel.weight, panel);
  }
}

}  // namespace
}  // namespace llm
