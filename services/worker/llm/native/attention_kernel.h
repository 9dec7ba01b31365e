// Causal attention of a tile of query rows over the blocks of one request's cache.
//
// A row's outputs are the same bits whatever tile, piece of a prompt or step it is computed in. Keys are taken in spans
// of 128 that begin at multiples of 128 of the position, each span has a softmax of its own, and spans are merged in
// order. Within a span a row's keys are added in order, and keys that it may not see are not added at all: their
// place in the cache may hold anything, infinities and NaNs included.
#pragma once
#include <cstddef>

#include "exponential.h"
#include "kernels.h"

namespace llm {
namespace {

constexpr int kSpan = 8;                  // blocks
constexpr int kSpanKeys = kSpan * kTokens;

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

// One head's query or key: normalised if there are weights for it, then rotated.
template <class S>
void prepare(const Attention& a, const float* x, const float* norm, int position, float scale, float* out) {
  const int size = a.head_size, rotated = a.rotated;
  for (int i = 0; i < size; i++) out[i] = x[i];
  if (norm) {
    auto squares = S::zero();
    for (int i = 0; i < size; i += S::lanes) squares = S::fma(S::load(x + i), S::load(x + i), squares);
    const float mean = S::sum(squares) / static_cast<float>(size);
    const float factor = 1.f / __builtin_sqrtf(mean + a.epsilon);
    for (int i = 0; i < size; i++) out[i] *= factor * norm[i];
  }
  const float* cosine = a.cosine + static_cast<ptrdiff_t>(position) * rotated;
  const float* sine = a.sine + static_cast<ptrdiff_t>(position) * rotated;
  for (int i = 0; i < rotated; i++) {
    const float first = out[i], second = out[i + rotated];
    out[i] = first * cosine[i] - second * sine[i];
    out[i + rotated] = second * cosine[i] + first * sine[i];
  }
  for (int i = 0; i < size; i++) out[i] *= scale;
}

// Where a block's keys or values of one head begin.
template <class T>
T* block_at(const Attention& a, void* cache, int block, int kv_head) {
  const ptrdiff_t index = static_cast<ptrdiff_t>(block) * a.kv_heads + kv_head;
  return static_cast<T*>(cache) + index * kTokens * a.head_size;
}

inline const float* row_of(const Attention& a, int request, int token) {
  return a.qkv + static_cast<ptrdiff_t>(a.starts[request] + token) * (a.heads + 2 * a.kv_heads) * a.head_size;
}

// Keys and values of one new token, all heads, into the cache.
template <class S, class T>
void keep(const Attention& a, int request, int token) {
  const int position = a.past[request] + token, size = a.head_size, slot = position % kTokens;
  const int block = a.blocks[static_cast<ptrdiff_t>(request) * a.max_blocks + position / kTokens];
  const float* key = row_of(a, request, token) + a.heads * size;
  const float* value = key + a.kv_heads * size;
  for (int head = 0; head < a.kv_heads; head++, key += size, value += size) {
    alignas(64) float turned[kMaxHeadSize];
    alignas(64) T stored[kMaxHeadSize];
    prepare<S>(a, key, a.k_norm, position, 1.f, turned);
    for (int i = 0; i < size; i += S::lanes) S::store(stored + i, S::load(turned + i));
    T* keys = block_at<T>(a, a.keys, block, head) + slot;
    for (int i = 0; i < size; i++) keys[i * kTokens] = stored[i];
    T* values = block_at<T>(a, a.values, block, head) + slot * size;
    for (int i = 0; i < size; i += S::lanes) S::store(values + i, S::load(value + i));
  }
}

// Scores of `count` queries with the 16 keys of a block.
template <class S, int count, class T>
void score_rows(const float* query, int size, const T* keys, float* score) {
  constexpr int vectors = kTokens / S::lanes;
  typename S::Float sum[count][vectors];
  for (int r = 0; r < count; r++) {
    for (int v = 0; v < vectors; v++) sum[r][v] = S::zero();
  }
  for (int i = 0; i < size; i++) {
    typename S::Float key[vectors];
    for (int v = 0; v < vectors; v++) key[v] = S::load(keys + i * kTokens + v * S::lanes);
#pragma GCC unroll 12
    for (int r = 0; r < count; r++) {
      const auto q = S::all(query[r * size + i]);
      for (int v = 0; v < vectors; v++) sum[r][v] = S::fma(q, key[v], sum[r][v]);
    }
  }
  for (int r = 0; r < count; r++) {
    for (int v = 0; v < vectors; v++) S::store(score + r * kSpanKeys + v * S::lanes, sum[r][v]);
  }
}

template <class S, int count, class T>
void score_at_most(int wanted, const float* query, int size, const T* keys, float* score) {
  if constexpr (count > 1) {
    if (wanted < count) return score_at_most<S, count - 1, T>(wanted, query, size, keys, score);
  }
  score_rows<S, count, T>(query, size, keys, score);
}

// Adds to `count` rows the values of keys from `from` up to `to` of a span, each as often as its weight says.
template <class S, int count, class T>
void weigh_rows(const float* weight, const T* const* values, int from, int to, int size, float* sum) {
  constexpr int width = S::wide * S::lanes;
  for (int i = 0; i < size; i += width) {
    typename S::Float total[count][S::wide];
    for (int r = 0; r < count; r++) {
      for (int v = 0; v < S::wide; v++) total[r][v] = S::load(sum + r * size + i + v * S::lanes);
    }
    for (int key = from; key < to; key++) {
      const T* value = values[key / kTokens] + (key % kTokens) * size + i;
      typename S::Float x[S::wide];
      for (int v = 0; v < S::wide; v++) x[v] = S::load(value + v * S::lanes);
#pragma GCC unroll 12
      for (int r = 0; r < count; r++) {
        const auto w = S::all(weight[r * kSpanKeys + key]);
        for (int v = 0; v < S::wide; v++) total[r][v] = S::fma(w, x[v], total[r][v]);
      }
    }
    for (int r = 0; r < count; r++) {
      for (int v = 0; v < S::wide; v++) S::store(sum + r * size + i + v * S::lanes, total[r][v]);
    }
  }
}

template <class S, int count, class T>
void weigh_at_most(int wanted, const float* weight, const T* const* values, int from, int to, int size, float* sum) {
  if constexpr (count > 1) {
    if (wanted < count) return weigh_at_most<S, count - 1, T>(wanted, weight, values, from, to, size, sum);
  }
  weigh_rows<S, count, T>(weight, values, from, to, size, sum);
}

// The rows of a tile and what is known of their softmax so far.
template <class S, class T>
class TileOfRows {
 public:
  TileOfRows(const Attention& attention, const Tile& tile)
      : a_(attention),
        tile_(tile),
        rows_(tile.tokens * tile.heads),
        size_(attention.head_size),
        first_(attention.past[tile.request] + tile.token),
        blocks_(attention.blocks + static_cast<ptrdiff_t>(tile.request) * attention.max_blocks) {
    const int group = a_.heads / a_.kv_heads;
    for (int r = 0; r < rows_; r++) {
      const int token = r / tile.heads, head = tile.kv_head * group + tile.head + r % tile.heads;
      const float* x = row_of(a_, tile.request, tile.token + token) + head * size_;
      prepare<S>(a_, x, a_.q_norm, first_ + token, a_.scale, query_ + r * size_);
      seen_[r] = false;
    }
  }

  void attend() {
    const int end = first_ + tile_.tokens;
    for (int begin = oldest(0) / kSpanKeys * kSpanKeys; begin < end; begin += kSpanKeys) {
      const int blocks = (smaller(begin + kSpanKeys, end) + kTokens - 1) / kTokens;
      for (int block = larger(begin, oldest(0)) / kTokens; block < blocks; block++) {
        // The next block lies anywhere in the cache: its way here takes as long as the work on this one.
        if ((block + 1) * kTokens < end) prefetch(block_at<T>(a_, a_.keys, blocks_[block + 1], tile_.kv_head));
        score(block, begin);
      }
      for (int token = 0; token < tile_.tokens; token++) {
        from_[token] = larger(oldest(token) - begin, 0);
        to_[token] = larger(from_[token], smaller(first_ + token + 1 - begin, kSpanKeys));
        for (int h = 0; h < tile_.heads; h++) soften(token * tile_.heads + h, from_[token], to_[token]);
      }
      weigh();
      for (int r = 0; r < rows_; r++) merge(r);
    }
    for (int r = 0; r < rows_; r++) put_out(r);
  }

 private:
  // The first position that a token of the tile sees.
  int oldest(int token) const { return a_.window ? larger(0, first_ + token + 1 - a_.window) : 0; }

  void score(int block, int begin) {
    const T* keys = block_at<T>(a_, a_.keys, blocks_[block], tile_.kv_head);
    values_[block - begin / kTokens] = block_at<T>(a_, a_.values, blocks_[block], tile_.kv_head);
    prefetch(values_[block - begin / kTokens]);
    float* to = score_ + (block * kTokens - begin);
    if (rows_ <= S::strip) return score_at_most<S, S::strip, T>(rows_, query_, size_, keys, to);
    // Many rows use the block many times, so its keys are widened once.
    for (int i = 0; i < size_ * kTokens; i += S::lanes) S::store(keys_ + i, S::load(keys + i));
    for (int r = 0; r < rows_; r += S::strip) {
      score_at_most<S, S::strip, float>(smaller(S::strip, rows_ - r), query_ + r * size_, size_, keys_, to + r * kSpanKeys);
    }
  }

  // A row's scores of keys from `from` up to `to` become weights; takes down the largest score and the weights' sum.
  void soften(int row, int from, int to) {
    if (from == to) return;
    constexpr float none = -__builtin_inff();
    float* score = score_ + row * kSpanKeys;
    const int begin = from / S::lanes * S::lanes;
    auto most = S::all(none);
    for (int i = begin; i < to; i += S::lanes) {
      auto x = S::load(score + i);
      if (a_.softcap > 0) {
        x = S::multiply(S::all(a_.softcap), tangent<S>(S::divide(x, S::all(a_.softcap))));
      }
      if (i < from || i + S::lanes > to) x = S::within(x, from - i, to - i, none);
      S::store(score + i, x);
      most = S::max(x, most);
    }
    span_largest_[row] = S::largest(most);
    const auto largest = S::all(span_largest_[row]);
    auto sum = S::zero();
    for (int i = begin; i < to; i += S::lanes) {
      auto e = exponential<S>(S::subtract(S::load(score + i), largest));
      if (i < from || i + S::lanes > to) e = S::within(e, from - i, to - i, 0.f);
      S::store(score + i, e);
      sum = S::add(sum, e);
    }
    span_sum_[row] = S::sum(sum);
  }

  // Weighted sums of this span's values. Keys that all rows see are taken for many rows at once; around them, those
  // that not all see for one token's rows at a time. Either way each row adds its keys in order.
  void weigh() {
    for (int i = 0; i < rows_ * size_; i++) span_[i] = 0.f;
    const int last = tile_.tokens - 1;
    const int common_from = from_[last], common_to = larger(common_from, to_[0]);
    for (int token = 0; token < tile_.tokens; token++) {
      weigh_some(token * tile_.heads, tile_.heads, from_[token], smaller(to_[token], common_from));
    }
    weigh_some(0, rows_, common_from, common_to);
    for (int token = 0; token < tile_.tokens; token++) {
      weigh_some(token * tile_.heads, tile_.heads, larger(from_[token], common_to), to_[token]);
    }
  }

  void weigh_some(int row, int rows, int from, int to) {
    if (from >= to) return;
    for (int r = row; r < row + rows; r += S::strip) {
      weigh_at_most<S, S::strip, T>(smaller(S::strip, row + rows - r), score_ + r * kSpanKeys, values_, from, to, size_,
                                    span_ + r * size_);
    }
  }

  // Adds a row's span to what came before.
  void merge(int row) {
    const int token = row / tile_.heads;
    if (from_[token] == to_[token]) return;
    float* sum = sum_ + row * size_;
    const float* span = span_ + row * size_;
    if (!seen_[row]) {
      seen_[row] = true;
      largest_[row] = span_largest_[row];
      total_[row] = span_sum_[row];
      for (int i = 0; i < size_; i++) sum[i] = span[i];
      return;
    }
    const float before = largest_[row], here = span_largest_[row];
    const float both = before > here ? before : here;
    float factors[S::lanes] = {before - both, here - both};
    S::store(factors, exponential<S>(S::load(factors)));
    const auto old_factor = S::all(factors[0]), new_factor = S::all(factors[1]);
    for (int i = 0; i < size_; i += S::lanes) {
      S::store(sum + i, S::fma(S::load(sum + i), old_factor, S::multiply(S::load(span + i), new_factor)));
    }
    total_[row] = factors[0] * total_[row] + factors[1] * span_sum_[row];
    largest_[row] = both;
  }

  void put_out(int row) {
    const int token = row / tile_.heads, group = a_.heads / a_.kv_heads;
    const int head = tile_.kv_head * group + tile_.head + row % tile_.heads;
    const ptrdiff_t place = static_cast<ptrdiff_t>(a_.starts[tile_.request] + tile_.token + token) * a_.heads + head;
    const auto factor = S::all(1.f / total_[row]);
    for (int i = 0; i < size_; i += S::lanes) {
      S::store(a_.out + place * size_ + i, S::multiply(S::load(sum_ + row * size_ + i), factor));
    }
  }

  void prefetch(const T* block) const {
    const char* at = reinterpret_cast<const char*>(block);
    for (size_t i = 0; i < static_cast<size_t>(size_) * kTokens * sizeof(T); i += 64) __builtin_prefetch(at + i, 0, 2);
  }

  const Attention& a_;
  const Tile& tile_;
  const int rows_, size_;
  const int first_;  // position of the tile's first token
  const int32_t* const blocks_;
  const T* values_[kSpan];
  int from_[kMaxTileRows], to_[kMaxTileRows];  // by token: keys of the span that it sees
  bool seen_[kMaxTileRows];                    // whether a row has met a key yet
  float largest_[kMaxTileRows], total_[kMaxTileRows];
  float span_largest_[kMaxTileRows], span_sum_[kMaxTileRows];
  alignas(64) float query_[kMaxTileFloats];
  alignas(64) float sum_[kMaxTileFloats];
  alignas(64) float span_[kMaxTileFloats];
  alignas(64) float score_[kMaxTileRows * kSpanKeys];
  alignas(64) float keys_[kMaxHeadSize * kTokens];
};

template <class S, class T>
void attend(const Attention& attention, const Tile& tile) {
  TileOfRows<S, T>(attention, tile).attend();
}

}  // namespace
}  // namespace llm
