// Vectors of 16 floats and dot products of small integers: AVX-512 with VNNI.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "kernels.h"

namespace llm {
namespace {

struct Simd {
  static constexpr const char* name = "avx512";
  static constexpr int lanes = 16;
  static constexpr int vectors = kPanel / lanes;
  static constexpr int strip = 12;  // query rows at once
  static constexpr int wide = 1;    // vectors of values at once: 12 × 1 sums hide the latency of a fused multiply-add

  using Float = __m512;
  using Int = __m512i;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float all(float x) { return _mm512_set1_ps(x); }
  static Float load(const float* p) { return _mm512_loadu_ps(p); }
  static Float load(const Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static void store(Half* p, Float x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float divide(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  // The second operand if either is NaN; so are all variants.
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float round(Float x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
  // 2 to the power of a whole number from -126 to 127.
  static Float power_of_two(Float n) {
    const Int exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  // Lanes from `first` up to `end` of x, `other` in the rest.
  static Float within(Float x, int first, int end, float other) {
    const Int lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 from = _mm512_cmple_epi32_mask(_mm512_set1_epi32(first), lane);
    return _mm512_mask_blend_ps(_mm512_mask_cmplt_epi32_mask(from, lane, _mm512_set1_epi32(end)), all(other), x);
  }
  static float sum(Float x) { return _mm512_reduce_add_ps(x); }
  static float largest(Float x) { return _mm512_reduce_max_ps(x); }

  // The largest magnitude of 32 floats; NaN if there is one, since as integers NaNs are above all numbers.
  static float magnitude(const float* x) {
    const Int positive = _mm512_set1_epi32(0x7fffffff);
    const Int a = _mm512_and_si512(_mm512_castps_si512(load(x)), positive);
    const Int b = _mm512_and_si512(_mm512_castps_si512(load(x + lanes)), positive);
    const int bits = _mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
  }
  // 32 floats times `factor` as integers, at most 8 bits each; returns their sum. NaN becomes -128.
  static int to_integers(const float* x, float factor, int8_t* q) {
    const Int a = _mm512_cvtps_epi32(multiply(load(x), all(factor)));
    const Int b = _mm512_cvtps_epi32(multiply(load(x + lanes), all(factor)));
    const __m128i low = _mm512_cvtsepi32_epi8(a), high = _mm512_cvtsepi32_epi8(b);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + lanes), high);
    return _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_cvtepi8_epi32(low), _mm512_cvtepi8_epi32(high)));
  }

  static Float to_float(Int x) { return _mm512_cvtepi32_ps(x); }

  // How stored weights are best taken apart; nibbles in bytes of their own are small bytes.
  static constexpr Form apart(Form) { return Form::kBytes; }
  static constexpr int rows(Form) { return 12; }  // 12 sums of integers and 12 of floats: 24 of 32 registers

  // sums[row] = dot products of one block of 32 with each of a panel's 16 columns.
  template <int rows, Form form>
  static void dots(const uint8_t* weight, const int8_t* q, int64_t stride, Int (&sums)[rows][vectors]) {
    const Int nibble = _mm512_set1_epi8(15);
    for (int r = 0; r < rows; r++) sums[r][0] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int group = 0; group < 8; group++) {
      Int w;
      if constexpr (form == Form::kPairs) {
        const Int raw = _mm512_loadu_si512(weight + 64 * (group / 2));
        w = _mm512_and_si512(group % 2 ? _mm512_srli_epi16(raw, 4) : raw, nibble);
      } else {
        w = _mm512_loadu_si512(weight + 64 * group);
      }
#pragma GCC unroll 12
      for (int r = 0; r < rows; r++) {
        int32_t four;
        std::memcpy(&four, q + r * stride + group * 4, sizeof four);
        sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], w, _mm512_set1_epi32(four));
      }
    }
  }
};

}  // namespace
}  // namespace llm
