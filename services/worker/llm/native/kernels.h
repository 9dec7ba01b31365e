// The kernels that exist once per instruction set, as a table of functions, and what they are called with.
//
// Everything here is plain data: a file that is compiled for one instruction set must share no inline function with
// the others, or the linker may keep the copy that an older CPU can't run.
#pragma once
#include <cstddef>
#include <cstdint>

namespace llm {

constexpr int kBlock = 32;            // weights of a row that share scale and minimum
constexpr int kPanel = 16;            // output columns that are computed together
constexpr int kTokens = 16;           // tokens of a block of the cache
constexpr int kMaxHeadSize = 256;     // so that what a tile needs fits on the stack
constexpr int kMaxTileRows = 48;      // query rows (token × head) of a tile
constexpr int kMaxTileFloats = 4096;  // head_size × rows of a tile

struct Half {
  uint16_t bits;
};

// Rows of activations, each block of 32 as small integers: x ≈ scale × q, and moment = scale × (sum of q).
struct QuantisedRows {
  const int8_t* q;      // [rows, blocks × 32]
  const float* scale;   // [rows, blocks]
  const float* moment;  // [rows, blocks]
  int64_t rows;
  int64_t blocks;
};

// How a block of a panel's weights lies in memory: eight groups of four inputs, in each the 16 columns after one another.
enum class Form {
  kPairs,    // weights of 4 bits, two groups in the same 64 bytes: as stored
  kNibbles,  // weights of 4 bits, one to a byte
  kBytes,    // weights of 8 bits: as stored
  kPlanes,   // weights of 8 bits as two of 4, one to a byte: of each group the low ones, then the high ones
};

constexpr int64_t bytes_of(Form form) {
  return kPanel * kBlock * (form == Form::kPlanes ? 2 : 1) / (form == Form::kPairs ? 2 : 1);
}

// One panel of weights and where its outputs go.
struct Panel {
  const uint8_t* weight;  // [blocks, 256 or 512]
  const Half* scales;     // [blocks, 2, 16]: scales, then minima
  int bits;               // 4 or 8
  const float* bias;      // of the panel's columns; nullptr: none
  float* out;             // the panel's first column in the first row
  int64_t stride;         // columns of a whole row of outputs
  int columns;            // of the panel that exist: 16, or fewer in the last one
};

// All that paged attention of one layer is about.
struct Attention {
  const float* qkv;      // [tokens, (heads + 2 × kv_heads) × head_size]
  void* keys;            // [blocks, kv_heads, head_size, 16]: tokens innermost, so that scores need no sums across lanes
  void* values;          // [blocks, kv_heads, 16, head_size]
  const int32_t* starts; // [requests + 1]
  const int32_t* past;   // [requests]
  const int32_t* blocks; // [requests, max_blocks]
  const float* cosine;   // [positions, rotated]
  const float* sine;     // [positions, rotated]
  const float* q_norm;   // [head_size]; nullptr: none
  const float* k_norm;   // [head_size]; nullptr: none
  float* out;            // [tokens, heads × head_size]
  int heads;
  int kv_heads;
  int head_size;
  int rotated;  // half of the elements that rope turns
  int max_blocks;
  int window;     // a token sees itself and window - 1 before it; 0: all before it
  float softcap;  // 0: none
  float scale;
  float epsilon;  // of q_norm and k_norm
};

// New tokens of a request and heads of one kv group that are computed together.
struct Tile {
  int request;
  int kv_head;
  int token;  // first one, counted from the request's first new token
  int tokens;
  int head;  // first one, counted in the group
  int heads;
};

enum class Activation { kSilu, kGeluTanh };

struct Kernels {
  const char* name;
  // One row: blocks × 32 floats.
  void (*quantise)(const float* x, int64_t blocks, int8_t* q, float* scale, float* moment);
  void (*multiply)(const QuantisedRows& rows, const Panel& panel);
  // Keys and values of one new token, into the cache.
  void (*keep_float)(const Attention& attention, int request, int token);
  void (*keep_half)(const Attention& attention, int request, int token);
  void (*attend_float)(const Attention& attention, const Tile& tile);
  void (*attend_half)(const Attention& attention, const Tile& tile);
  // One row: `features` gates, then as many factors.
  void (*swiglu)(const float* gate_up, int64_t features, Activation activation, float* out);
};

// Each in its own file with its own compiler flags; what this build has not is nullptr.
extern const Kernels* const kAvx512Kernels;
extern const Kernels* const kAvx2Kernels;
extern const Kernels* const kPortableKernels;

// The kernels in use: the best that this CPU runs, unless others were selected.
const Kernels& kernels();

}  // namespace llm
