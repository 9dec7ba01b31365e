// The two names in the first message of a gRPC call, read from its bytes wherever they lie. Knows no Envoy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace inferplane {

// Some bytes of a body, of which several follow each other.
struct Piece {
  const char* data;
  size_t size;
};

// A cursor over the pieces of a body.
class Cursor {
 public:
  explicit Cursor(const std::vector<Piece>& pieces) : pieces_(pieces) { settle(); }

  bool at_end() const { return piece_ == pieces_.size(); }

  // False at the end.
  bool next(uint8_t* byte) {
    if (at_end()) return false;
    *byte = static_cast<uint8_t>(pieces_[piece_].data[offset_++]);
    settle();
    return true;
  }

  // False if there are not so many.
  bool skip(uint64_t count) { return walk(count, nullptr); }

  // Appends them to `text`; false if there are not so many.
  bool take(uint64_t count, std::string* text) { return walk(count, text); }

 private:
  void settle() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size) {
      ++piece_;
      offset_ = 0;
    }
  }

  bool walk(uint64_t count, std::string* text) {
    while (count > 0) {
      if (at_end()) return false;
      const Piece& piece = pieces_[piece_];
      const size_t here = piece.size - offset_;
      const size_t step = count < here ? static_cast<size_t>(count) : here;
      if (text != nullptr) text->append(piece.data + offset_, step);
      offset_ += step;
      count -= step;
      settle();
    }
    return true;
  }

  const std::vector<Piece>& pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

// Field numbers of the strings that name endpoint and version in a method's request.
struct NameFields {
  uint32_t endpoint;
  uint32_t version;
};

struct Names {
  std::string endpoint;
  std::string version;  // empty: any
};

// A gRPC message's prefix: a flag, and the length in four bytes, the largest first (gRPC over HTTP/2, "Length-Prefixed-Message").
constexpr size_t kPrefixBytes = 5;
// Ids are shorter; whatever is longer is no endpoint of ours, and no concern of a quick reader.
constexpr size_t kLongestName = 256;

enum class Reading {
  kMore,     // the message is not complete
  kFound,    // it names an endpoint
  kUnclear,  // anything out of the ordinary: a slower reader, which also words the errors, is to look at it
};

// The length of the first message, once its prefix is there and says that it is not compressed.
inline Reading read_prefix(Cursor* cursor, uint64_t* length) {
  uint8_t flag = 0;
  if (!cursor->next(&flag)) return Reading::kMore;
  if (flag != 0) return Reading::kUnclear;
  *length = 0;
  for (int i = 0; i < 4; ++i) {
    uint8_t byte = 0;
    if (!cursor->next(&byte)) return Reading::kMore;
    *length = *length << 8 | byte;
  }
  return Reading::kFound;
}

// A message's fields, within its own length. Of a field that is there twice the last one counts, as in protobuf.
class MessageReader {
 public:
  MessageReader(Cursor* cursor, uint64_t length) : cursor_(cursor), left_(length) {}

  bool read(const NameFields& fields, Names* names) {
    while (left_ > 0) {
      uint64_t key = 0;
      if (!varint(&key)) return false;
      const uint64_t field = key >> 3;
      std::string* name = field == fields.endpoint  ? &names->endpoint
                          : field == fields.version ? &names->version
                                                    : nullptr;
      if (!value(static_cast<uint32_t>(key & 7), name)) return false;
    }
    return true;
  }

 private:
  // Wire types of protobuf's encoding; groups, which nobody sends, are left to others.
  bool value(uint32_t wire_type, std::string* name) {
    if (name != nullptr && wire_type != 2) return false;
    uint64_t ignored = 0;
    switch (wire_type) {
      case 0:
        return varint(&ignored);
      case 1:
        return skip(8);
      case 2:
        return bytes(name);
      case 5:
        return skip(4);
      default:
        return false;
    }
  }

  bool bytes(std::string* name) {
    uint64_t size = 0;
    if (!varint(&size) || size > left_) return false;
    if (name == nullptr) return skip(size);
    if (size > kLongestName) return false;
    name->clear();
    left_ -= size;
    return cursor_->take(size, name);
  }

  bool skip(uint64_t count) {
    if (count > left_) return false;
    left_ -= count;
    return cursor_->skip(count);
  }

  bool varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && left_ > 0; shift += 7) {
      uint8_t byte = 0;
      if (!cursor_->next(&byte)) return false;
      --left_;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  Cursor* cursor_;
  uint64_t left_;  // bytes of the message
};

// What goes into keys and logs as it is.
inline bool is_plain(const std::string& name) {
  for (const char c : name) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

// The names in the first message of `pieces`, which hold `size` bytes in all.
inline Reading read_names(const std::vector<Piece>& pieces, uint64_t size, const NameFields& fields, Names* names) {
  Cursor cursor(pieces);
  uint64_t length = 0;
  const Reading prefix = read_prefix(&cursor, &length);
  if (prefix != Reading::kFound) return prefix;
  if (size < kPrefixBytes + length) return Reading::kMore;
  if (!MessageReader(&cursor, length).read(fields, names)) return Reading::kUnclear;
  const bool is_usual = !names->endpoint.empty() && is_plain(names->endpoint) && is_plain(names->version);
  return is_usual ? Reading::kFound : Reading::kUnclear;
}

}  // namespace inferplane
