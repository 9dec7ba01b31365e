// An HTTP filter of Envoy that reads endpoint and version from a call's first message and keeps them as filter state,
// by which the route is chosen. It stands before the filters that do the same for any message by its descriptor
// (grpc_field_extraction, set_filter_state), which are then skipped and cost a third of the edge's time; whatever it
// does not find plain and simple it leaves to them, and so their errors stay the edge's errors.
//
// Configuration: lines of `path field_of_endpoint field_of_version`, then the keys of the filter state, one a line:
// endpoint, version, route (both in one, with `@` between them).

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "filter.h"
#include "first_message.h"

namespace inferplane {
namespace {

using abi::Bytes;
using abi::BodyType;

struct Config {
  std::unordered_map<std::string, NameFields> methods;
  std::vector<std::string> keys;  // endpoint, version, route
};

// One line of the configuration's first part; false if it is none.
bool add_method(const std::string& line, Config* config) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string::npos ? first : line.find(' ', first + 1);
  if (second == std::string::npos) return false;
  const auto number = [&line](size_t at) {
    return static_cast<uint32_t>(std::strtoul(line.c_str() + at + 1, nullptr, 10));
  };
  config->methods[line.substr(0, first)] = NameFields{number(first), number(second)};
  return true;
}

bool read_config(std::string_view text, Config* config) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(text.substr(begin, end - begin));
    if (!line.empty() && !add_method(line, config)) config->keys.push_back(line);
    begin = end + 1;
  }
  return config->keys.size() == 3;
}

void append_pieces(void* envoy, BodyType type, std::vector<Piece>* pieces) {
  const size_t count = envoy_dynamic_module_callback_http_get_body_chunks_size(envoy, type);
  if (count == 0) return;
  std::vector<Bytes> found(count);
  if (!envoy_dynamic_module_callback_http_get_body_chunks(envoy, type, found.data())) return;
  for (const Bytes& bytes : found) pieces->push_back({bytes.data, bytes.size});
}

void keep(void* envoy, const Config& config, const Names& names) {
  const auto set = [envoy](const std::string& key, const std::string& value) {
    envoy_dynamic_module_callback_http_set_filter_state_bytes(envoy, bytes_of(key), bytes_of(value));
  };
  set(config.keys[0], names.endpoint);
  if (!names.version.empty()) set(config.keys[1], names.version);
  set(config.keys[2], names.endpoint + '@' + names.version);
  envoy_dynamic_module_callback_http_clear_route_cache(envoy);
}

class EndpointFilter : public Filter {
 public:
  explicit EndpointFilter(const Config& config) : config_(config) {}

  abi::HeadersStatus request_headers(void* envoy, bool end) override {
    Bytes path{};
    if (end || !envoy_dynamic_module_callback_http_get_header(envoy, abi::kRequestHeader, bytes_of(":path"), &path, 0,
                                                              nullptr)) {
      return abi::kHeadersContinue;
    }
    const auto found = config_.methods.find(std::string(path.data, path.size));
    if (found == config_.methods.end()) return abi::kHeadersContinue;
    fields_ = &found->second;
    return abi::kHeadersStop;
  }

  abi::BodyStatus request_body(void* envoy, bool end) override {
    if (fields_ == nullptr) return abi::kBodyContinue;
    if (look(envoy) == Reading::kMore && !end) return abi::kBodyStopAndBuffer;
    fields_ = nullptr;
    return abi::kBodyContinue;
  }

 private:
  // Looks at the body as far as it is there.
  Reading look(void* envoy) {
    const uint64_t size = envoy_dynamic_module_callback_http_get_body_size(envoy, abi::kBufferedRequestBody) +
                          envoy_dynamic_module_callback_http_get_body_size(envoy, abi::kReceivedRequestBody);
    // A large message comes in thousands of pieces: they are looked at twice, not each time.
    if (size < wanted_) return Reading::kMore;
    std::vector<Piece> pieces;
    append_pieces(envoy, abi::kBufferedRequestBody, &pieces);
    append_pieces(envoy, abi::kReceivedRequestBody, &pieces);
    Names names;
    const Reading reading = read_names(pieces, size, *fields_, &names);
    if (reading == Reading::kFound) keep(envoy, config_, names);
    if (reading == Reading::kMore) {
      Cursor cursor(pieces);
      uint64_t length = 0;
      const bool has_prefix = read_prefix(&cursor, &length) == Reading::kFound;
      wanted_ = kPrefixBytes + (has_prefix ? length : 0);
    }
    return reading;
  }

  const Config& config_;
  const NameFields* fields_ = nullptr;  // of the call's method, until its first message has been read
  uint64_t wanted_ = 0;                 // bytes of the body without which nothing can be said
};

class EndpointConfig : public FilterConfig {
 public:
  explicit EndpointConfig(Config config) : config_(std::move(config)) {}
  std::unique_ptr<Filter> make() const override { return std::make_unique<EndpointFilter>(config_); }

 private:
  const Config config_;
};

}  // namespace

std::unique_ptr<FilterConfig> endpoint_config(std::string_view text) {
  Config config;
  if (!read_config(text, &config)) return nullptr;
  return std::make_unique<EndpointConfig>(std::move(config));
}

}  // namespace inferplane
