#include <algorithm>
#include <cmath>
#include <limits>

#include "operators.h"

namespace llm {

namespace {

enum { kQkv, kKv, kStarts, kPast, kBlocks, kCos, kSin, kQNorm, kKNorm };

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

const Tensor* optional(const Inputs& inputs, size_t index) {
  return index < inputs.size() && inputs[index].present() ? &inputs[index] : nullptr;
}

// All new tokens, one by one.
struct NewToken {
  int request;
  int token;
};

std::vector<NewToken> new_tokens(const Attention& attention, int requests) {
  std::vector<NewToken> tokens;
  for (int request = 0; request < requests; request++) {
    const int count = attention.starts[request + 1] - attention.starts[request];
    for (int token = 0; token < count; token++) tokens.push_back({request, token});
  }
  return tokens;
}

// The work in tiles. A tile's size changes no result, so it may follow what fits the cache. Later tiles of a prompt
// look back further and come first, so that the short ones fill up the threads at the end.
std::vector<Tile> tiles(const Attention& attention, int requests) {
  const int group = attention.heads / attention.kv_heads;
  const int rows = std::min(kMaxTileRows, kMaxTileFloats / attention.head_size);
  const int tokens = std::max(1, rows / group), heads = std::min(group, rows);
  std::vector<Tile> result;
  for (int request = 0; request < requests; request++) {
    const int count = attention.starts[request + 1] - attention.starts[request];
    for (int token = (count - 1) / tokens * tokens; count && token >= 0; token -= tokens) {
      for (int kv_head = 0; kv_head < attention.kv_heads; kv_head++) {
        for (int head = 0; head < group; head += heads) {
          result.push_back({request, kv_head, token, std::min(tokens, count - token), head, std::min(heads, group - head)});
        }
      }
    }
  }
  return result;
}

}  // namespace

PagedAttention::PagedAttention(const PagedAttentionAttributes& attributes) : attributes_(attributes) {
  const auto& a = attributes;
  require(a.num_heads > 0 && a.num_heads <= kLargest, "num_heads is ", a.num_heads, ", not at least 1");
  require(a.kv_num_heads > 0 && a.num_heads % a.kv_num_heads == 0, "kv_num_heads is ", a.kv_num_heads,
          ", no divisor of num_heads, ", a.num_heads);
  require(a.layer >= 0, "layer is ", a.layer, ", negative");
  require(a.window >= 0 && a.window <= kLargest, "window is ", a.window, ", out of range");
  require(a.softcap >= 0 && std::isfinite(a.softcap), "softcap is negative or no number");
  require(a.scale >= 0 && std::isfinite(a.scale), "scale is negative or no number");
  require(a.epsilon >= 0 && std::isfinite(a.epsilon), "epsilon is negative or no number");
}

int64_t PagedAttention::head_size(const Inputs& inputs) const {
  return inputs[kQkv].shape[1] / (attributes_.num_heads + 2 * attributes_.kv_num_heads);
}

Shape PagedAttention::shape(const Inputs& inputs) const {
  const Tensor& qkv = inputs[kQkv];
  require_tensor(qkv, "qkv", Element::kFloat, 2);
  const int64_t heads = attributes_.num_heads + 2 * attributes_.kv_num_heads, size = head_size(inputs);
  require(size * heads == qkv.shape[1] && size % 16 == 0 && size > 0 && size <= kMaxHeadSize, "qkv has the shape ",
          qkv.shape, ": its width is not ", heads, " times a head size that is a multiple of 16 up to ", kMaxHeadSize);
  require(qkv.shape[0] <= kLargest, "qkv has the shape ", qkv.shape, ": too many tokens");
  check_cache(inputs);
  check_requests(inputs);
  check_norms(inputs);
  return {qkv.shape[0], attributes_.num_heads * size};
}

void PagedAttention::check_cache(const Inputs& inputs) const {
  const Tensor& kv = inputs[kKv];
  require_tensor(kv, "kv", kv.element == Element::kFloat ? Element::kFloat : Element::kFloat16, 5);
  const int64_t layers = kv.shape[0], blocks = kv.shape[2];
  require_shape(kv, "kv", {layers, 2, blocks, attributes_.kv_num_heads, kTokens * head_size(inputs)});
  require(attributes_.layer < layers, "layer is ", attributes_.layer, ", but kv has ", layers);
  require(blocks <= kLargest, "kv has ", blocks, " blocks, too many");
}

void PagedAttention::check_requests(const Inputs& inputs) const {
  require_tensor(inputs[kPast], "past", Element::kInt32, 1);
  const int64_t requests = inputs[kPast].shape[0];
  require_tensor(inputs[kStarts], "starts", Element::kInt32, 1);
  require_shape(inputs[kStarts], "starts", {requests + 1});
  require_tensor(inputs[kBlocks], "blocks", Element::kInt32, 2);
  const int64_t most = inputs[kBlocks].shape[1], pool = inputs[kKv].shape[2];
  require_shape(inputs[kBlocks], "blocks", {requests, most});
  require(most <= kLargest / kTokens, "blocks has the shape ", inputs[kBlocks].shape, ": too many for a request");
  require_tensor(inputs[kCos], "cos", Element::kFloat, 2);
  require_tensor(inputs[kSin], "sin", Element::kFloat, 2);
  require_shape(inputs[kSin], "sin", inputs[kCos].shape);
  const int64_t positions = inputs[kCos].shape[0], rotated = inputs[kCos].shape[1];
  require(2 * rotated <= head_size(inputs), "cos has the shape ", inputs[kCos].shape, ": rope of ", 2 * rotated,
          " elements in heads of ", head_size(inputs));

  const int32_t* starts = inputs[kStarts].as<int32_t>();
  const int64_t tokens = inputs[kQkv].shape[0];
  require(starts[0] == 0 && starts[requests] == tokens, "starts goes from ", starts[0], " to ", starts[requests],
          ", not from 0 to the ", tokens, " tokens");
  for (int64_t i = 0; i < requests; i++) {
    const int64_t count = int64_t{starts[i + 1]} - starts[i], past = inputs[kPast].as<int32_t>()[i];
    require(count >= 0, "starts descends from ", starts[i], " to ", starts[i + 1], " at request ", i);
    require(past >= 0, "past is ", past, ", negative, for request ", i);
    if (!count) continue;
    const int64_t length = past + count;
    require(length <= most * kTokens, "request ", i, " has ", length, " tokens, but its ", most, " blocks hold ",
            most * kTokens);
    require(length <= positions, "request ", i, " has ", length, " tokens, but cos and sin have ", positions,
            " positions");
    const int32_t* blocks = inputs[kBlocks].as<int32_t>() + i * most;
    for (int64_t b = 0; b * kTokens < length; b++) {
      require(blocks[b] >= 0 && blocks[b] < pool, "block ", b, " of request ", i, " is ", blocks[b], ", but kv has ",
              pool, " blocks");
    }
  }
}

void PagedAttention::check_norms(const Inputs& inputs) const {
  for (const auto& [index, name] : {std::pair{kQNorm, "q_norm"}, std::pair{kKNorm, "k_norm"}}) {
    const Tensor* norm = optional(inputs, static_cast<size_t>(index));
    if (!norm) continue;
    require_tensor(*norm, name, Element::kFloat, 1);
    require_shape(*norm, name, {head_size(inputs)});
  }
}

Attention PagedAttention::attention(const Inputs& inputs, float* out) const {
  const int64_t size = head_size(inputs);
  const Tensor& kv = inputs[kKv];
  const int64_t half = kv.shape[2] * kv.shape[3] * kv.shape[4];  // elements of a layer's keys, or of its values
  const int64_t bytes = half * (kv.element == Element::kFloat ? 4 : 2);
  const Tensor *q_norm = optional(inputs, kQNorm), *k_norm = optional(inputs, kKNorm);
  Attention a{};
  a.qkv = inputs[kQkv].as<float>();
  a.keys = static_cast<char*>(kv.data) + 2 * attributes_.layer * bytes;
  a.values = static_cast<char*>(a.keys) + bytes;
  a.starts = inputs[kStarts].as<int32_t>();
  a.past = inputs[kPast].as<int32_t>();
  a.blocks = inputs[kBlocks].as<int32_t>();
  a.cosine = inputs[kCos].as<float>();
  a.sine = inputs[kSin].as<float>();
  a.q_norm = q_norm ? q_norm->as<float>() : nullptr;
  a.k_norm = k_norm ? k_norm->as<float>() : nullptr;
  a.out = out;
  a.heads = static_cast<int>(attributes_.num_heads);
  a.kv_heads = static_cast<int>(attributes_.kv_num_heads);
  a.head_size = static_cast<int>(size);
  a.rotated = static_cast<int>(inputs[kCos].shape[1]);
  a.max_blocks = static_cast<int>(inputs[kBlocks].shape[1]);
  a.window = static_cast<int>(attributes_.window);
  a.softcap = attributes_.softcap;
  a.scale = attributes_.scale > 0 ? attributes_.scale : 1.f / std::sqrt(static_cast<float>(size));
  a.epsilon = attributes_.epsilon;
  return a;
}

void PagedAttention::compute(const Inputs& inputs, float* out, Parallel& parallel) const {
  const int requests = static_cast<int>(inputs[kPast].shape[0]);
  const Attention a = attention(inputs, out);
  const bool is_float = inputs[kKv].element == Element::kFloat;
  const auto keep = is_float ? kernels().keep_float : kernels().keep_half;
  const auto attend = is_float ? kernels().attend_float : kernels().attend_half;

  // All keys and values first: tiles of one request look at each other's.
  const std::vector<NewToken> tokens = new_tokens(a, requests);
  constexpr size_t share = 16;
  parallel.run((tokens.size() + share - 1) / share, [&](size_t piece) {
    const size_t end = std::min(tokens.size(), (piece + 1) * share);
    for (size_t i = piece * share; i < end; i++) keep(a, tokens[i].request, tokens[i].token);
  });
  const std::vector<Tile> work = tiles(a, requests);
  parallel.run(work.size(), [&](size_t piece) { attend(a, work[piece]); });
}

}  // namespace llm
