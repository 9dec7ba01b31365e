// The kernels for one instruction set; compiled with its flags.
#include "simd_portable.h"
// The kernels are templates over `Simd`, so it comes first.
#include "attention_kernel.h"
#include "qlinear_kernel.h"
#include "swiglu_kernel.h"

namespace llm {

namespace {

const Kernels table = {
    Simd::name,          quantise<Simd>,       multiply<Simd>,     keep<Simd, float>,
    keep<Simd, Half>,    attend<Simd, float>,  attend<Simd, Half>, swiglu<Simd>,
};

}  // namespace

const Kernels* const kPortableKernels = &table;

}  // namespace llm
