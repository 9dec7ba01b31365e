// What a refused request is told: a sentence, and for gRPC's clients the error as a program reads it (google.rpc.Status
// with ErrorInfo and RetryInfo, in base64). Knows no Envoy.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "admission.h"

namespace inferplane {

struct Refusal {
  std::string text;
  std::string details;  // base64
  std::string retry_after;  // whole seconds
};

inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// As OpenAI's clients know it: `1.5s`, `17ms`.
inline std::string duration(int64_t ns) {
  const double seconds = static_cast<double>(std::max<int64_t>(ns, 0)) / 1e9;
  char text[32];
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%dms", static_cast<int>(std::ceil(seconds * 1000)));
  } else {
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  }
  return text;
}

inline std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k <= count; ++k) text += kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;  // gRPC over HTTP/2, "Binary-Header": padding may be left out
}

// Protobuf's encoding, as far as it is needed here.
class Message {
 public:
  Message& add(uint32_t field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }

  Message& add(uint32_t field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }

  Message& add(uint32_t field, const Message& message) { return add(field, std::string_view(message.bytes_)); }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(uint32_t field, uint32_t wire_type) { varint(field << 3 | wire_type); }

  void varint(uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

inline Message any(std::string_view type, const Message& value) {
  return Message().add(1, "type.googleapis.com/" + std::string(type)).add(2, value);
}

inline std::string details_of(std::string_view text, std::string_view reason, int64_t wait_ns,
                              std::initializer_list<std::pair<std::string_view, std::string>> metadata) {
  Message info;
  info.add(1, reason).add(2, "inferplane");
  for (const auto& [key, value] : metadata) info.add(3, Message().add(1, key).add(2, value));
  const Message delay = Message()
                            .add(1, static_cast<uint64_t>(wait_ns / 1000000000))
                            .add(2, static_cast<uint64_t>(wait_ns % 1000000000));
  constexpr uint64_t kResourceExhausted = 8;
  return base64(Message()
                    .add(1, kResourceExhausted)
                    .add(2, text)
                    .add(3, any("google.rpc.ErrorInfo", info))
                    .add(3, any("google.rpc.RetryInfo", Message().add(1, delay)))
                    .bytes());
}

inline Refusal refusal_of(Verdict verdict, const Admission& admission) {
  constexpr int64_t kSecond = 1000000000;
  const Subject& subject = *admission.refused_by();
  const bool is_rate = verdict == Verdict::kRate;
  const int64_t wait_ns = is_rate ? admission.rate().wait_ns : kSecond;
  const std::string limit =
      is_rate ? number(subject.limits.requests_per_second) : number(subject.limits.concurrent_requests);
  Refusal refusal;
  refusal.text = subject.name + " may have " + limit +
                 (is_rate ? " requests a second, which are used up; try again in " + duration(wait_ns)
                          : " requests in flight, and has; try again when one has ended");
  refusal.details = details_of(refusal.text, is_rate ? "REQUESTS_PER_SECOND" : "CONCURRENT_REQUESTS", wait_ns,
                               {{"subject", subject.name}, {"limit", limit}});
  refusal.retry_after = std::to_string(std::max<int64_t>((wait_ns + kSecond - 1) / kSecond, 1));
  return refusal;
}

}  // namespace inferplane
