// The choice among the kernels of several instruction sets.
#pragma once
#include "kernels.h"

namespace llm {

// The kernels of this name if this build has them and this CPU runs them, else nullptr.
const Kernels* find_kernels(const char* name);

// Uses the kernels of this name from now on; false, and nothing changes, if there are none.
bool select_kernels(const char* name);

}  // namespace llm
