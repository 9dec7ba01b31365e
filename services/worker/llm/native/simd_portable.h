// Vectors of 8 floats and dot products of small integers in plain C++, for any CPU; the compiler finds its vectors.
#pragma once
#include <cstring>

#include "kernels.h"

namespace llm {
namespace {

struct Simd {
  static constexpr const char* name = "portable";
  static constexpr int lanes = 8;
  static constexpr int vectors = kPanel / lanes;
  static constexpr int strip = 4;  // query rows at once
  static constexpr int wide = 2;   // vectors of values at once

  struct Float {
    float lane[lanes];
  };
  struct Int {
    int32_t lane[lanes];
  };

  template <class Operation>
  static Float each(Operation operation) {
    Float result;
    for (int i = 0; i < lanes; i++) result.lane[i] = operation(i);
    return result;
  }

  static Float zero() { return Float{}; }
  static Float all(float x) {
    return each([&](int) { return x; });
  }
  static Float load(const float* p) {
    Float result;
    std::memcpy(&result, p, sizeof result);
    return result;
  }
  static Float load(const Half* p) {
    return each([&](int i) { return widen(p[i]); });
  }
  static void store(float* p, Float x) { std::memcpy(p, &x, sizeof x); }
  static void store(Half* p, Float x) {
    for (int i = 0; i < lanes; i++) p[i] = narrow(x.lane[i]);
  }
  static Float add(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Float subtract(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Float multiply(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Float divide(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // Rounds twice: without the instruction, fused means a call of the C library for each element.
  static Float fma(const Float& a, const Float& b, const Float& c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  // The second operand if either is NaN; so are all variants.
  static Float max(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Float min(const Float& a, const Float& b) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Float round(const Float& x) {
    return each([&](int i) { return whole(x.lane[i]); });
  }
  // 2 to the power of a whole number from -126 to 127; of NaN, any number.
  static Float power_of_two(const Float& n) {
    return each([&](int i) {
      const int exponent = n.lane[i] == n.lane[i] ? static_cast<int>(n.lane[i]) : 0;
      return from_bits(static_cast<uint32_t>(exponent + 127) << 23);
    });
  }
  // Lanes from `first` up to `end` of x, `other` in the rest.
  static Float within(const Float& x, int first, int end, float other) {
    return each([&](int i) { return first <= i && i < end ? x.lane[i] : other; });
  }
  static float sum(const Float& x) {
    const float* s = x.lane;
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
  static float largest(const Float& x) {
    float result = x.lane[0];
    for (int i = 1; i < lanes; i++) result = result > x.lane[i] ? result : x.lane[i];
    return result;
  }

  // The largest magnitude of 32 floats; NaN if there is one, since as integers NaNs are above all numbers.
  static float magnitude(const float* x) {
    uint32_t result = 0;
    for (int i = 0; i < kBlock; i++) {
      const uint32_t bits = to_bits(x[i]) & 0x7fffffff;
      result = result > bits ? result : bits;
    }
    return from_bits(result);
  }
  // 32 floats times `factor` as integers, at most 8 bits each; returns their sum. NaN becomes -128.
  static int to_integers(const float* x, float factor, int8_t* q) {
    int sum = 0;
    for (int i = 0; i < kBlock; i++) {
      const float v = x[i] * factor;
      q[i] = static_cast<int8_t>(v >= 127.f ? 127.f : v > -128.f ? whole(v) : -128.f);
      sum += q[i];
    }
    return sum;
  }

  static Float to_float(const Int& x) {
    return each([&](int i) { return static_cast<float>(x.lane[i]); });
  }

  // Weights are used as they are stored: taking them apart is little beside the sums.
  static constexpr Form apart(Form stored) { return stored; }
  static constexpr int rows(Form) { return 4; }

  // sums[row] = dot products of one block of 32 with each of a panel's 16 columns.
  //
  // In 16 bits, which compilers multiply eight at a time everywhere: 8 bit activations times 4 bit weights, 8 of them to
  // a place, are at most 8 × 128 × 15 = 15360. Weights of 8 bits are taken as two of 4.
  template <int rows, Form form>
  static void dots(const uint8_t* weight, const int8_t* q, int64_t stride, Int (&sums)[rows][vectors]) {
    for (int r = 0; r < rows; r++) {
      int16_t low[64] = {}, high[64] = {};
      for (int group = 0; group < 8; group++) {
        int16_t x[8];  // the four activations, twice: as wide as the least vectors of any CPU
        for (int i = 0; i < 8; i++) x[i] = q[r * stride + group * 4 + i % 4];
        if constexpr (form == Form::kPairs) {
          const uint8_t* w = weight + 64 * (group / 2);
          if (group % 2) {
            add_products(w, [](uint8_t byte) { return byte >> 4; }, x, low);
          } else {
            add_products(w, [](uint8_t byte) { return byte & 15; }, x, low);
          }
        } else {
          add_products(weight + 64 * group, [](uint8_t byte) { return byte & 15; }, x, low);
          add_products(weight + 64 * group, [](uint8_t byte) { return byte >> 4; }, x, high);
        }
      }
      for (int c = 0; c < kPanel; c++) {
        int32_t sum = 0;
        for (int k = 0; k < 4; k++) sum += low[c * 4 + k] + 16 * high[c * 4 + k];
        sums[r][c / lanes].lane[c % lanes] = sum;
      }
    }
  }

 private:
  template <class Nibble>
  static void add_products(const uint8_t* w, Nibble nibble, const int16_t (&x)[8], int16_t (&sum)[64]) {
    for (int i = 0; i < 64; i += 8) {
      for (int j = 0; j < 8; j++) {
        sum[i + j] = static_cast<int16_t>(sum[i + j] + static_cast<int16_t>(nibble(w[i + j])) * x[j]);
      }
    }
  }
  static uint32_t to_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  static float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  // To the nearest whole number, ties to even: beyond 2^23 floats have no fraction left. NaN stays NaN.
  static float whole(float x) {
    const float big = x < 0 ? -8388608.f : 8388608.f;
    return x > -8388608.f && x < 8388608.f ? (x + big) - big : x;
  }
  static float widen(Half h) {
    const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16;
    const uint32_t rest = h.bits & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);  // infinity, NaN
    // As if the exponent had the same bias, then moved to where it belongs; exact for subnormal numbers too.
    return from_bits(sign | to_bits(from_bits(rest << 13) * 0x1p112f));
  }
  static Half narrow(float x) {
    const uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t half;
    if (rest > 0x7f800000) {
      half = 0x7e00;  // NaN
    } else if (rest >= 0x477ff000) {
      half = 0x7c00;  // rounds to more than the largest one: infinity
    } else if (rest < 0x38800000) {
      half = to_bits(from_bits(rest) + 0.5f) - to_bits(0.5f);  // subnormal: the addition rounds to multiples of 2^-24
    } else {
      half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;  // nearest, ties to even
    }
    return Half{static_cast<uint16_t>(sign | half)};
  }
};

}  // namespace
}  // namespace llm
