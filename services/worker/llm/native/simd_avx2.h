// Vectors of 8 floats and dot products of small integers: AVX2 with FMA and F16C.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace llm {
namespace {

struct Simd {
  static constexpr const char* name = "avx2";
  static constexpr int lanes = 8;
  static constexpr int vectors = kPanel / lanes;
  static constexpr int strip = 6;  // query rows at once: 6 × 2 vectors of sums leave 4 of 16 registers
  static constexpr int wide = 2;   // vectors of values at once

  using Float = __m256;
  using Int = __m256i;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float all(float x) { return _mm256_set1_ps(x); }
  static Float load(const float* p) { return _mm256_loadu_ps(p); }
  static Float load(const Half* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static void store(Half* p, Float x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  // The second operand if either is NaN; so are all variants.
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float round(Float x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // 2 to the power of a whole number from -126 to 127.
  static Float power_of_two(Float n) {
    const Int exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  // Lanes from `first` up to `end` of x, `other` in the rest.
  static Float within(Float x, int first, int end, float other) {
    const Int lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const Int inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                           _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
    return _mm256_blendv_ps(all(other), x, _mm256_castsi256_ps(inside));
  }
  static float sum(Float x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static float largest(Float x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  // The largest magnitude of 32 floats; NaN if there is one, since as integers NaNs are above all numbers.
  static float magnitude(const float* x) {
    const Int positive = _mm256_set1_epi32(0x7fffffff);
    Int m = _mm256_setzero_si256();
    for (int i = 0; i < kBlock; i += lanes) {
      m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(load(x + i)), positive));
    }
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(s));
  }
  // 32 floats times `factor` as integers, at most 8 bits each; returns their sum. NaN becomes -128.
  static int to_integers(const float* x, float factor, int8_t* q) {
    Int v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(multiply(load(x + i * lanes), all(factor)));
    const Int words = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    // The packs work on halves of 128 bits each; this brings the groups of four back in order.
    const Int bytes = _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
    const Int pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    const Int fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
  }

  static Float to_float(Int x) { return _mm256_cvtepi32_ps(x); }

  // How stored weights are best taken apart, and how many rows have sums that fit in the registers then.
  static constexpr Form apart(Form stored) { return stored == Form::kPairs ? Form::kNibbles : Form::kPlanes; }
  static constexpr int rows(Form form) { return form == Form::kNibbles ? 6 : form == Form::kPairs ? 5 : 3; }

  // sums[row] = dot products of one block of 32 with each of a panel's 16 columns.
  //
  // Without VNNI the sums of a block stay 16 bits wide: 8 bit activations times 4 bit weights, 16 of them to a lane, are
  // at most 16 × 128 × 15 = 30720. Weights of 8 bits are taken as two of 4.
  template <int rows, Form form>
  static void dots(const uint8_t* weight, const int8_t* q, int64_t stride, Int (&sums)[rows][vectors]) {
    constexpr int planes = form == Form::kBytes || form == Form::kPlanes ? 2 : 1;
    Int partial[rows][vectors][planes];
    for (int r = 0; r < rows; r++) {
      for (int v = 0; v < vectors; v++) {
        for (int p = 0; p < planes; p++) partial[r][v][p] = _mm256_setzero_si256();
      }
    }
#pragma GCC unroll 8
    for (int group = 0; group < 8; group++) {
      Int w[vectors][planes];
      for (int v = 0; v < vectors; v++) load_group<form>(weight, group, v, w[v]);
#pragma GCC unroll 6
      for (int r = 0; r < rows; r++) {
        int32_t four;
        std::memcpy(&four, q + r * stride + group * 4, sizeof four);
        const Int x = _mm256_set1_epi32(four);
        for (int v = 0; v < vectors; v++) {
          for (int p = 0; p < planes; p++) {
            Int& sum = partial[r][v][p];
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[v][p], x));
            // Left alone, GCC makes all products first and adds them later, from the stack.
            asm("" : "+x"(sum));
          }
        }
      }
    }
    for (int r = 0; r < rows; r++) {
      for (int v = 0; v < vectors; v++) {
        sums[r][v] = _mm256_madd_epi16(partial[r][v][0], _mm256_set1_epi16(1));
        if constexpr (planes == 2) {
          sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(partial[r][v][1], _mm256_set1_epi16(16)));
        }
      }
    }
  }

 private:
  // Four inputs of eight columns, as one vector of nibbles or as two.
  template <Form form, int planes>
  static void load_group(const uint8_t* weight, int group, int v, Int (&w)[planes]) {
    const Int nibble = _mm256_set1_epi8(15);
    constexpr int pieces = form == Form::kPlanes ? 2 : 1;
    const int piece = form == Form::kPairs ? group / 2 : group * pieces;
    const Int* at = reinterpret_cast<const Int*>(weight + 64 * piece + 32 * v);
    const Int raw = _mm256_loadu_si256(at);
    const Int high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
    if constexpr (form == Form::kPairs) {
      w[0] = group % 2 ? high : _mm256_and_si256(raw, nibble);
    } else if constexpr (form == Form::kNibbles) {
      w[0] = raw;
    } else if constexpr (form == Form::kBytes) {
      w[0] = _mm256_and_si256(raw, nibble);
      w[1] = high;
    } else {
      w[0] = raw;
      w[1] = _mm256_loadu_si256(at + 2);
    }
  }
};

}  // namespace
}  // namespace llm
