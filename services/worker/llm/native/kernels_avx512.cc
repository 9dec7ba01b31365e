// The kernels for one instruction set; compiled with its flags, or without them where the CPU is of another family.
#ifdef __AVX512VNNI__
#include "simd_avx512.h"
// The kernels are templates over `Simd`, so it comes first.
#include "attention_kernel.h"
#include "qlinear_kernel.h"
#include "swiglu_kernel.h"

namespace llm {

namespace {

const Kernels table = {
    Simd::name,       quantise<Simd>,      multiply<Simd>,     keep<Simd, float>,
    keep<Simd, Half>, attend<Simd, float>, attend<Simd, Half>, swiglu<Simd>,
};

}  // namespace

const Kernels* const kAvx512Kernels = &table;

}  // namespace llm
#else
#include "kernels.h"

const llm::Kernels* const llm::kAvx512Kernels = nullptr;
#endif
