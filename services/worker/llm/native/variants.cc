#include "variants.h"

#include <atomic>
#include <cstring>
#include <initializer_list>

namespace llm {

namespace {

bool cpu_runs(const Kernels* candidate) {
#if defined(__x86_64__)
  // These look at CPUID, and at XGETBV for whether the operating system keeps the wide registers.
  if (candidate == kAvx512Kernels) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
  }
  if (candidate == kAvx2Kernels) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  }
#endif
  return candidate == kPortableKernels;
}

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
