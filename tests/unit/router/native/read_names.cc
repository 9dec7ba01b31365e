// Reads bodies from standard input, in pieces, and says what the edge's module finds in them; for the test beside it.
// A case is: pieces (uint32, little-endian), then each piece as its size (uint32) and its bytes.

#include <cstdio>
#include <memory>
#include <vector>

#include "../../../../services/router/native/first_message.h"

static bool read_number(uint32_t* number) { return std::fread(number, sizeof *number, 1, stdin) == 1; }

int main() {
  const inferplane::NameFields fields{1, 2};
  uint32_t count = 0;
  while (read_number(&count)) {
    // Each piece has memory of its own size, so that a reader that goes too far is noticed.
    std::vector<std::unique_ptr<char[]>> held;
    std::vector<inferplane::Piece> pieces;
    uint64_t size = 0;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t length = 0;
      if (!read_number(&length)) return 1;
      held.emplace_back(new char[length]);
      if (length > 0 && std::fread(held.back().get(), 1, length, stdin) != length) return 1;
      pieces.push_back({held.back().get(), length});
      size += length;
    }
    inferplane::Names names;
    switch (inferplane::read_names(pieces, size, fields, &names)) {
      case inferplane::Reading::kMore:
        std::puts("more");
        break;
      case inferplane::Reading::kUnclear:
        std::puts("unclear");
        break;
      case inferplane::Reading::kFound:
        std::printf("found %s@%s\n", names.endpoint.c_str(), names.version.c_str());
    }
  }
  return 0;
}
