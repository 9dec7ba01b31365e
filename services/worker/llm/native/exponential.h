// The exponential function and what follows from it, for whole vectors.
#pragma once

namespace llm {
namespace {

// e to the x, to about two units in the last place; the smallest normal number or so below -87, NaN for NaN.
template <class S>
typename S::Float exponential(typename S::Float x) {
  // Bounds as first operands: `max` and `min` answer the second one if that is NaN.
  x = S::min(S::all(88.f), S::max(S::all(-87.f), x));
  const auto n = S::round(S::multiply(x, S::all(1.44269504f)));
  // x - n ln 2, where ln 2 is the sum of a part that multiplies exactly and the rest.
  auto r = S::fma(n, S::all(-0.693359375f), x);
  r = S::fma(n, S::all(2.12194440e-4f), r);
  // Cephes' polynomial for e^r, |r| <= ln 2 / 2.
  auto p = S::all(1.9875691500e-4f);
  p = S::fma(p, r, S::all(1.3981999507e-3f));
  p = S::fma(p, r, S::all(8.3334519073e-3f));
  p = S::fma(p, r, S::all(4.1665795894e-2f));
  p = S::fma(p, r, S::all(1.6666665459e-1f));
  p = S::fma(p, r, S::all(5.0000001201e-1f));
  p = S::fma(p, S::multiply(r, r), S::add(r, S::all(1.f)));
  return S::multiply(p, S::power_of_two(n));
}

// 1 / (1 + e^-x)
template <class S>
typename S::Float sigmoid(typename S::Float x) {
  const auto e = exponential<S>(S::subtract(S::zero(), x));
  return S::divide(S::all(1.f), S::add(S::all(1.f), e));
}

// The hyperbolic tangent: 2 sigmoid(2x) - 1
template <class S>
typename S::Float tangent(typename S::Float x) {
  return S::fma(S::all(2.f), sigmoid<S>(S::add(x, x)), S::all(-1.f));
}

}  // namespace
}  // namespace llm
