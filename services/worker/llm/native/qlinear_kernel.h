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

// `count` rows from `first` on.
template <class S, int count, Form form>
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
    S::template dots<count, form>(weight, q, stride, sums);
    for (int v = 0; v < S::vectors; v++) {
      const auto factor = S::load(scales + v * S::lanes), minimum = S::load(scales + kPanel + v * S::lanes);
      for (int r = 0; r < count; r++) {
        // scale × factor × sum of (weight q × activation q) + minimum × sum of activations
        const auto product = S::multiply(S::to_float(sums[r][v]), factor);
        const auto base = S::fma(minimum, S::all(moment[r * rows.blocks + block]), total[r][v]);
        total[r][v] = S::fma(product, S::all(scale[r * rows.blocks + block]), base);
      }
    }
    weight += bytes_of(form);
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

template <class S, int count, Form form>
void multiply_at_most(int wanted, const QuantisedRows& rows, int64_t first, const uint8_t* weight, const Panel& panel) {
  if constexpr (count > 1) {
    if (wanted < count) return multiply_at_most<S, count - 1, form>(wanted, rows, first, weight, panel);
  }
  multiply_rows<S, count, form>(rows, first, weight, panel);
}

template <class S, Form form>
void multiply_all(const QuantisedRows& rows, const uint8_t* weight, const Panel& panel) {
  constexpr int most = S::rows(form);
  // Shares of even size: seven rows are four and three, not six and one.
  const int64_t shares = (rows.rows + most - 1) / most;
  for (int64_t share = 0, first = 0; share < shares; share++) {
    const int64_t count = (rows.rows - first + shares - share - 1) / (shares - share);
    multiply_at_most<S, most, form>(static_cast<int>(count), rows, first, weight, panel);
    first += count;
  }
}

// Takes the nibbles of `pieces` times 64 bytes apart: the low ones of each piece, then its high ones. That is how pairs
// become nibbles, and bytes planes.
inline void take_apart(const uint8_t* weight, int64_t pieces, uint8_t* into) {
  for (int64_t piece = 0; piece < pieces; piece++, weight += 64, into += 128) {
    for (int i = 0; i < 64; i++) into[i] = weight[i] & 15;
    for (int i = 0; i < 64; i++) into[64 + i] = weight[i] >> 4;
  }
}

// Rows that are more than one pass use the panel again and again, so its nibbles are taken apart once if they must be.
template <class S, Form stored, Form apart>
void multiply_stored(const QuantisedRows& rows, const Panel& panel) {
  constexpr int64_t most_bytes = 96 * 1024;  // on the stack, and in the second level of the cache
  if constexpr (stored != apart) {
    if (rows.rows > S::rows(stored) && rows.blocks * bytes_of(apart) <= most_bytes) {
      alignas(64) uint8_t weight[most_bytes];
      take_apart(panel.weight, rows.blocks * bytes_of(stored) / 64, weight);
      return multiply_all<S, apart>(rows, weight, panel);
    }
  }
  multiply_all<S, stored>(rows, panel.weight, panel);
}

template <class S>
void multiply(const QuantisedRows& rows, const Panel& panel) {
  if (panel.bits == 4) return multiply_stored<S, Form::kPairs, S::apart(Form::kPairs)>(rows, panel);
  multiply_stored<S, Form::kBytes, S::apart(Form::kBytes)>(rows, panel);
}

}  // namespace
}  // namespace llm
