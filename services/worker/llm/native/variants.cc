#include "variants.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstring>
#include <initializer_list>

namespace llm {

namespace {

#if defined(__x86_64__)

// What the CPU has and the operating system keeps. Asked for here, since clang's __builtin_cpu_supports can't be linked
// into a shared library by every toolchain.
class Cpu {
 public:
  Cpu() {
    unsigned eax = 0, edx = 0;
    if (!__get_cpuid(1, &eax, &basic_b_, &basic_c_, &edx)) return;
    if (!__get_cpuid_count(7, 0, &eax, &extended_b_, &extended_c_, &edx)) return;
    constexpr unsigned osxsave = 1u << 27;
    if (basic_c_ & osxsave) __asm__("xgetbv" : "=a"(kept_), "=d"(edx) : "c"(0));
  }

  bool avx2() const {
    constexpr unsigned fma = 1u << 12, f16c = 1u << 29, avx2 = 1u << 5, registers = 6;
    return has(basic_c_, fma | f16c) && has(extended_b_, avx2) && has(kept_, registers);
  }
  bool avx512() const {
    constexpr unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11, registers = 0xe6;
    return avx2() && has(extended_b_, f | dq | bw | vl) && has(extended_c_, vnni) && has(kept_, registers);
  }

 private:
  static bool has(unsigned flags, unsigned wanted) { return (flags & wanted) == wanted; }

  unsigned basic_b_ = 0, basic_c_ = 0, extended_b_ = 0, extended_c_ = 0;
  unsigned kept_ = 0;  // XCR0: which registers are saved between threads
};

bool cpu_runs(const Kernels* candidate) {
  static const Cpu cpu;
  if (candidate == kAvx512Kernels) return cpu.avx512();
  if (candidate == kAvx2Kernels) return cpu.avx2();
  return candidate == kPortableKernels;
}

#else

bool cpu_runs(const Kernels* candidate) { return candidate == kPortableKernels; }

#endif

const Kernels* best() {
  for (const Kernels* candidate : {kAvx512Kernels, kAvx2Kernels}) {
    if (candidate && cpu_runs(candidate)) return candidate;
  }
  return kPortableKernels;
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels{best()};
  return kernels;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  for (const Kernels* candidate : {kAvx512Kernels, kAvx2Kernels, kPortableKernels}) {
    if (candidate && !std::strcmp(candidate->name, name) && cpu_runs(candidate)) return candidate;
  }
  return nullptr;
}

bool select_kernels(const char* name) {
  const Kernels* found = find_kernels(name);
  if (found) chosen().store(found);
  return found != nullptr;
}

const Kernels& kernels() { return *chosen().load(std::memory_order_relaxed); }

}  // namespace llm
